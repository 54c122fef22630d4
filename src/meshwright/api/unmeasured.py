"""A first plan of a kind of which nobody published a run: said beside the list, with the first plan of a measured kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshwright.errors import Message
from meshwright.words import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.cases import Setup
    from meshwright.domain.layout import Layout
    from meshwright.evidence.rows.published_run import Published
    from meshwright.search.result import PlanResult

WORDS = "no published run of {family} on {devices} devices has {kind}: the prediction of plan 1 stands on other kinds of runs; " \
    "{instead}"


class Kind(NamedTuple):
    """What decides which exchanges carry a layout's weights and tokens."""

    is_moe: bool
    gathers: bool
    """Weights are sharded and gathered for each layer (ZeRO-3, FSDP)."""
    splits_experts: bool

    def words(self) -> str:
        """The kind, as people say it."""
        model = "a mixture of experts" if self.is_moe else "a dense model"
        weights = "sharded weights (ZeRO-3)" if self.gathers else "whole weights (ZeRO-0 to 2)"
        experts = f" and {'split experts' if self.splits_experts else 'all experts on each rank (ep1)'}" if self.is_moe else ""
        return f"{model} with {weights}{experts}"


def unmeasured(given: Setup, result: PlanResult) -> Iterator[Message]:
    """That the first plan is of a kind of which the corpus holds no run of its families of framework and device, but others.

    Of a dense model that keeps whole weights nothing is said: it has less to foretell than one that gathers them. What the corpus
    lacks is no fault of a layout, so the ranking stays; it is the calibration that was never held to such a run.
    """
    from meshwright.evidence.rows.attempts import attempts

    family, devices, is_moe = given.case.implementation.family, given.case.cluster.device.family, given.case.model.is_moe
    runs = (each.best for each in attempts() if each.best.label)
    alike = (run for run in runs if (run.family, run.device_family) == (family, devices))
    known = {kind for run in alike if (kind := _of_run(run)).is_moe == is_moe}
    first = _of_layout(result.plans[0].layout, is_moe=is_moe)
    if not known or first in known or not (first.gathers or is_moe):
        return
    other = next((each for each in result.plans if _of_layout(each.layout, is_moe=is_moe) in known), None)
    stages = "--pin zero=1" if first.gathers else "--pin zero=3"
    instead = f"{stages} searches what has been" if other is None else (
        f"plan {other.rank} ({seconds(other.estimate.step_s)}) is the first of a kind that was measured: try both")
    yield Message("plan.unmeasured", WORDS, {"family": family, "devices": devices, "kind": first.words(), "instead": instead})


def _of_layout(layout: Layout, *, is_moe: bool) -> Kind:
    return Kind(is_moe=is_moe, gathers=layout.parameter_shards > 1, splits_experts=is_moe and layout.expert_parallel > 1)


def _of_run(run: Published) -> Kind:
    """By the words of its label; a model whose shape is not published is a mixture where its experts are split."""
    words = run.label.split()
    splits = any(word.startswith("ep") and word != "ep1" for word in words)
    return Kind(is_moe=run.is_moe or splits, gathers="zero3" in words, splits_experts=splits)
