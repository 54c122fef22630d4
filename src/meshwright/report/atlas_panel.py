"""A map of anything: names down, sizes across, a patch of colour with words where they meet; on a phone the same as a list by name.

It knows no atlas: what patches say and which colour they have is told (``report/atlas_picture.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING

from meshwright.report.atlas_scale import MUTED_INK, diverging, ink_on, ramp
from meshwright.report.svg import CHARACTER, GRID, INK, MUTED, PAPER, Drawing
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

CELL, TALL, GAP = (116.0, 96.0, 84.0), 64.0, 2.0
"""Widths of a patch where there are few, more and many columns; its least height; what is left between patches."""
LEFT, HEAD, RIGHT = 16.0, 44.0, 24.0
MOST_COLUMNS, FEW, SOME = 16, 8, 12
"""Columns of one part of a map; more stand in a part below."""
NAME, SMALL, BAR = 12.0, 10.0, 170.0
NARROWEST = 560.0
"""Of a map; what has to be narrower is a list."""
PLAIN = 0.58
"""Width of a character over the size of its font: of labels, which are capitals and digits."""
SHORT = 12.0
"""Least pixels of a line in a patch."""
COUNT, FIRST, SECOND, LINE, ROW = 46.0, 66.0, 52.0, 13.0, 34.0
"""Of a list: pixels of sizes, of a patch's first words and of its second, of a line, and of the least row."""

Said = tuple[str, float, bool]
"""Words, the size of their font, and whether they are bold."""
Scale = tuple[str, tuple[tuple[float, str], ...]]
"""Which of ``SCALES`` it is, and shares of it with their words below."""
SCALES: Mapping[str, Callable[[float], str]] = {"shares": ramp, "ratios": lambda share: diverging(4.0 ** (share - 0.5))}
"""Share of a scale -> colour."""


class Patch(Value, frozen=True, kw_only=True):
    """What one place of a map looks like."""

    colour: str
    lines: tuple[Said, ...]
    faint: bool = False
    """Nothing stands there: words in grey."""
    dashed: bool = False
    """Not refined yet."""
    value: str = ""
    """All of it in words."""


class Panel(Value, frozen=True, kw_only=True):
    """A map: names down, sizes across, a patch where they meet."""

    title: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    patches: Mapping[tuple[int, int], Patch]
    """(Row, column) -> what stands there."""
    scale: Scale
    noun: str

    @property
    def cell(self) -> float:
        """Width of a cell."""
        count = min(len(self.columns), MOST_COLUMNS)
        return CELL[0] if count <= FEW else CELL[1] if count <= SOME else CELL[2]

    @property
    def tall(self) -> float:
        """Height of a patch: all of them hold their words."""
        lines = max((len(_lines(each, self.cell)) for each in self.patches.values()), default=0)
        return max(TALL, SHORT * lines + 8.0)

    def width(self, left: float) -> float:
        """Of a drawing whose first cell begins at a place."""
        return left + min(MOST_COLUMNS, len(self.columns)) * (self.cell + GAP) + RIGHT

    @property
    def pieces(self) -> list[range]:
        """Columns of each part, where they do not fit side by side."""
        return [range(at, min(at + MOST_COLUMNS, len(self.columns))) for at in range(0, len(self.columns), MOST_COLUMNS)]

    @property
    def height(self) -> float:
        """Of all parts with their headings."""
        return 22.0 + len(self.pieces) * (HEAD - 22.0 + len(self.names) * (self.tall + GAP)) + 12.0 * (len(self.pieces) - 1)

    def put(self, draw: Drawing, left: float, top: float) -> None:
        """Draw it with its left upper cell at a place."""
        draw.text(LEFT, top + 12, self.title, size=13.0, bold=True)
        _scale(draw, draw.width - RIGHT - BAR, top, self.scale)
        top, tall = top + 22.0, self.tall
        for piece in self.pieces:
            draw.text(left - 8, top + 15, self.noun, size=SMALL, colour=MUTED, anchor="end")
            for place, column in enumerate(piece):
                middle = left + place * (self.cell + GAP) + self.cell / 2
                draw.text(middle, top + 15, self.columns[column], size=NAME, bold=True, anchor="middle")
            top += HEAD - 22.0
            for row, name in enumerate(self.names):
                y = top + row * (tall + GAP)
                _name(draw, left, y, tall, name)
                for place, column in enumerate(piece):
                    _patch(draw, left + place * (self.cell + GAP), y, self.cell, tall, self.patches.get((row, column)))
            top += len(self.names) * (tall + GAP) + 12.0


