"""Values as the dictionaries of the contract: one JSON document per verb, the unit of a figure in its key.

Keys of the contract are stable; everything else here (peak, convention, terms, verdict) is extra and may grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from meshwright.domain.estimate import Fits
from meshwright.domain.label import OVERLAPS, recompute_word
from meshwright.domain.layout import overlapping
from meshwright.estimate.figures import figures
from meshwright.estimate.launching import launch_costs
from meshwright.search.result import FIGURES

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate, Stage, Verdict
    from meshwright.domain.layout import Layout
    from meshwright.search.result import Comparison, PlanResult, RankedPlan

Document = dict[str, Any]

_LAYOUT_NUMBERS = (
    "tensor_parallel", "sequence_parallel", "context_parallel", "pipeline_parallel", "virtual_stages",
    "expert_parallel", "expert_tensor_parallel", "data_parallel", "optimizer_shards", "gradient_shards",
    "parameter_shards", "microbatch_sequences", "num_microbatches",
)
_RATES = (
    "step_s", "expected_step_s", "tokens_per_s", "tokens_per_s_per_device", "effective_tokens_per_s_per_device", "samples_per_s",
    "model_flops_per_s_per_device", "mfu_ratio", "hfu_ratio", "bubble_ratio", "bubble_formula_ratio",
    "mean_idle_ratio", "linearity_ratio",
)
_MEMORY = (
    "memory_peak_bytes", "memory_reserved_bytes", "memory_upper_bytes", "memory_capacity_bytes",
    "host_memory_per_node_bytes",
)
_EXTRA = (
    "linearity_baseline_devices", "linearity_baseline_label", "hardware_flops_per_s_per_device", "peak_stage", "flops_convention",
    "peak_flops_per_s", "peak_dtype",
)
_STAGE_MEMORY = ("parameters", "gradients", "optimizer", "activations", "temporary", "overhead")


def layout_view(layout: Layout, *, experts: bool = True) -> Document:
    """A layout by the contract's keys; recomputation in the grammar of the label.

    ``experts``: whether its model has, or may have, experts, whose gradients replicas of their own add up.
    """
    view: Document = {name: plain(getattr(layout, name)) for name in _LAYOUT_NUMBERS}
    view["recompute"] = recompute_word(layout.recompute)
    view["schedule"] = layout.schedule
    view["stage_layers"] = None if layout.stage_layers is None else plain(layout.stage_layers)
    view["offload"] = list(layout.offload)
    heard = overlapping(layout, experts=experts)
    view["overlap"] = [word for word, name in OVERLAPS.items() if name in heard and getattr(layout.overlap, name)]
    view["attention"], view["compile"] = layout.attention, layout.compiled
    view["context_kind"] = layout.context_kind
    return view


def estimate_view(estimate: Estimate) -> Document:
    """An estimate by the contract's keys, whole bytes, and the terms behind it."""
    view: Document = {
        "label": estimate.label,
        "layout": layout_view(estimate.layout, experts=estimate.experts),
        "fits": bool(estimate.fits),
        "calibrated": bool(estimate.calibrated),
        "memory_fit_probability": number(estimate.memory_fit_probability),
        "fit_probability": number(estimate.fit_probability),
    }
    view |= {name: number(getattr(estimate, name)) for name in _RATES}
    view |= {name: whole(getattr(estimate, name)) for name in _MEMORY}
    parts = estimate.host_memory_bytes
    view["host_memory_bytes"] = None if parts is None else {each.name: whole(getattr(parts, each.name)) for each in fields(parts)}
    view["stages"] = [stage_view(stage) for stage in estimate.stages]
    view["time"] = {part.name: number(getattr(estimate.time, part.name)) for part in fields(estimate.time)}
    view["interval"] = plain(estimate.interval)
    view["stall"] = plain(estimate.stall)
    stalled = 0.0 if estimate.stall is None else estimate.stall.probability
    view["humps"] = [{"probability": 1.0 - stalled, "step_s": number(estimate.step_s)}]
    if estimate.stall is not None:
        view["humps"].append({"probability": number(stalled), "step_s": number(estimate.stall.step_s)})
    view["calibration"] = estimate.calibration
    view["grades"] = dict(estimate.grades or {})
    view |= {name: plain(getattr(estimate, name)) for name in _EXTRA}
    view["terms"] = [plain(term) for term in estimate.terms]
    view["figures"] = {title: plain(terms) for title, terms in figures(estimate).items() if terms is not estimate.terms}
    return view


