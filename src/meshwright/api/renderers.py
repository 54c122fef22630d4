"""Pictures of answers: who draws them is found by name, so that the door knows no drawing.

A renderer takes what its name says and returns the text of a file. The built-in ones stand in ``report``; others are entry points
of the group ``meshwright.renderers``.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = "meshwright.renderers"
_BUILT_IN = {
    "answer.frame": "meshwright.report.pages:frame",
    "answer.html": "meshwright.report.pages:page_html",
    "answer.view": "meshwright.report.pages:page_json",
    "atlas.svg": "meshwright.report.atlas_picture:picture",
    "packing.svg": "meshwright.report.pack_picture:picture",
    "picture.png": "meshwright.report.raster:png",
    "pipeline.svg": "meshwright.report.pipeline_picture:picture_of",
    "pipeline.trace": "meshwright.report.perfetto:trace_of",
    "rehearsal.svg": "meshwright.report.rehearse_picture:picture",
}


def render(name: str, *values: Any) -> str:
    """The text of a picture.

    Errors:  ``KeyError`` for a name that nobody has.
    """
    if name in _BUILT_IN:
        return _called(EntryPoint(name, _BUILT_IN[name], GROUP).load(), values)
    return _called(entry_points(group=GROUP)[name].load(), values)


def render_bytes(name: str, *values: Any) -> bytes:
    """The content of a file that is no text."""
    draw: Callable[..., bytes] = EntryPoint(name, _BUILT_IN[name], GROUP).load()
    return draw(*values)


def _called(draw: Callable[..., str], values: tuple[Any, ...]) -> str:
    return draw(*values)
