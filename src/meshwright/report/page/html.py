"""A page as one HTML file: styles, script and drawings in it, nothing fetched, nothing of anybody's text run.

Every text passes ``quoting.xml``; beside it a policy in the head lets the browser run the script of this package alone, by its
hash, and load nothing at all. Without the script everything is there to be read: it only switches colours, magnifies and copies.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.documents.quoting import xml
from meshwright.report.blocks import (
    DIFFERENCE,
    NARROW,
    WIDE,
    Bar,
    Beside,
    Cell,
    Chart,
    Code,
    Folded,
    Legend,
    Paragraph,
    Pieces,
    Plot,
    Section,
    Strip,
    Table,
    Tiles,
    Words,
    table,
)
from meshwright.report.page.plots import ALSO_NARROW, drawing_of
from meshwright.report.page.theme import OF_STYLE, colours
from meshwright.report.svg import BLUE
from meshwright.version import __version__
from meshwright.words import BEFORE_UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.report.blocks import Block, Part, View

HERE = Path(__file__).parent
MANY_CHARACTERS, LONG_WORD = 40, 24
"""From which a cell of a table may break within its words, where there is no room."""
PHONE_CHARACTERS, GAP_CHARACTERS = 46, 2
"""Characters of a row that a phone holds, and how many the gap between two columns takes."""
LONG_VALUE = 12
"""Characters of a knob's value from which it is written smaller."""
PLAIN = ("note", "small")
"""Kinds of paragraphs that look as a whole, whatever their runs are."""
FEWEST_CARDS = 3
"""Columns from which a row that a phone does not hold becomes a card of its own there."""
NOWHERE = "base-uri 'none'; form-action 'none'"


def html(page: View) -> str:
    """The file of a page.

    Units:  text -> text; the same bytes for the same page.
    """
    return Writing().page(page)


