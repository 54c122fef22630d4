"""The one ranking: by which figure plans are better, which of them stand for others, which cannot be told apart, and the front."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from meshwright.estimate.certainty import expected_s
from meshwright.search.result import RankedPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.perf.arrays import Array
    from meshwright.search.result import Objective

T = TypeVar("T")

RANKING_ERROR = 0.03
"""Without a calibration, plans nearer than this are one group: the same dense run differs by up to 3 % between software releases of
one device (docs/sources.md#throughput-by-device), so no model without that knowledge tells them apart."""
TIE = 0.005
"""A stranger layout takes the place of a plain one where it is better by more than this."""
FRONT, RISKIER = 8, 3
"""Points of the front, and plans that are faster where they fit."""


def value(each: Estimate, objective: Objective) -> float:
    """What a plan is ranked by; less is better.

    Units:   s, bytes, or device-seconds of a step.
    """
    if objective == "memory":
        return each.memory_reserved_bytes
    return each.expected_step_s * (each.layout.world if objective == "throughput-per-device" else 1)


def column(case: Case, objective: Objective, *, step_s: Array, reserved_bytes: Array, devices: Array | int) -> Array:
    """``value`` of layouts of which step time and reserved bytes are known, as columns or numbers."""
    if objective == "memory":
        return reserved_bytes
    return expected_s(case, step_s, reserved_bytes) * (devices if objective == "throughput-per-device" else 1)


def in_order(estimates: Iterable[Estimate], objective: Objective) -> list[Estimate]:
    """Best first; of equal ones that with the least memory, then by label."""
    return sorted(estimates, key=lambda each: (value(each, objective), each.memory_reserved_bytes, each.step_s, each.label))


def ranking_error(case: Case) -> float:
    """How far two plans of a case must differ to be told apart: what the calibration found, or the noise of published runs."""
    known = case.calibration.uncertainty
    return known.ranking_ratio if known else RANKING_ERROR


def groups(estimates: Sequence[Estimate], objective: Objective, apart: float) -> list[int]:
    """For plans in their order, the number of the group that each belongs to: those within ``apart`` of the first of the group."""
    numbers: list[int] = []
    anchor = None
    for each in estimates:
        own = value(each, objective)
        if anchor is None or own > anchor * (1.0 + apart):
            anchor = own
            numbers.append(numbers[-1] + 1 if numbers else 1)
        else:
            numbers.append(numbers[-1])
    return numbers


def shape(layout: Layout, *, trained: bool) -> tuple[object, ...]:
    """What layouts of one idea share: those that differ only in recompute, shard group or split are variants of it.

    ``trained``: the weights are; where they are frozen, ZeRO 0 to 2 differ in next to nothing.
    """
    return (
        layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.data_parallel, layout.expert_parallel,
        layout.expert_tensor_parallel, layout.microbatch_sequences, layout.virtual_stages > 1,
        layout.zero_stage if trained else layout.parameter_shards > 1, layout.schedule,
    )


def best_of_shapes(estimates: Sequence[Estimate], objective: Objective, *, trained: bool) -> dict[tuple[object, ...], Estimate]:
    """The best fitting estimate of each shape."""
    fitting = in_order((each for each in estimates if each.fits), objective)
    return {shape(each.layout, trained=trained): each for each in reversed(fitting)}


def clearly_better(one: Estimate, other: Estimate, objective: Objective) -> bool:
    """Whether the difference of two estimates is worth a stranger layout."""
    return value(one, objective) * (1.0 + TIE) < value(other, objective)


def front(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Those that no other beats in expected time, memory and devices at once, fastest first, spread to at most ``FRONT``."""
    figures = {each.label: (each.expected_step_s, each.memory_reserved_bytes, each.layout.world) for each in estimates}
    once = {each.label: each for each in estimates}

    def beaten(own: tuple[float, float, int]) -> bool:
        return any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in figures.values())

    kept = [each for label, each in once.items() if not beaten(figures[label])]
    kept.sort(key=lambda each: figures[each.label])
    return spread(kept, FRONT)


def riskier(estimates: Sequence[Estimate], best: Estimate) -> list[Estimate]:
    """Those that take less time than the best where they fit, but are expected to take more; fastest first."""
    found: list[Estimate] = []
    for each in sorted(estimates, key=lambda each: (each.step_s, each.memory_reserved_bytes, each.label)):
        faster = each.step_s < best.step_s and each.expected_step_s > best.expected_step_s
        if faster and all(each.memory_reserved_bytes < other.memory_reserved_bytes for other in found):
            found.append(each)
    return spread(found, RISKIER)


def spread(items: Sequence[T], most: int) -> list[T]:
    """So many of a list, its first and last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def numbered(estimates: Sequence[Estimate], reasons: Sequence[tuple[str, ...]], group: Sequence[int]) -> tuple[RankedPlan, ...]:
    """Plans of estimates in their order, with the sentences and the group of each."""
    return tuple(
        RankedPlan(rank=rank, label=each.label, layout=each.layout, estimate=each, reasons=why, group=own)
        for rank, (each, why, own) in enumerate(zip(estimates, reasons, group, strict=True), start=1)
    )