def _name(draw: Drawing, left: float, y: float, tall: float, name: str) -> None:
    """The name of a row, on lines that are short enough."""
    first, *more = name.split(", ")
    lines = [(line, NAME, True) for line in wrapped(first, left - LEFT - 8, NAME * CHARACTER, hyphens=True)]
    lines += [(line, SMALL, False) for part in more for line in wrapped(part, left - LEFT - 8, SMALL * PLAIN)]
    lines = lines[: int(tall // LINE)]
    for place, (words, size, bold) in enumerate(lines):
        middle = y + tall / 2 + 4 + LINE * (place - (len(lines) - 1) / 2)
        draw.text(left - 8, middle, words, size=size, bold=bold, colour=INK if bold else MUTED, anchor="end")


def _patch(draw: Drawing, x: float, y: float, width: float, tall: float, patch: Patch | None) -> None:
    if patch is None:
        draw.rectangle(x, y, width, tall, PAPER, stroke=GRID)
        draw.text(x + width / 2, y + tall / 2 + 4, "\u2013", size=SMALL + 2, colour=MUTED, anchor="middle")
        return
    draw.rectangle(x, y, width, tall, patch.colour, value=patch.value)
    ink = MUTED_INK if patch.faint else ink_on(patch.colour)
    lines = _lines(patch, width)
    step = min(14.0, (tall - 6.0) / len(lines))
    top = y + tall / 2 + 4 - step * (len(lines) - 1) / 2
    for place, (words, size, bold) in enumerate(lines):
        draw.text(x + width / 2, top + place * step, words, size=size, colour=ink, bold=bold, anchor="middle")
    if patch.dashed:
        _dashed(draw, x, y, width, tall, ink)


def _lines(patch: Patch, width: float) -> list[Said]:
    """What a patch says, on lines of its width."""
    return [
        (line, size, bold) for words, size, bold in patch.lines
        for line in wrapped(words, width - 6, size * (CHARACTER if bold else PLAIN))
    ]


def _dashed(draw: Drawing, x: float, y: float, width: float, tall: float, ink: str) -> None:
    """A dashed frame just inside a patch."""
    left, right, top, bottom = x + 1.5, x + width - 1.5, y + 1.5, y + tall - 1.5
    draw.line([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], ink, dash="3 3")


def _scale(draw: Drawing, left: float, top: float, scale: Scale) -> None:
    """A bar of colours, its ends and middle in words."""
    colour, words = SCALES[scale[0]], scale[1]
    steps = 34
    for step in range(steps):
        draw.rectangle(left + step * BAR / steps, top + 2, BAR / steps + 0.4, 9, colour((step + 0.5) / steps))
    for share, word in words:
        anchor = "start" if share <= 0 else "end" if share >= 1 else "middle"
        draw.text(left + share * BAR, top + 21, word, size=9.5, colour=MUTED, anchor=anchor)


def left_of(maps: Sequence[Panel]) -> float:
    """Where cells begin: behind the longest name, within reason."""
    longest = max((len(part) for each in maps for name in each.names for part in name.split(", ")), default=8)
    return LEFT + 16 + min(190.0, max(90.0, longest * NAME * CHARACTER))


def fitting(
    draw: Drawing, x: float, y: float, words: str, size: float, width: float, *, colour: str = INK, bold: bool = False
) -> None:
    """Words in a font small enough for their room."""
    fitting = min(size, width / (max(len(words), 1) * (CHARACTER if bold else PLAIN)))
    draw.text(x, y, words, size=round(fitting, 1), colour=colour, bold=bold)




def map_drawing(panel: Panel, width: float, *, title: str, description: str) -> Drawing:
    """A map as wide as it has to be, or, for a narrow screen, as a list."""
    if width < NARROWEST:
        return listed(panel, width, title=title, description=description)
    left = left_of([panel])
    draw = Drawing(width=max(panel.width(left), NARROWEST), height=panel.height + 12.0, title=title, description=description)
    panel.put(draw, left, 8.0)
    return draw


def listed(found: Panel, width: float, *, title: str, description: str) -> Drawing:
    """The map for a narrow screen: name by name a list of its sizes, each with its patch, whose words stand side by side.

    Words keep their size and take as many lines as they need.
    """
    draw = Drawing(width=width, height=0.0, title=title, description=description)
    top = 4.0
    for line in wrapped(found.title, width - 8, 13.0 * CHARACTER):
        top += 16.0
        draw.text(4, top, line, size=13.0, bold=True)
    _scale(draw, 4.0, top + 6, found.scale)
    top += 34.0
    for row, name in enumerate(found.names):
        told = [(column, patch) for column in range(len(found.columns)) if (patch := found.patches.get((row, column))) is not None]
        if not told:
            continue
        top += 8.0
        for line in wrapped(name, width - 8, 13.0 * CHARACTER, hyphens=True):
            top += 16.0
            draw.text(4, top, line, size=13.0, bold=True)
        top += 6.0
        for column, patch in told:
            top += _listed_patch(draw, top, found.columns[column], found.noun, patch) + GAP
    draw.height = top + 4
    return draw


def _listed_patch(draw: Drawing, top: float, size: str, noun: str, patch: Patch) -> float:
    """One size with its patch; how tall it is."""
    left = COUNT + 8.0
    first, *rest = patch.lines
    second = rest.pop(0) if len(rest) > 2 else None
    begin = left + (FIRST if rest else 0.0) + (SECOND if second else 0.0) + 8.0
    lines = [line for words, _, _ in rest for line in wrapped(words, draw.width - begin - 6, SMALL * PLAIN)]
    tall = max(ROW, 8.0 + LINE * len(lines))
    draw.text(COUNT, top + tall / 2 - 1, size, size=NAME, bold=True, anchor="end")
    draw.text(COUNT, top + tall / 2 + 11, noun if size != "1" else noun.removesuffix("s"), size=SMALL, colour=MUTED, anchor="end")
    draw.rectangle(left, top, draw.width - left - 2, tall, patch.colour, value=patch.value)
    ink = MUTED_INK if patch.faint else ink_on(patch.colour)
    middle = top + tall / 2 + 4
    words, font, bold = first
    draw.text(left + 8, middle, words, size=font, colour=ink, bold=bold)
    if second is not None:
        draw.text(begin - SECOND, middle, second[0], size=SMALL, colour=ink)
    for place, line in enumerate(lines):
        draw.text(begin, middle + LINE * (place - (len(lines) - 1) / 2), line, size=SMALL, colour=ink)
    if patch.dashed:
        _dashed(draw, left, top, draw.width - left - 2, tall, ink)
    return tall


def wrapped(words: str, width: float, character: float, *, hyphens: bool = False) -> list[str]:
    """Words on lines of a width; ``hyphens``: they may end behind one."""
    return wrap(words, max(1, int(width / character)), break_on_hyphens=hyphens) or [""]
