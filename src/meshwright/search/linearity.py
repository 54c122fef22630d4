"""Linearity: tokens per second and device here, over the same on the smallest number of nodes on which the model fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.estimate.overlap import overlap_for
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.refine import refine
from meshwright.search.space import Pins, divisors, make_space

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Overlap
    from meshwright.search.result import RankedPlan


BASELINE_BASES = 4
"""Layouts of each pool that are refined for a baseline: enough for a ratio."""


def best_step_s(case: Case, features: Features, devices: int, *, overlap: Overlap, weak_from: int | None = None) -> float | None:
    """Step time of the best fitting layout on so many devices, refined like a plan, or None where none fits.

    ``weak_from``: scale the global batch down in proportion to that many devices (weak scaling).
    """
    batch = case.batch
    if weak_from is not None:
        batch = replace(batch, global_batch_sequences=max(1, batch.global_batch_sequences * devices // weak_from))
    own = replace(case, cluster=replace(case.cluster, num_devices=devices), batch=batch)
    space = make_space(own, features, devices, Pins())
    finalists = Finalists(space=space, overlap=overlap, objective="step-time", capacity_bytes=own.capacity_bytes)
    for rows in evaluate_grid(space, Counts(), overlap=overlap):
        finalists.add(rows)
    refined = refine(space, finalists, bases=BASELINE_BASES)
    return refined[0].step_s if refined else None


def fits_anywhere(case: Case, features: Features, devices: int, *, overlap: Overlap) -> bool:
    """Whether any layout fits on so many devices, by the least demanding ones: micro-batch 1, one chunk, most recompute.

    Holds:   a larger micro-batch, more chunks or less recompute never need less memory.
    """
    own = replace(case, cluster=replace(case.cluster, num_devices=devices))
    strongest = next(name for name in ("full", "selective", "none") if name in features.recompute)
    space = make_space(own, features, devices, Pins(mb=1, vp=1, recompute=strongest))
    return any(bool((rows.reserved_bytes <= own.capacity_bytes).any()) for rows in evaluate_grid(space, Counts(), overlap=overlap))


def baseline(case: Case, features: Features, *, overlap: Overlap, weak: bool = False) -> tuple[int, float] | None:
    """The smallest number of whole nodes on which a layout fits, and tokens per second and device there.

    Holds:   node counts that divide the number of nodes are tried, rising.
    Source:  guide 002:15 (linearity = throughput of many nodes / (of one node x number)).
    """
    per_node = case.cluster.devices_per_node
    if case.cluster.num_devices % per_node:
        return None
    for nodes in divisors(case.cluster.num_devices // per_node):
        devices = nodes * per_node
        if devices == case.cluster.num_devices:
            return None
        if not fits_anywhere(case, features, devices, overlap=overlap):
            continue
        total = case.cluster.num_devices
        step_s = best_step_s(case, features, devices, overlap=overlap, weak_from=total if weak else None)
        if step_s is not None:
            tokens = case.batch.tokens * devices / total if weak else case.batch.tokens
            return devices, tokens / step_s / devices
    return None


def with_linearity(
    case: Case, features: Features, plans: tuple[RankedPlan, ...], *, overlap: Overlap, weak: bool = False
) -> tuple[RankedPlan, ...]:
    """Plans whose estimates say their linearity; 1 where the cluster itself is the smallest that fits."""
    if not plans:
        return plans
    found = baseline(case, features, overlap=overlap, weak=weak) or _itself(case, plans[0].estimate)
    return tuple(replace(each, estimate=_against(each.estimate, found)) for each in plans)


def linearity_of(case: Case, features: Features, estimate: Estimate) -> Estimate:
    """An estimate that says its linearity against the smallest number of whole nodes on which a layout fits."""
    return _against(estimate, baseline(case, features, overlap=overlap_for(case)) or _itself(case, estimate))


def _itself(case: Case, estimate: Estimate) -> tuple[int, float] | None:
    """The cluster as its own baseline, where it is whole nodes."""
    if case.cluster.num_devices % case.cluster.devices_per_node or not estimate.fits:
        return None
    return case.cluster.num_devices, estimate.tokens_per_s_per_device


def _against(estimate: Estimate, found: tuple[int, float] | None) -> Estimate:
    if found is None:
        return estimate
    devices, rate = found
    return replace(estimate, linearity_ratio=estimate.tokens_per_s_per_device / rate, linearity_baseline_devices=devices)
