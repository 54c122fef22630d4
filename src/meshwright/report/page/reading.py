"""What a terminal's report says, as blocks: words and tables are written once, and the page has them from there.

A bold line after an empty one begins a section, as it does for whoever reads the terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from meshwright.report import pieces as of_terminal
from meshwright.report.bars import Legend, StackedBar
from meshwright.report.blocks import (
    DIFFERENCE,
    Bar,
    Block,
    Cell,
    Code,
    Paragraph,
    Pieces,
    Run,
    Section,
    Table,
    Words,
)
from meshwright.report.console import console

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from meshwright.report.blocks import Tone

WIDTH = 400
"""Columns of a terminal that is wide enough for every table."""
_TONES: tuple[tuple[str, Tone], ...] = (
    ("red", "bad"), ("yellow", "warn"), ("green", "good"), ("cyan", "accent"), ("dim", "dim"), ("bold", "strong"),
)
_SEVERITIES = {"error", "warning", "advice"}
_NOTES = ("note: ", "KIN ", "ANALYTIC ")


def sections_of(parts: Iterable[Any]) -> tuple[tuple[Block, ...], tuple[Section, ...]]:
    """Blocks before the first heading, and a section for each heading."""
    first: list[Block] = []
    sections: list[tuple[str, str, list[Block]]] = []
    for part in parts:
        if isinstance(part, Section):
            sections.append((part.title, " ".join(filter(None, (part.remark, part.mark))), list(part.blocks)))
            continue
        heading = _heading(part)
        if heading is not None:
            sections.append((*heading, []))
        else:
            (sections[-1][2] if sections else first).extend(_blocks(part))
    return tuple(first), tuple(
        Section(title=title, remark=remark, blocks=tuple(blocks)) for title, remark, blocks in sections if blocks or remark
    )


def blocks_of(parts: Iterable[Any]) -> tuple[Block, ...]:
    """All of a report as blocks, headings as strong lines."""
    return tuple(block for part in parts for block in _blocks(part))


def body_of(parts: Iterable[Any]) -> tuple[Block, ...]:
    """What stands below the headings of a report that has one of its own on the page."""
    return tuple(
        block for part in parts if _heading(part) is None
        for block in (part.blocks if isinstance(part, Section) else _blocks(part))
    )


def _heading(part: RenderableType) -> tuple[str, str] | None:
    """The title of a section and what is said beside it; None of anything else."""
    if not (isinstance(part, Padding) and part.top and isinstance(part.renderable, Text)):
        return None
    runs = words_of(part.renderable)
    if not runs or runs[0].tone != "strong":
        return None
    return runs[0].text.strip(), " ".join("".join(each.text for each in runs[1:]).split())


def _blocks(part: Any) -> Iterator[Block]:
    """The blocks of one part."""
    match part:
        case Section(title=title, blocks=inner):
            yield Paragraph(words=(Run(title, "strong"),))
            yield from inner
        case _ if isinstance(part, Block):
            yield part
        case Padding(renderable=inner):
            yield from _blocks(inner)
        case str():
            yield from _lines(Text(part))
        case Text():
            yield from _lines(part)
        case of_terminal.Pieces(pieces=pieces, style=style):
            yield Pieces(pieces=tuple(words_of(each if isinstance(each, Text) else Text(each, style=style)) for each in pieces))
        case Legend():
            return
        case RichTable():
            yield _table(part)
        case StackedBar():
            yield _bar(part)
        case _:
            target = console(width=WIDTH)
            target.width = WIDTH
            for inner in part.__rich_console__(target, target.options):
                yield from _blocks(inner)


def _lines(text: Text) -> Iterator[Block]:
    """A line, an item of a list, a note; a difference of files is to be copied whole."""
    plain = text.plain
    if plain.startswith("--- ") and "\n@@" in plain:
        yield Code(text=plain.rstrip("\n"), name=DIFFERENCE)
        return
    for line in text.split("\n"):
        words = words_of(line)
        said = "".join(each.text for each in words)
        if not said:
            continue
        if said.startswith("- "):
            first, *rest = words
            yield Paragraph(words=(Run(first.text[2:], first.tone), *rest), kind="item")
        elif words[0].text.strip() in _SEVERITIES:
            first, *rest = words
            yield Paragraph(words=(Run(first.text.strip(), first.tone, badge=True), *rest), kind="head")
        elif said.startswith(_NOTES):
            yield Paragraph(words=tuple(Run(each.text) for each in words), kind="note")
        elif all(each.tone == "dim" for each in words):
            yield Paragraph(words=tuple(Run(each.text) for each in words), kind="small")
        else:
            yield Paragraph(words=words)


def words_of(text: Text) -> Words:
    """A text as runs of one tone each, without the blanks at its ends."""
    plain = text.plain
    tones: list[Tone] = [_tone(text.style)] * len(plain)
    for span in text.spans:
        if (tone := _tone(span.style)) or "not bold" in str(span.style):
            tones[span.start : span.end] = [tone] * (min(span.end, len(plain)) - span.start)
    runs: list[Run] = []
    begin, end = len(plain) - len(plain.lstrip()), len(plain.rstrip())
    for place in range(begin, end):
        if runs and runs[-1].tone == tones[place]:
            runs[-1] = Run(runs[-1].text + plain[place], tones[place])
        else:
            runs.append(Run(plain[place], tones[place]))
    return tuple(runs)


def _tone(style: object) -> Tone:
    named = str(style)
    return "" if "not bold" in named else next((tone for word, tone in _TONES if word in named), "")


def _table(table: RichTable) -> Table:
    """A table; a column without a name and without a word is left out."""
    columns = []
    for column in table.columns:
        head = column.header.plain if isinstance(column.header, Text) else str(column.header)
        cells = [_cell(each, str(row.style or "")) for each, row in zip(column.cells, table.rows, strict=True)]
        if head or any(each.words or each.bar for each in cells):
            columns.append((head if table.show_header else "", cells, column.justify == "right"))
    return Table(
        head=tuple(head for head, _, _ in columns), right=frozenset(place for place, each in enumerate(columns) if each[2]),
        rows=tuple(zip(*(cells for _, cells, _ in columns), strict=True)),
    )


def _cell(value: object, style: str = "") -> Cell:
    """Of a table: words or a bar."""
    if isinstance(value, StackedBar):
        return Cell(bar=_bar(value))
    text = value if isinstance(value, Text) else Text(str(value))
    if style:
        text = Text(text.plain, style=text.style if _tone(text.style) else style, spans=text.spans)
    return Cell(words=words_of(text))


def _bar(bar: StackedBar) -> Bar:
    return Bar(parts=tuple(bar.parts), scale=bar.scale, width=bar.width, limit=bar.limit, least=bar.least)
