"""The view model of an answer: sections of blocks, plain values all the way down, which a renderer puts on a screen or on paper.

Nothing here knows HTML or a terminal; what a renderer cannot show is left out by it. ``page/plain.py`` is the same as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from meshwright import words as spelt
from meshwright.report.svg import Drawing
from meshwright.value import Value

Tone = Literal["", "strong", "dim", "good", "bad", "warn", "accent"]
"""What a text is to the reader; how it looks is the renderer's."""
WIDE, NARROW = 860.0, 330.0
"""Pixels of a drawing on a desk and on a phone."""
DIFFERENCE = "Difference"
"""Name of a text whose lines are put in or taken away."""
UNITS: Mapping[Callable[..., str], str] = {
    spelt.seconds: "s", spelt.gib: "bytes", spelt.bare_gib: "bytes", spelt.percent: "ratio", spelt.signed: "ratio",
    spelt.chance: "ratio", spelt.narrow_chance: "ratio", spelt.integer: "count", spelt.count: "count", spelt.about: "count",
    spelt.rate: "per_s", spelt.speed: "per_s",
}
"""How a value is spelled -> the unit that it has before."""


class Run(Value, frozen=True):
    """Text of one tone; of a figure its value and unit, too, so that nobody has to read the text."""

    text: str
    tone: Tone = ""
    badge: bool = False
    """A word that sorts what follows: a severity, a verdict."""
    bold: bool = False
    value: float | None = None
    unit: str = ""


Words = tuple[Run, ...]
"""A line, of runs that may look different."""


class Paragraph(Value, frozen=True, kw_only=True):
    """A line of text; ``kind``: the head of what follows, an item of a list, small print, or a note that must not be missed.

    Of a terminal: ``indent`` blanks before it, an empty line ``above``, never broken (``whole``: a path, a command).
    """

    words: Words
    kind: Literal["text", "head", "item", "small", "note"] = "text"
    indent: int = 0
    above: bool = False
    whole: bool = False


class Pieces(Value, frozen=True, kw_only=True):
    """Figures side by side, as many on a line as there is room for."""

    pieces: tuple[Words, ...]
    kind: Literal["text", "small"] = "text"
    indent: int = 2
    above: bool = False


class Tile(Value, frozen=True, kw_only=True):
    """One figure of the answer, in large letters: ``step time``, ``12.3 s``, ``11.9-12.8 s in 90 % of runs``."""

    name: str
    value: str
    remark: str = ""
    tone: Tone = ""


class Tiles(Value, frozen=True, kw_only=True):
    """The figures of the answer."""

    tiles: tuple[Tile, ...]


class Strip(Value, frozen=True, kw_only=True):
    """A layout knob by knob, each with its name and its value, and the label that says all of them and can be copied."""

    knobs: tuple[tuple[str, str], ...]
    label: str


class Part(Value, frozen=True, kw_only=True):
    """A named share of a bar: its letter where there is no colour, the terminal's name of its colour (``style``), its value."""

    name: str
    letter: str
    style: str
    value: float


class Bar(Value, frozen=True, kw_only=True):
    """Parts side by side on a scale, with a mark at a limit; on a terminal ``width`` cells, at least ``least``."""

    parts: tuple[Part, ...]
    scale: float
    width: int
    limit: float | None = None
    least: int = 10


class Cell(Value, frozen=True, kw_only=True):
    """Of a table: words, or a bar; ``label``: words that are a label of a layout, which breaks where labels do.

    ``shade``: in a map its share of the scale (0 to 1), which is its colour.
    ``key``: the letter of a part of a bar, which only a terminal needs.
    """

    words: Words = ()
    bar: Bar | None = None
    label: bool = False
    key: Part | None = None
    shade: float | None = None


class Columns(Value, frozen=True, kw_only=True):
    """Some columns of a table, in their order; ``notes``: whether the table's notes belong to them.

    ``from_width``: a terminal at least so wide shows these whether they fit or not.
    """

    shown: tuple[int, ...]
    notes: bool = False
    from_width: int | None = None


