"""JSON of a guided walk: each step with its rule, its layout, and the searched best beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import estimate_view, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.estimate import Estimate
    from meshwright.judging.walk import GuidedStep


def guided_view(steps: Sequence[GuidedStep], best: Estimate) -> list[dict[str, Any]]:
    """``guided`` of ``plan --guided``; ``loss_ratio`` is null where the layout so far does not fit."""
    return [
        {
            "step": step.step, "rule": step.rule, "source": step.source, "choice": step.choice,
            "estimate": estimate_view(step.estimate),
            "searched": {"choice": step.searched, "label": best.label, "step_s": number(best.step_s)},
            "loss_ratio": None if step.loss_ratio is None else number(step.loss_ratio),
        }
        for step in steps
    ]
