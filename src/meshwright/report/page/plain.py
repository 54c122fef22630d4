"""A view as JSON and back: every value with what it is (``is``), without what is as it is unless said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from math import isfinite
from typing import Any

from meshwright.report import atlas_panel, blocks, svg
from meshwright.report.page import drawn, plotted

_KINDS: dict[str, Any] = {
    each.__name__.lower(): each
    for module in (blocks, drawn, plotted, svg, atlas_panel)
    for each in vars(module).values() if isinstance(each, type) and is_dataclass(each)
}


def plain_view(view: blocks.View) -> Mapping[str, Any]:
    """The view as JSON."""
    plain: Mapping[str, Any] = _plain(view)
    return plain


def view_of_plain(plain: Mapping[str, Any]) -> blocks.View:
    """The view that ``plain_view`` wrote.

    Errors:  ``KeyError`` for what is no view.
    """
    view: blocks.View = _value(plain)
    return view


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        kept = ((each, getattr(value, each.name)) for each in fields(value))
        return {"is": type(value).__name__.lower(), **{each.name: _plain(own) for each, own in kept if not _usual(each, own)}}
    if isinstance(value, Mapping):
        return {"map": [[_plain(key), _plain(own)] for key, own in value.items()]}
    if isinstance(value, frozenset):
        return {"set": sorted(value)}
    if isinstance(value, list):
        return {"list": [_plain(each) for each in value]}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    own = value.item() if hasattr(value, "item") else value  # a scalar of numpy
    return {"float": str(own)} if isinstance(own, float) and not isfinite(own) else own


def _usual(field: Any, value: Any) -> bool:
    """Whether a value is what the field has unless said."""
    usual = field.default
    if field.default_factory is not MISSING:
        usual = field.default_factory()
    return usual is not MISSING and bool(usual == value)


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(map(_value, plain))
    if not isinstance(plain, dict):
        return plain
    if "is" in plain:
        return _KINDS[plain["is"]](**{name: _value(own) for name, own in plain.items() if name != "is"})
    if "float" in plain:
        return float(plain["float"])
    if "set" in plain:
        return frozenset(plain["set"])
    return [_value(each) for each in plain["list"]] if "list" in plain else {_value(key): _value(own) for key, own in plain["map"]}
