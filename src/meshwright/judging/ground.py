"""What a walk through layouts may tread on: those that are legal, for which the framework has its own overlap, and that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.estimate.many import evaluate_many
from meshwright.judging.neighbours import vary
from meshwright.search import layout_refusals
from meshwright.search.rules import context_kinds
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap

Knobs = Mapping[str, Any]
"""Fields of a layout that a candidate changes; the rest follows (``neighbours.vary``)."""


class Ground(Value, frozen=True, kw_only=True):
    """What a walk may tread on: the case, the framework's features, what it refuses, and the overlap that it has for a layout."""

    case: Case
    features: Features
    acceptable: Callable[[Layout], bool] = lambda _: True
    said: Callable[[Layout], Overlap] | None = None

    def layout(self, before: Layout, knobs: Knobs) -> Layout | None:
        """The layout with other knobs on the same devices; None where it is not legal."""
        found = vary(self.case, self.features, before, **knobs)
        if isinstance(found, str):
            return None
        kinds = context_kinds(self.case.model, self.features)
        found = replace(found, context_kind=kinds[0] if kinds and found.context_parallel > 1 else "ring")
        if self.said is not None and "overlap" not in knobs:
            found = replace(found, overlap=self.said(found))
        return None if layout_refusals(self.case, self.features, found) or not self.acceptable(found) else found

    def fits(self, layouts: list[Layout]) -> list[Layout]:
        """Those that fit."""
        if not layouts:
            return []
        _, reserved = evaluate_many(self.case, layouts)
        return [layout for layout, size in zip(layouts, reserved, strict=True) if size <= self.case.capacity_bytes]
