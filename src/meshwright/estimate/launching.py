"""What each setting of a launch costs: the step as it is, over the step with that setting at its best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.launch import OFF
from meshwright.domain.launching import launched, settings_of
from meshwright.domain.layout import overlapping
from meshwright.estimate.evaluate import evaluate
from meshwright.value import Value
from meshwright.words import signed

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

BEST = {
    "deterministic": "off", "attention": "named", "host": "bound", "routing": "balanced", "dispatcher": "flex",
    "optimizer": "fused", **OFF,
}
"""Setting -> the value that costs least. Graphs: of the step, or of parts where the host must read how tokens are routed."""

SEEN = frozenset({"vision", "image_tokens"})
"""Settings that say what is trained on what: none of them is better than another."""


class LaunchCost(Value, frozen=True, kw_only=True):
    """A setting as it is, and what it costs."""

    name: str
    value: str
    source: str
    """``given``, or the implementation by whose habit it is so."""
    best: str
    cost_ratio: float
    """Step as it is over the step with the best value, minus one; nought where it has it."""

    @property
    def sentence(self) -> str:
        """``graphs=none: +31 % against graphs=partial``."""
        if self.value == self.best:
            return f"{self.name}={self.value} ({self.source})"
        return f"{self.name}={self.value} ({self.source}): {signed(self.cost_ratio)} against {self.name}={self.best}"


def launch_costs(case: Case, layout: Layout) -> tuple[LaunchCost, ...]:
    """Every setting of the launch of a layout with its cost, each changed alone.

    Units:   ratio.
    Holds:   costs are of single changes and do not add up: behind one bound stands the next.
    """
    own = _step_s(case, layout)
    found = settings_of(case)
    given = case.launch.given
    costs = []
    for name, value in found.items():
        if name in SEEN:
            continue
        best = ("partial" if "routing" in found and found["routing"] == "natural" else "step") if name == "graphs" else BEST[name]
        ratio = 0.0 if value in (best, "step") else own / _step_s(launched(case, {name: best}), layout) - 1.0
        source = "given" if name in given else case.implementation.name
        costs.append(LaunchCost(name=name, value=value, source=source, best=value if value == "step" else best, cost_ratio=ratio))
    costs.append(_overlap_cost(case, layout, own))
    return tuple(costs)


def _overlap_cost(case: Case, layout: Layout, own: float) -> LaunchCost:
    """Overlap of gradients, parameters and pipeline messages, which keeps the arithmetic."""
    exact = ("gradient_reduce", "parameter_gather", "point_to_point")
    heard = [name for name in exact if name in overlapping(layout, experts=case.model.is_moe)]
    off = [name for name in heard if not getattr(layout.overlap, name)]
    whole = replace(layout, overlap=replace(layout.overlap, **dict.fromkeys(exact, True)))
    return LaunchCost(
        name="overlap", value="off" if off and len(off) == len(heard) else "part" if off else "on", source="layout", best="on",
        cost_ratio=own / _step_s(case, whole) - 1.0 if off else 0.0,
    )


def _step_s(case: Case, layout: Layout) -> float:
    return float(evaluate(case, layout).time.step_s)