LAUNCHED = ("graphs", "compile", "deterministic", "attention", "dispatcher", "routing", "overlap")
"""Settings that the document always has, by the contract."""


def launch_view(case: Case, layout: Layout) -> Document:
    """Every setting of the launch: its value, who says so, and what it costs against its best value; null where it means nothing
    for the case, as a dispatcher does for a dense model."""
    nothing = {"value": None, "source": None, "best": None, "cost_ratio": None}
    return {name: dict(nothing) for name in LAUNCHED} | {
        each.name: {"value": each.value, "source": each.source, "best": each.best, "cost_ratio": number(each.cost_ratio)}
        for each in launch_costs(case, layout)
    }


def stage_view(stage: Stage) -> Document:
    """One pipeline stage: its layers, bytes and seconds per micro-batch."""
    return {
        "stage": int(stage.stage),
        "layers": int(stage.layers),
        "chunk_layers": list(stage.chunk_layers),
        "parameters": whole(stage.parameters),
        "memory_bytes": {name: whole(getattr(stage.memory, name)) for name in _STAGE_MEMORY},
        "forward_s": number(stage.forward_s),
        "backward_s": number(stage.backward_s),
    }


def ranked_view(plan: RankedPlan) -> Document:
    """One answer of a search."""
    return {
        "rank": whole(plan.rank),
        "label": plan.label,
        "layout": layout_view(plan.layout, experts=plan.estimate.experts),
        "estimate": estimate_view(plan.estimate),
        "reasons": list(plan.reasons),
        "group": whole(plan.group),
    }


def plan_view(request: Mapping[str, object], result: PlanResult) -> Document:
    """The document of ``plan --json``."""
    return {
        "request": plain(request),
        "legal": whole(result.legal),
        "evaluated": whole(result.evaluated),
        "bounded": whole(result.bounded),
        "fitting": whole(result.fitting),
        "rejected": plain(result.rejected),
        "search_s": number(result.search_s),
        "evaluations_per_s": number(result.evaluations_per_s),
        "plans": [ranked_view(plan) for plan in result.plans],
        "objective": FIGURES[result.objective],
        "within_error": result.within_error,
        "ranking_error_ratio": number(result.ranking_error_ratio),
        "pareto": [{"rank": plan.rank, "label": plan.label, **_headline(plan.estimate)} for plan in result.pareto],
        "riskier": [{"rank": plan.rank, "label": plan.label, **_headline(plan.estimate)} for plan in result.riskier],
        "used_devices": result.used_devices,
        "idle_devices": result.idle_devices,
        "verdict": verdict_view(result.verdict),
        "notes": [str(note) for note in result.notes],
    }


def verdict_view(verdict: Verdict) -> Document:
    """Whether something fits; if not, every unmet constraint with demand, bound, gap, terms and levers."""
    if isinstance(verdict, Fits):
        return {"fits": True, "headroom_bytes": whole(verdict.headroom_bytes)}
    unmet = [{**plain(each), "gap": number(each.gap)} for each in verdict.unmet]
    return {"fits": False, "unmet": unmet}


def comparison_view(comparison: Comparison) -> Document:
    """Why not mine: the user's layout beside the winner's label."""
    return {
        "label": comparison.label,
        "rank": whole(comparison.rank),
        "better_listed": whole(comparison.better_listed),
        "better": whole(comparison.better),
        "estimate": estimate_view(comparison.estimate),
        "refused_because": list(comparison.refused_because),
        "winner": comparison.winner.label,
        "needed": list(comparison.needed),
    }


def plain(value: object) -> Any:
    """Dataclasses, tuples, mappings and NumPy scalars as JSON's own types; what is not finite becomes null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return number(value) if hasattr(value, "__float__") else str(value)


def number(value: Any) -> float | int | None:
    """A finite number of JSON; None where there is none."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    as_float = float(value)
    return as_float if isfinite(as_float) else None


def whole(value: Any) -> int | None:
    """A count or a size as an integer."""
    return round(float(value)) if value is not None and isfinite(float(value)) else None


def _headline(estimate: Estimate) -> Document:
    """The figures of the Pareto front."""
    return {
        "step_s": number(estimate.step_s),
        "expected_step_s": number(estimate.expected_step_s),
        "memory_fit_probability": number(estimate.memory_fit_probability),
        "memory_reserved_bytes": whole(estimate.memory_reserved_bytes),
        "devices": estimate.layout.world,
    }