class Table(Value, frozen=True, kw_only=True):
    """Rows under headings; ``right``: the columns of figures, ``code``: those of labels and names of a program.

    ``bold``: rows that matter most. Of a terminal: ``look``, ``indent``, a blank line ``above``, columns never broken (``whole``),
    widths that columns keep (``least``), rows before which a line is drawn (``ruled``). ``choices``: which columns are shown, the
    first that there is room for; ``groups``: columns that stand together where the table has to be several, each with the names of
    the first column again.
    Others show the first choice, and one table.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    right: frozenset[int] = frozenset()
    code: frozenset[int] = frozenset()
    notes: tuple[Words, ...] = ()
    """What words in it mean."""
    look: Literal["ruled", "tight", "close", "plain", "grid", "headed", "map"] = "ruled"
    indent: int = 2
    above: bool = False
    whole: frozenset[int] = frozenset()
    least: tuple[tuple[int, int], ...] = ()
    ruled: frozenset[int] = frozenset()
    bold: frozenset[int] = frozenset()
    choices: tuple[Columns, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()


class Legend(Value, frozen=True, kw_only=True):
    """What the colours or letters of a bar mean; a page says it below every bar by itself."""

    parts: tuple[Part, ...]


class Plot(Value, frozen=True, kw_only=True):
    """A chart by its data: ``kind`` is the function of ``page/plots.py`` that draws it, ``data`` its plain arguments.

    ``widest``: pixels beyond which it does not grow; ``zoom``: it is drawn once, and may be magnified.
    """

    kind: str
    data: Mapping[str, Any]
    caption: str = ""
    widest: float | None = None
    zoom: bool = False


class Chart(Value, frozen=True, kw_only=True):
    """A drawing, and what it says in words.

    ``wide`` and ``narrow`` show the same for a desk and for a phone; one that cannot be made narrow scrolls.
    ``zoom``: it may be magnified.
    """

    wide: Drawing
    narrow: Drawing | None = None
    caption: str = ""
    zoom: bool = False


class Code(Value, frozen=True, kw_only=True):
    """Text to be copied whole: a command, a file."""

    text: str
    name: str = ""


class Folded(Value, frozen=True, kw_only=True):
    """Blocks that are seen when they are asked for, and always on paper."""

    title: str
    blocks: tuple[Block, ...]
    open: bool = False


class Beside(Value, frozen=True, kw_only=True):
    """Blocks side by side where there is room, else one below the other."""

    blocks: tuple[Block, ...]


Block = Paragraph | Pieces | Tiles | Strip | Table | Bar | Legend | Chart | Plot | Code | Folded | Beside


class Section(Value, frozen=True, kw_only=True):
    """Blocks under a heading; ``remark``: what is said beside it, ``mark``: a badge there."""

    title: str
    blocks: tuple[Block, ...]
    remark: str = ""
    mark: str = ""


class View(Value, frozen=True, kw_only=True):
    """An answer: what it comes to in one line, its figures, then section by section.

    ``verdict``: whether it is a yes (good), a no (bad) or neither.
    """

    verb: str
    title: str
    subtitle: str = ""
    verdict: Tone = ""
    first: tuple[Block, ...] = ()
    """What stands before all sections: the answer."""
    sections: tuple[Section, ...] = ()
    told: tuple[Told, ...] = ()
    """The answer for who reads it from top to bottom, as a terminal prints it: words and tables that the sections have as well."""


Told = Section | Block


def figure(value: float, spelling: Callable[..., str], *more: Any, tone: Tone = "", bold: bool = False) -> Run:
    """A value as it is spelled, with its unit; ``more``: further arguments of the spelling.

    >>> figure(0.113, spelt.percent)
    Run(text='11.3 %', tone='', badge=False, bold=False, value=0.113, unit='ratio')
    """
    return Run(spelling(value, *more), tone, bold=bold, value=value, unit=UNITS[spelling])


def words(*pieces: str | Run) -> Words:
    """A line of texts and runs.

    >>> [each.text for each in words("a ", Run("b", "bad"))]
    ['a ', 'b']
    """
    return tuple(Run(each) if isinstance(each, str) else each for each in pieces)


def cell(*pieces: str | Run) -> Cell:
    """A cell of words."""
    return Cell(words=words(*pieces))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str | Run | Cell | Bar]], *,
    right: Iterable[int] = (), code: Iterable[int] = (), whole: Iterable[int] = (), bold: Iterable[int] = (), **more: Any,
) -> Table:
    """A table of texts, figures, bars and cells; ``right``, ``code``, ``whole``: numbers of columns."""
    return Table(
        head=tuple(head), right=frozenset(right), code=frozenset(code), whole=frozenset(whole), bold=frozenset(bold),
        rows=tuple(tuple(map(_cell, row)) for row in rows), **more,
    )


def _cell(each: str | Run | Cell | Bar) -> Cell:
    if isinstance(each, Bar):
        return Cell(bar=each)
    return each if isinstance(each, Cell) else cell(each) if each else Cell()


def line(*pieces: str | Run, **more: Any) -> Paragraph:
    """A line of texts and runs; ``more``: its kind and its place."""
    return Paragraph(words=words(*pieces), **more)


def pieces(*given: str | Run | Words, **more: Any) -> Pieces:
    """Pieces side by side."""
    return Pieces(pieces=tuple(each if isinstance(each, tuple) else words(each) for each in given), **more)


def parted(told: Iterable[Told]) -> tuple[tuple[Block, ...], tuple[Section, ...]]:
    """What stands before the first section, and the sections, each with the blocks that follow it."""
    first: list[Block] = []
    sections: list[Section] = []
    for each in told:
        if isinstance(each, Section):
            sections.append(each)
        elif sections:
            sections[-1] = replace(sections[-1], blocks=(*sections[-1].blocks, each))
        else:
            first.append(each)
    return tuple(first), tuple(sections)


def flat(told: Iterable[Told], *, headed: bool = False) -> tuple[Block, ...]:
    """The blocks of all sections one after the other; ``headed``: their titles as strong lines."""
    found: list[Block] = []
    for each in told:
        if isinstance(each, Section):
            found += [line(Run(each.title, "strong"), f"  {each.remark}" if each.remark else "")] if headed else []
            found += each.blocks
        else:
            found.append(each)
    return tuple(found)
