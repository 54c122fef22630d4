"""Linearity: tokens per second and device here, over the same on the smallest number of nodes on which the model fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from meshwright.estimate.overlap import overlap_for
from meshwright.search.finding import find
from meshwright.search.learnt import Baseline, Learnt
from meshwright.search.result import SearchOptions
from meshwright.search.runner import Functions
from meshwright.search.sizes import fits_anywhere, on, sizes

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.search.result import RankedPlan
    from meshwright.search.runner import Runner


SIMPLE = SearchOptions(top=1, balance=False)
"""What is asked where one speed is all that is wanted: filling stages anew would take longer than the plan itself."""


def baseline(
    case: Case, features: Features, runner: Runner, *, weak: bool = False, learnt: Learnt | None = None
) -> Baseline | None:
    """The best layout on the smallest number of whole nodes on which the framework runs one; None where there is none.

    ``weak``: with the global batch scaled down in proportion to the devices. Stages are not filled anew: a plan whose
    stages are may be above 1 on these very nodes. ``learnt``: what other searches of the case know, for where all its nodes are
    the fewest.

    Holds:   every number of nodes that may have a legal layout is tried, rising; pins, objective and whatever else is asked of a
             search do not change it, so that every verb says one linearity of a layout. Layouts of the grid are compared: none
             that fits with optimizer states in host memory alone.
    Source:  guide 002:15 (linearity = throughput of many nodes / (of one node x number)).
    """
    per_node = case.cluster.devices_per_node
    nodes = case.cluster.num_devices // per_node
    counts = range(per_node, nodes * per_node + 1, per_node) if weak else sizes(case, features, nodes)
    for devices in counts:
        own = _on(case, devices, weak=weak)
        if devices % per_node or not fits_anywhere(own, features, devices, overlap=overlap_for(own)):
            continue
        found = find(own, features, SIMPLE, runner, lean=True, able=True, learnt=learnt if own == case else None)
        if found.plans:
            return _of(found.plans[0].estimate)
    return None


def _on(case: Case, devices: int, *, weak: bool) -> Case:
    """The case on fewer devices."""
    batch = case.batch
    if weak:
        scaled = max(1, batch.global_batch_sequences * devices // case.cluster.num_devices)
        batch = replace(batch, global_batch_sequences=scaled)
    return replace(on(case, devices), batch=batch)


def _of(best: Estimate) -> Baseline:
    return Baseline(devices=best.layout.world, tokens_per_s_per_device=best.tokens_per_s_per_device, label=best.label)


def with_linearity(
    case: Case, features: Features, plans: tuple[RankedPlan, ...], runner: Runner, options: SearchOptions, learnt: Learnt,
) -> tuple[RankedPlan, ...]:
    """Plans whose estimates say their linearity; baselines that were found before are among what is ``learnt``."""
    if not plans:
        return plans
    known = learnt.baselines
    if options.weak not in known:
        known[options.weak] = baseline(case, features, runner, weak=options.weak, learnt=learnt)
    found = known[options.weak]
    return tuple(replace(each, estimate=_against(each.estimate, found)) for each in plans)


def linearity_of(case: Case, features: Features, estimate: Estimate, runner: Runner | None = None) -> Estimate:
    """An estimate that says its linearity against the smallest number of whole nodes on which the framework runs a layout."""
    return _against(estimate, baseline(case, features, runner or Functions()))


def _against(estimate: Estimate, found: Baseline | None) -> Estimate:
    if found is None:
        return estimate
    return replace(
        estimate, linearity_ratio=estimate.tokens_per_s_per_device / found.tokens_per_s_per_device,
        linearity_baseline_devices=found.devices, linearity_baseline_label=found.label,
    )
