"""Trials of fewer layers, whose step is scaled to the whole model by the cost model, with what that may be wrong by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.estimate.single import estimate
from meshwright.search import layout_refusals

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From the step of some layers to that of all of them."""

    factor: float = 1.0
    """Predicted step of the whole model over that of its layers."""
    error_ratio: float = 0.0
    """What the scaled step may be wrong by beside its own interval: the share of it that was not measured, times half of the
    relative interval of the prediction."""
    said: str = ""
    """``8 of 32 layers``; empty where the whole model runs."""


WHOLE = Scale()


def scale_of(case: Case, shorter: Case, layout: Layout, features: Features, runner: Runner) -> Scale:
    """How a layout of fewer layers says what it would take with all of them; ``WHOLE`` where fewer cannot be laid out so.

    Formula: factor = step(all) / step(fewer); error = (1 - 1/factor) x (hi - lo) / (2 step) of the interval of all.
    """
    if layout.stage_layers is not None or list(layout_refusals(shorter, features, layout)) or runner.check(shorter, layout):
        return WHOLE
    whole, part = estimate(case, layout), estimate(shorter, layout)
    factor = float(whole.step_s) / float(part.step_s)
    if factor <= 1.0:
        return WHOLE
    low, high = whole.interval.step_s if whole.interval is not None else (float(whole.step_s), float(whole.step_s))
    error = (1.0 - 1.0 / factor) * (high - low) / (2.0 * float(whole.step_s))
    return Scale(factor=factor, error_ratio=error, said=f"{shorter.model.num_layers} of {case.model.num_layers} layers")