class Writing:
    """One file being written: what it numbers."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def page(self, page: View) -> str:
        """The whole file."""
        style, script = _style(), _script()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_hash(script)}'; {NOWHERE}"
        tone = f' class="{page.verdict}"' if page.verdict else ""
        return "".join((
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width,initial-scale=1">\n',
            f'<meta name="generator" content="Meshwright {__version__}">\n<meta name="referrer" content="no-referrer">\n',
            f"<title>{xml(f'{page.title} - Meshwright {page.verb}'.strip())}</title>\n<style>{style}</style>\n</head>\n<body>\n",
            '<a class="skip" href="#answer">To the answer</a>\n<header class="top"><div class="wrap">',
            f'<div class="brand">Meshwright <span>{xml(page.verb)}</span></div>',
            '<button type="button" id="theme" aria-label="Switch between light and dark colours">Dark</button></div></header>\n',
            f'<main class="wrap" id="answer" tabindex="-1">\n<h1{tone}>{_text(page.title)}</h1>\n',
            f'<p class="subtitle">{xml(page.subtitle)}</p>\n' if page.subtitle else "",
            self._blocks(page.first),
            self._contents(page.sections),
            *(self._section(section, place) for place, section in enumerate(page.sections, start=1)),
            f'</main>\n<footer><div class="wrap">Written by Meshwright {__version__}. This file fetches nothing.</div></footer>\n',
            f"<script>{script}</script>\n</body>\n</html>\n",
        ))

    def _contents(self, sections: Sequence[Section]) -> str:
        """Links to the sections, where there are several."""
        if len(sections) < 3:
            return ""
        links = "".join(f'<li><a href="#s{place}">{xml(each.title)}</a></li>' for place, each in enumerate(sections, start=1))
        return f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'

    def _section(self, section: Section, place: int) -> str:
        said = " ".join(filter(None, (section.remark, section.mark)))
        remark = f'<p class="remark">{xml(said)}</p>\n' if said else ""
        return (
            f'<section id="s{place}" aria-labelledby="h{place}">\n<h2 id="h{place}">{xml(section.title)}</h2>\n{remark}'
            f"{self._blocks(section.blocks)}</section>\n"
        )

    def _blocks(self, blocks: Sequence[Block]) -> str:
        """Blocks one after the other; neighbouring items are one list."""
        written: list[str] = []
        items: list[str] = []
        for block in blocks:
            if isinstance(block, Paragraph) and block.kind == "item":
                items.append(f"<li>{_words(block.words)}</li>\n")
                continue
            if items:
                written.append(f"<ul>\n{''.join(items)}</ul>\n")
                items = []
            written.append(self._block(block))
        if items:
            written.append(f"<ul>\n{''.join(items)}</ul>\n")
        return "".join(written)

    def _block(self, block: Block) -> str:
        match block:
            case Paragraph(words=said, kind=kind):
                return f'<p class="{kind}">{_plain(said) if kind in PLAIN else _words(said)}</p>\n'
            case Pieces(pieces=pieces):
                spans = "".join(f'<span class="piece">{_words(each)}</span>\n' for each in pieces)
                return f'<div class="pieces">{spans}</div>\n'
            case Tiles():
                return _tiles(block)
            case Strip():
                return self._strip(block)
            case Beside(blocks=blocks):
                return f'<div class="beside">{"".join(f"<div>{self._block(each)}</div>" for each in blocks)}</div>\n'
            case Table():
                return self._table(block)
            case Bar():
                return self._table(table([""], [[block]]))
            case Legend():
                return ""
            case Plot(caption=caption, zoom=zoom):
                wide = drawing_of(block, WIDE)
                narrow = None if zoom and block.kind not in ALSO_NARROW else drawing_of(block, NARROW)
                return self._chart(Chart(wide=wide, narrow=narrow, caption=caption, zoom=zoom))
            case Chart():
                return self._chart(block)
            case Code(text=text, name=name):
                return self._code(text, name)
            case Folded(title=title, blocks=blocks, open=opened):
                mark = " open" if opened else ""
                return f"<details{mark}><summary>{xml(title)}</summary>\n{self._blocks(blocks)}</details>\n"

    def _table(self, table: Table) -> str:
        """A table that scrolls in a place of its own where it is too wide; what its words mean, and a legend of its bars, below."""
        table = _with_its_columns(table)
        name = table.caption or ", ".join(filter(None, table.head)) or "figures"
        caption = f"<caption>{xml(table.caption)}</caption>" if table.caption else ""
        head = "".join(
            f'<th scope="col"{_class(table, place)}>{_text(each)}</th>' if each else "<td></td>"
            for place, each in enumerate(table.head)
        )
        cards = _as_cards(table)
        roles = (' role="row"', ' role="cell"') if cards else ("", "")
        rows = "".join(
            f"<tr{roles[0]}>{''.join(_td(table, place, each, roles[1]) for place, each in enumerate(row))}</tr>\n"
            for row in table.rows
        )
        seen = f"<thead><tr{roles[0]}>{head}</tr></thead>\n" if any(table.head) else ""
        shares = dict.fromkeys(
            (each.name, _colour(each)) for row in table.rows for one in row if one.bar for each in one.bar.parts if each.value > 0
        )
        notes = "".join(f'<p class="small">{_plain(each)}</p>\n' for each in table.notes)
        opened = '<table class="cards" role="table">' if cards else "<table>"
        return (
            f'<div class="scroll" role="region" tabindex="0" aria-label="{xml(f"Table: {name}")}">{opened}{caption}{seen}'
            f"<tbody>\n{rows}</tbody></table></div>\n{_legend(list(shares) if len(shares) > 1 else ())}{notes}"
        )

    def _strip(self, strip: Strip) -> str:
        """The knobs in boxes; below them the label in one line, to be copied."""
        number = f"c{next(self._numbers)}"
        boxes = "".join(
            f'<li{_long(value)}><span class="name">{xml(name)}</span><span class="value">{xml(value)}</span></li>\n'
            for name, value in strip.knobs
        )
        return (
            f'<ul class="strip" aria-label="Layout">\n{boxes}</ul>\n<p class="label"><code id="{number}">{xml(strip.label)}</code>'
            f'<button type="button" data-copy="{number}" aria-label="Copy the label of the layout">Copy</button></p>\n'
        )

    def _chart(self, chart: Chart) -> str:
        """A drawing, or one for a desk and one for a phone of which one is seen; a large one may be magnified."""
        caption = f"<figcaption>{xml(chart.caption)}</figcaption>\n" if chart.caption else ""
        if chart.zoom:
            zoomed = self._zoomed(chart)
            if chart.narrow is not None:
                zoomed = f'<div class="desk">{zoomed}</div>\n<div class="chart both narrow">{chart.narrow.inline()}</div>\n'
            return f"<figure>{zoomed}{caption}</figure>\n"
        if chart.narrow is None:
            region = f'role="region" tabindex="0" aria-label="{xml(f"Chart: {chart.wide.title}")}"'
            region += f' style="--natural:{chart.wide.width:.0f}px"'
            return f'<figure><div class="chart only wide" {region}>{chart.wide.inline()}</div>\n{caption}</figure>\n'
        return (
            f'<figure><div class="chart both wide">{chart.wide.inline()}</div>\n'
            f'<div class="chart both narrow">{chart.narrow.inline()}</div>\n{caption}</figure>\n'
        )

    def _zoomed(self, chart: Chart) -> str:
        name = f"z{next(self._numbers)}"
        buttons = "".join(
            f'<button type="button" value="{value}" aria-label="{label}">{sign}</button>'
            for value, label, sign in (("2", "Magnify", "+"), ("0.5", "Make smaller", "\u2212"), ("0", "Whole width", "Whole"))
        )
        return (
            f'<div class="zoom" data-of="{name}">{buttons}<output aria-live="polite"></output></div>\n'
            f'<div class="zoomable" id="{name}" style="--natural:{chart.wide.width:.0f}px" role="region" tabindex="0" '
            f'aria-label="{xml(f"Chart: {chart.wide.title}; keys plus and minus magnify")}">{chart.wide.inline()}</div>\n'
        )

    def _code(self, text: str, name: str) -> str:
        number = f"c{next(self._numbers)}"
        label, region = xml(f"Copy {name or 'the text'}"), xml(name or "Text")
        lines = _changed_lines(text) if name == DIFFERENCE else _lines(text)
        return (
            f'<div class="code-block"><div class="head"><span class="file">{xml(name)}</span>'
            f'<button type="button" data-copy="{number}" aria-label="{label}">Copy</button></div>\n'
            f'<pre tabindex="0" role="region" aria-label="{region}"><code id="{number}">{lines}</code></pre></div>\n'
        )


def _words(said: Words) -> str:
    alike = groupby(said, key=lambda each: f"{each.tone}{' pill' * each.badge}".strip())
    return "".join(
        f'<span class="{kind}">{_plain(tuple(runs))}</span>' if kind else _plain(tuple(runs)) for kind, runs in alike
    )


def _plain(said: Words) -> str:
    return "".join(_text(each.text) for each in said)


def _text(text: str) -> str:
    """Text whose lines stay lines, and whose figures keep their units on their line."""
    return "<br>".join(BEFORE_UNIT.sub("&nbsp;", xml(each)) for each in text.split("\n"))


def _tiles(block: Tiles) -> str:
    written = []
    for each in block.tiles:
        remark = f'<span class="remark">{_text(each.remark)}</span>' if each.remark else ""
        value = f'<span class="value {each.tone}">{_text(each.value)}</span>'
        written.append(f'<li><span class="name">{xml(each.name)}</span>{value}{remark}</li>\n')
    return f'<ul class="tiles">\n{"".join(written)}</ul>\n'


def _td(table: Table, place: int, one: Cell, role: str = "") -> str:
    head = " ".join(table.head[place].split())
    named = f' data-h="{xml(head)}"' if role and head else ""
    if one.bar:
        shares = [(each, each.value / one.bar.scale) for each in one.bar.parts if one.bar.scale and each.value > 0]
        said = ", ".join(f"{each.name} {100 * ratio:.0f} %" for each, ratio in shares if ratio >= 0.005)
        bar = "".join(f'<i style="--colour:{_colour(each)};width:{100 * ratio:.2f}%"></i>' for each, ratio in shares)
        return f'<td{role}{named}><div class="bar" role="img" aria-label="{xml(said)}" title="{xml(said)}">{bar}</div></td>'
    said = "".join(each.text for each in one.words)
    kind = "words" if len(said) > MANY_CHARACTERS or max(map(len, said.split()), default=0) > LONG_WORD else ""
    empty = "none" if role and said in ("", "-") else ""
    return f"<td{role}{named}{_class(table, place, ' '.join(filter(None, (kind, empty))))}>{_words(one.words)}</td>"


def _as_cards(table: Table) -> bool:
    """Whether its rows are too wide for a phone, where each is a card then: every figure beside the name of its column."""
    if len(table.head) < FEWEST_CARDS or not any(table.head):
        return False
    columns = zip(*table.rows, strict=True) if table.rows else ()
    wide = sum(max(len(head), *(_length(one) for one in cells)) + GAP_CHARACTERS
               for head, cells in zip(table.head, columns, strict=False))
    return wide > PHONE_CHARACTERS


def _length(one: Cell) -> int:
    return 16 if one.bar else sum(len(each.text) for each in one.words)


def _long(value: str) -> str:
    return ' class="long"' if len(value) > LONG_VALUE else ""


def _changed_lines(text: str) -> str:
    """Lines of a difference, those put in and those taken away by their colours."""
    kinds = {"+": "plus", "-": "minus", "@": "dim"}
    written = []
    for line in text.split("\n"):
        kind = "dim" if line.startswith(("+++", "---")) else kinds.get(line[:1], "")
        written.append(f'<span class="{kind}">{_lines(line)}</span>' if kind else _lines(line))
    return "\n".join(written)


def _strong(one: Cell) -> Cell:
    return replace(one, words=tuple(replace(each, tone=each.tone or "strong") for each in one.words))


def _colour(part: Part) -> str:
    return OF_STYLE.get(part.style, BLUE)


def _with_its_columns(given: Table) -> Table:
    """The table with the columns that its first choice shows, less those that have neither name nor word."""
    shown = given.choices[0].shown if given.choices else range(len(given.head))
    columns = [(place, [row[place] for row in given.rows]) for place in shown]
    kept = [
        place for place, cells in columns
        if not any(one.key for one in cells) and (given.head[place] or any(one.words or one.bar for one in cells))
    ]
    return replace(
        given, head=tuple(given.head[place] for place in kept),
        rows=tuple(
            tuple(_strong(row[place]) if number in given.bold else row[place] for place in kept)
            for number, row in enumerate(given.rows)
        ),
        right=frozenset(new for new, place in enumerate(kept) if place in given.right),
        code=frozenset(new for new, place in enumerate(kept) if place in given.code),
    )


def _legend(shares: Sequence[tuple[str, str]]) -> str:
    if not shares:
        return ""
    items = "".join(f'<li><i style="--colour:{colour}"></i>{xml(name)}</li>' for name, colour in shares)
    return f'<ul class="legend">{items}</ul>\n'


def _class(table: Table, place: int, kind: str = "") -> str:
    names = " ".join(filter(None, (kind, "right" if place in table.right else "", "code" if place in table.code else "")))
    return f' class="{names}"' if names else ""


def _lines(text: str) -> str:
    """Lines of a file; what hides in them is seen."""
    return "\n".join("\t".join(map(xml, line.split("\t"))) for line in text.split("\n"))


@lru_cache(maxsize=1)
def _style() -> str:
    rules = (HERE / "page.css").read_text(encoding="utf-8")
    return colours() + rules.replace("\n", "")


@lru_cache(maxsize=1)
def _script() -> str:
    return (HERE / "page.js").read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()
