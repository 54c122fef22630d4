"""JSON of ``pack``: micro-batches of the steps that were looked at, what they gain, and each limit with its estimate."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import number, plain, whole

if TYPE_CHECKING:
    from meshwright.api.packed import Packed
    from meshwright.api.packed_curve import Point
    from meshwright.api.packed_dynamic import Dynamic


def pack_view(answer: Packed) -> dict[str, Any]:
    """The contract's keys, with what stands behind them."""
    rules, outcome, total = answer.rules, answer.outcome, answer.outcome.total
    chosen = next((each for each in answer.curve if each.max_tokens == answer.recommended), None)
    return {
        "mode": rules.mode, "max_tokens": rules.max_tokens, "data_parallel": rules.data_parallel, "align": rules.align,
        "lengths": plain(answer.lengths.figures()), "steps": outcome.steps, "steps_looked_at": outcome.looked_at,
        "step_samples": outcome.step_samples, "left_over_samples": outcome.left_over,
        "microbatches": total.microbatches, "microbatches_of_a_rank": total.most_of_a_rank, "lower_bound": answer.lower_bound,
        "overflows": total.overflows, "max_tokens_used": total.most_tokens,
        "padding_ratio_before": number(outcome.padding_before), "padding_ratio_buckets": number(outcome.padding_buckets),
        "padding_ratio_after": number(outcome.padding_after),
        "imbalance_ratio": number(total.imbalance_ratio), "microbatch_imbalance_ratio": number(total.microbatch_imbalance_ratio),
        "speedup_estimate": number(answer.speedup.ratio), "speedup_by": answer.speedup.by,
        "interval": {"speedup_estimate": [number(each) for each in answer.speedup.interval]},
        "keeping_max_tokens": answer.keeping, "keeping_any_max_tokens": answer.keeping_any,
        "recommended_max_tokens": answer.recommended,
        "recommended_headroom_bytes": None if chosen is None else whole(_headroom(chosen)),
        "curve": [_point(each) for each in answer.curve],
        "cost": {**asdict(rules.cost), "unit": "tokens" if answer.given is None else "s"},
        "dynamic": None if answer.dynamic is None else _dynamic(answer.dynamic),
        "label": answer.curve[0].estimate.label if answer.curve else None,
        "request": None if answer.given is None else plain(answer.given.request),
    }


def _dynamic(found: Dynamic) -> dict[str, Any]:
    """Groups of ranks by the length of each sample."""
    step = found.step
    return {
        "tokens_per_rank": found.rank_tokens, "ranks": found.ranks, "microbatches": len(step.groups),
        "microbatches_of_a_rank": max(len(step.of_rank(rank)) for rank in range(found.ranks)),
        "max_rank_tokens_used": max(each.rank_tokens for each in step.groups),
        "samples_by_degree": {str(degree): count for degree, count in found.samples_by_degree.items()},
        "imbalance_ratio": number(step.imbalance_ratio), "static_context_parallel": found.static_degree,
        "static_step_ratio": None if found.static_ratio is None else number(found.static_ratio),
        "groups": [
            {"first_rank": each.first_rank, "context_parallel": each.degree, "rank_tokens": each.rank_tokens,
             "samples": list(each.samples)} for each in step.groups
        ],
    }


def _headroom(point: Point) -> float:
    """Memory that a limit leaves."""
    return point.estimate.memory_capacity_bytes - point.estimate.memory_reserved_bytes


def _point(point: Point) -> dict[str, Any]:
    """One limit, as ``estimate`` predicts it with so many packs."""
    predicted = point.estimate
    return {
        "max_tokens": point.max_tokens, "microbatch_tokens": point.slot_tokens, "packs": point.packs,
        "tokens_per_s": number(predicted.tokens_per_s),
        "trained_tokens_per_s": number(point.trained_tokens_per_s), "step_s": number(predicted.step_s),
        "memory_peak_bytes": whole(predicted.memory_peak_bytes), "memory_reserved_bytes": whole(predicted.memory_reserved_bytes),
        "memory_upper_bytes": whole(predicted.memory_upper_bytes), "memory_capacity_bytes": whole(predicted.memory_capacity_bytes),
        "fits": bool(predicted.fits), "memory_fit_probability": number(predicted.memory_fit_probability),
    }
