"""The view model of a page: sections of blocks, plain values all the way down, which a renderer puts on a screen or on paper.

Nothing here knows HTML or a terminal. ``plain_page`` is the same as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from meshwright.report.svg import Drawing

Tone = Literal["", "strong", "dim", "good", "bad", "warn", "accent"]
"""What a text is to the reader; how it looks is the renderer's."""
WIDE, NARROW = 860.0, 330.0
"""Pixels of a drawing on a desk and on a phone."""
DIFFERENCE = "Difference"
"""Name of a text whose lines are put in or taken away."""


@dataclass(frozen=True, slots=True)
class Run:
    """Text of one tone."""

    text: str
    tone: Tone = ""
    badge: bool = False
    """A word that sorts what follows: a severity, a verdict."""


Words = tuple[Run, ...]
"""A line, of runs that may look different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A line of text; ``kind``: the head of what follows, an item of a list, small print, or a note that must not be missed."""

    words: Words
    kind: Literal["text", "head", "item", "small", "note"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Figures side by side, as many on a line as there is room for."""

    pieces: tuple[Words, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure of the answer, in large letters: ``step time``, ``12.3 s``, ``11.9-12.8 s in 90 % of runs``."""

    name: str
    value: str
    remark: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """The figures of the answer."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A layout knob by knob, each with its name and its value, and the label that says all of them and can be copied."""

    knobs: tuple[tuple[str, str], ...]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a small bar in a cell: its name, its colour and how much of the bar it takes (0 to 1)."""

    name: str
    colour: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Of a table: words, or a bar of shares."""

    words: Words = ()
    bar: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under headings; ``right``: the columns of figures, ``code``: those of labels and names of a program."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    right: frozenset[int] = frozenset()
    code: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing, and what it says in words.

    ``wide`` and ``narrow`` show the same for a desk and for a phone (``drawn_twice``); one that cannot be made narrow scrolls.
    ``zoom``: it may be magnified.
    """

    wide: Drawing
    narrow: Drawing | None = None
    caption: str = ""
    zoom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Text to be copied whole: a command, a file."""

    text: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Blocks that are seen when they are asked for, and always on paper."""

    title: str
    blocks: tuple[Block, ...]
    open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Blocks side by side where there is room, else one below the other."""

    blocks: tuple[Block, ...]


Block = Paragraph | Pieces | Tiles | Strip | Table | Chart | Code | Folded | Beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: tuple[Block, ...]
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
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


def words(*pieces: str | Run) -> Words:
    """A line of texts and runs.

    >>> words("a ", Run("b", "bad"))
    (Run(text='a ', tone='', badge=False), Run(text='b', tone='bad', badge=False))
    """
    return tuple(Run(each) if isinstance(each, str) else each for each in pieces)


def cell(*pieces: str | Run) -> Cell:
    """A cell of words."""
    return Cell(words=words(*pieces))


def table(
    head: Sequence[str], rows: Sequence[Sequence[str | Cell]], *,
    caption: str = "", right: Sequence[int] = (), code: Sequence[int] = (),
) -> Table:
    """A table of texts and cells; ``right``, ``code``: numbers of columns."""
    return Table(
        head=tuple(head), caption=caption, right=frozenset(right), code=frozenset(code),
        rows=tuple(tuple(each if isinstance(each, Cell) else cell(each) for each in row) for row in rows),
    )


def drawn_twice(draw: Callable[[float], Drawing], *, caption: str = "", zoom: bool = False) -> Chart:
    """A chart whose drawing is made for a width, on a desk and on a phone."""
    return Chart(wide=draw(WIDE), narrow=draw(NARROW), caption=caption, zoom=zoom)


def plain_page(page: Page) -> Mapping[str, Any]:
    """The page as JSON: every value with its kind, drawings as SVG text."""
    plain: Mapping[str, Any] = _plain(page)
    return plain


def _plain(value: object) -> Any:
    if isinstance(value, Drawing):
        return str(value)
    if is_dataclass(value):
        return {"kind": type(value).__name__.lower(), **{each.name: _plain(getattr(value, each.name)) for each in fields(value)}}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
