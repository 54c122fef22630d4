"""Charts by their data: which function draws which, and the names of spellings that data can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report import atlas_lines, atlas_panel
from meshwright.report.blocks import Plot
from meshwright.report.page import diagnosis_picture, drawn, plotted
from meshwright.words import gib, integer, percent, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.report.svg import Drawing

KINDS: dict[str, Callable[..., Drawing]] = {
    "stacked": drawn.stacked, "waterfall": drawn.waterfall, "ranges": drawn.ranges, "changes": drawn.changes,
    "pairs": plotted.pairs, "against": plotted.against, "histogram": plotted.histogram,
    "parts of a run": diagnosis_picture.parts, "course of a run": diagnosis_picture.course,
    "ranks of a run": diagnosis_picture.ranks, "map": atlas_panel.map_drawing, "linearity": atlas_lines.linearity_drawing,
}
"""Kind of a plot -> what draws it for a width."""
ALSO_NARROW = frozenset({"map"})
"""Kinds that are drawn for a phone although they can be magnified on a desk."""
SPELLINGS: dict[str, Callable[[float], str]] = {
    "seconds": seconds, "percent": percent, "integer": integer, "rate": rate, "gib": gib, "whole": "{:.0f}".format,
    "tenths of GiB": "{:.1f} GiB".format,
}
"""Name of a spelling in the data of a plot -> the spelling."""
_SPELLED = ("words", "unit")


def plot(kind: str, *, caption: str = "", widest: float | None = None, zoom: bool = False, **data: Any) -> Plot:
    """A chart by its data; lists in it are kept as tuples, so that it stays as it is."""
    kept = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return Plot(kind=kind, data=kept, caption=caption, widest=widest, zoom=zoom)


def drawing_of(plotted_: Plot, width: float) -> Drawing:
    """The drawing of a plot for a width.

    Errors:  ``KeyError`` for a kind or a spelling that nobody has.
    """
    data = {name: _spelled(value) if name in _SPELLED else value for name, value in plotted_.data.items()}
    return KINDS[plotted_.kind](width=min(width, plotted_.widest or width), **data)


def _spelled(names: Any) -> Any:
    return tuple(SPELLINGS[each] for each in names) if isinstance(names, tuple) else SPELLINGS[names]
