"""A drawing as SVG text: the same bytes for the same figures, small enough to keep beside a document, no library needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.documents.quoting import xml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Point = tuple[float, float]
INK, MUTED, GRID, PAPER = "#1f2328", "#656d76", "#e4e7eb", "#ffffff"
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#2f6fb3", "#d9772b", "#3f8f5b", "#c23b3b", "#7b5ea7", "#8c959f"
"""Colours that stay apart for colour-blind readers and on paper."""
FONT = "-apple-system,BlinkMacSystemFont,Segoe UI,Helvetica,Arial,Liberation Sans,DejaVu Sans Condensed,sans-serif"
"""The narrowest that each system has: what Linux has for any other is a sixth wider."""
CHARACTER = 0.6
"""Mean width of a bold character over the size of its font, for words that must keep clear of others."""


def short(value: float) -> str:
    """A coordinate with one decimal at most.

    >>> short(12.04), short(12.0), short(-0.04)
    ('12', '12', '0')
    """
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


@dataclass(slots=True, kw_only=True)
class Drawing:
    """Shapes in the order in which they are put down; lengths are pixels, y grows downwards."""

    width: float
    height: float
    title: str
    """What a reader who does not see the picture is told."""
    description: str = ""
    """The same at more length."""
    style: str = ""
    """Rules of a style sheet."""
    parts: list[str] = field(default_factory=list)
    values: dict[int, str] = field(default_factory=dict)
    """Number of a part -> what it stands for, which a page says where it is pointed at; a line each of many marks in one path."""

    def stands_for(self, value: str) -> None:
        """What the last part stands for."""
        if value:
            self.values[len(self.parts) - 1] = value

    def rectangle(
        self, x: float, y: float, width: float, height: float, fill: str, *, stroke: str = "", opacity: float = 1.0,
        value: str = "",
    ) -> None:
        """A filled rectangle; ``value``: what it stands for."""
        edge = f' stroke="{stroke}"' if stroke else ""
        box = f'x="{short(x)}" y="{short(y)}" width="{short(width)}" height="{short(height)}"'
        self.parts.append(f'<rect {box} fill="{fill}"{edge}{_opacity(opacity)}/>')
        self.stands_for(" ".join(value.split()))

    def line(self, points: Iterable[Point], colour: str, *, width: float = 1.0, dash: str = "", opacity: float = 1.0) -> None:
        """A line through points."""
        steps = "L".join(f"{short(x)} {short(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="M{steps}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashes}{_opacity(opacity)}/>')

    def segments(self, ends: Iterable[tuple[Point, Point]], colour: str, *, width: float = 1.0) -> None:
        """Many separate lines of one look."""
        steps = "".join(f"M{short(a)} {short(b)}L{short(c)} {short(d)}" for (a, b), (c, d) in ends)
        if steps:
            self.parts.append(f'<path d="{steps}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def area(self, points: Sequence[Point], fill: str, *, opacity: float = 1.0) -> None:
        """A filled polygon."""
        steps = "L".join(f"{short(x)} {short(y)}" for x, y in points)
        self.parts.append(f'<path d="M{steps}Z" fill="{fill}"{_opacity(opacity)}/>')

    def dots(
        self, points: Iterable[Point], colour: str, *, size: float = 4.0, opacity: float = 1.0, values: Sequence[str] = (),
    ) -> None:
        """Many round dots of one look as one path; a dot that another hides completely is left out. ``values``: of each point."""
        drawn = [(short(x), short(y)) for x, y in points]
        places = dict.fromkeys(drawn)
        said = dict(zip(reversed(drawn), reversed([" ".join(each.split()) for each in values]), strict=False))
        steps = "".join(f"M{x} {y}h0" for x, y in places)
        if steps:
            look = f'stroke="{colour}" stroke-width="{size:g}" stroke-linecap="round"'
            self.parts.append(f'<path d="{steps}" fill="none" {look}{_opacity(opacity)}/>')
            self.stands_for("\n".join(said.get(place, "") for place in places) if said else "")

    def circle(
        self, x: float, y: float, radius: float, *, fill: str, stroke: str = "", width: float = 1.5, value: str = "",
    ) -> None:
        """One circle; ``value``: what it stands for."""
        edge = f' stroke="{stroke}" stroke-width="{width:g}"' if stroke else ""
        self.parts.append(f'<circle cx="{short(x)}" cy="{short(y)}" r="{short(radius)}" fill="{fill}"{edge}/>')
        self.stands_for(" ".join(value.split()))

    def text(
        self, x: float, y: float, words: str, *, size: float = 11.0, colour: str = INK, anchor: str = "start", bold: bool = False,
        turned: bool = False,
    ) -> None:
        """Words whose baseline begins, is centred or ends at a point."""
        look = f' text-anchor="{anchor}"' if anchor != "start" else ""
        look += ' font-weight="600"' if bold else ""
        look += f' transform="rotate(-90 {short(x)} {short(y)})"' if turned else ""
        look += f' fill="{colour}"' if colour != INK else ""
        self.parts.append(f'<text x="{short(x)}" y="{short(y)}" font-size="{size:g}"{look}>{xml(words)}</text>')

    def __str__(self) -> str:
        """The whole file."""
        paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        words = [f"<title>{xml(self.title)}</title>"]
        words += [f"<desc>{xml(self.description)}</desc>"] if self.description else []
        words += [f"<style>{self.style}</style>"] if self.style else []
        head = self._head('xmlns="http://www.w3.org/2000/svg" ', 'role="img"')
        return "\n".join([head, *words, paper, *self.parts, "</svg>"]) + "\n"

    def inline(self) -> str:
        """The drawing on a page, which has its ground, its fonts, the colours of the night, and says what is pointed at."""
        said = xml(". ".join(filter(None, (self.title, self.description))))
        parts = [self._with_value(place, part) for place, part in enumerate(self.parts)]
        return "\n".join([self._head("", f'role="img" aria-label="{said}"'), *parts, "</svg>"])

    def _with_value(self, place: int, part: str) -> str:
        value = self.values.get(place)
        if value is None:
            return part
        shape, rest = part.split(" ", 1)
        return f'{shape} data-v="{"&#10;".join(map(xml, value.split(chr(10))))}" {rest}'

    def _head(self, first: str, last: str) -> str:
        return (
            f'<svg {first}viewBox="0 0 {short(self.width)} {short(self.height)}" '
            f'width="{short(self.width)}" height="{short(self.height)}" font-family="{FONT}" fill="{INK}" {last}>'
        )


def _opacity(value: float) -> str:
    return "" if value >= 1.0 else f' opacity="{value:g}"'
