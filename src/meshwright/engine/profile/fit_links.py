"""Timed collectives -> bandwidth and latency of each tier, starts, and what the formulas miss of every size."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from meshwright.domain.measured import OPERATIONS, TimedCollective
from meshwright.domain.mesh import group
from meshwright.engine.profile.fit_compute import noise_of, number, vector
from meshwright.engine.profile.fitted import BenchFit, Fitted, bench_fit
from meshwright.engine.profile.robust import fit_logs
from meshwright.perf.collectives import all_gather_s, all_reduce_s, all_to_all_s, point_to_point_s, reduce_scatter_s
from meshwright.perf.corrections import timed_ratio
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.calibration import Constants
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.sample import Sample
    from meshwright.engine.profile.robust import Array

Tier: TypeAlias = Literal["scale_up", "network"]
TIERS: tuple[Tier, ...] = ("scale_up", "network")
LONGEST_S, SHORTEST_S = 10.0, 1e-8
MOST_OVERLAP, LEAST_OVERLAP = 0.99, 0.01
LEAST_SLOWDOWN = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What collectives gave."""

    cluster: Cluster
    constants: Constants
    found: Mapping[str, Fitted] = field(default_factory=dict)
    """Constants."""
    figures: Mapping[str, Fitted] = field(default_factory=dict)
    """``scale_up.bandwidth``, ``scale_up.latency``, the same of the network."""
    timed: Mapping[Tier, tuple[TimedCollective, ...]] = field(default_factory=dict)
    benches: tuple[BenchFit, ...] = ()


def fit_links(samples: Sequence[Sample], cluster: Cluster, constants: Constants) -> Links:
    """Links of both tiers, ``collective_fixed_s`` and ``peer_s``, and every collective beside its formula.

    The bandwidth of a tier is what large collectives reach, so ``scale_up_ratio`` and ``network_ratio`` become 1. The first tier
    that was measured sets the starts.
    """
    links = Links(cluster=replace(cluster, measured=None), constants=constants)
    for tier in TIERS:
        own = [
            each for each in samples
            if each.arguments["tier"] == tier and each.arguments["operation"] in OPERATIONS and number(each, "ranks") > 1
        ]
        if own:
            links = _tier(own, tier, links)
    return links


def _tier(samples: Sequence[Sample], tier: Tier, links: Links) -> Links:
    measured = vector(samples, "seconds")
    best = max(number(each, "payload_bytes") / each.seconds for each in samples)
    shortest = float(np.min(measured))
    start, low, high = [best, shortest / 3.0], [best / 1e3, SHORTEST_S], [best * 30.0, LONGEST_S]
    starts = "collective_fixed_s" not in links.found
    if starts:
        start += [shortest / 3.0, shortest / 3.0]
        low += [SHORTEST_S, SHORTEST_S]
        high += [LONGEST_S, LONGEST_S]

    def tried(values: Array) -> tuple[Cluster, Constants]:
        link = replace(getattr(links.cluster, tier), bytes_per_s=float(values[0]), latency_s=float(values[1]))
        changed = replace(links.constants, **{f"{tier}_ratio": 1.0})  # type: ignore[arg-type]
        if starts:
            changed = replace(changed, collective_fixed_s=float(values[2]), peer_s=float(values[3]))
        return replace(links.cluster, **{tier: link}), changed

    def residuals(values: Array) -> Array:
        return np.asarray(np.log(formula_s(samples, tier, *tried(values)) / measured))

    values, error = fit_logs(residuals, np.array(start), np.array(low), np.array(high), noise=noise_of(samples))
    cluster, constants = tried(values)
    words = f"{len(samples)} collectives, spread {percent(error)}"
    found = {**links.found, f"{tier}_ratio": Fitted(value=1.0, words="the bandwidth of the link is what collectives reach")}
    if starts:
        used = {str(each.arguments["operation"]) for each in samples}
        found["collective_fixed_s"] = Fitted(value=float(constants.collective_fixed_s), words=words)
        if "all-to-all" in used:
            found["peer_s"] = Fitted(value=float(constants.peer_s), words=words)
        else:
            constants = replace(constants, peer_s=links.constants.peer_s)
    link = getattr(cluster, tier)
    figures = {
        **links.figures, f"{tier}.bandwidth": Fitted(value=link.bytes_per_s, words=words),
        f"{tier}.latency": Fitted(value=link.latency_s, words=words),
    }
    predicted = formula_s(samples, tier, cluster, constants)
    timed = tuple(
        TimedCollective(
            operation=each.arguments["operation"], ranks=int(number(each, "ranks")),  # type: ignore[arg-type]
            payload_bytes=int(number(each, "payload_bytes")), seconds=each.seconds, formula_s=float(formula),
        )
        for each, formula in zip(samples, predicted, strict=True)
    )
    held_out = np.array(
        [
            predicted[place]
            * float(timed_ratio((*timed[:place], *timed[place + 1 :]), each.operation, each.ranks, each.payload_bytes))
            for place, each in enumerate(timed)
        ]
    )
    bench = bench_fit(f"collective, {tier.replace('_', '-')}", predicted, measured, list(noise_of(samples)), held_out)
    return replace(
        links, cluster=cluster, constants=constants, found=found, figures=figures, timed={**links.timed, tier: timed},
        benches=(*links.benches, bench),
    )


def formula_s(samples: Sequence[Sample], tier: Tier, cluster: Cluster, constants: Constants) -> Array:
    """What the cost model says of timed collectives, without corrections.

    Shapes:  one value a sample.
    Units:   s.
    Holds:   groups of a tier that spans domains have one member in each, or all devices of the cluster.
    """
    result = np.zeros(len(samples))
    operations = [str(each.arguments["operation"]) for each in samples]
    ranks, payload = vector(samples, "ranks"), vector(samples, "payload_bytes")
    apart = float(cluster.scale_up_devices) if tier == "network" else 1.0
    stride = np.where(ranks >= cluster.num_devices, 1.0, apart)
    for operation in sorted(set(operations)):
        index = np.array([place for place, each in enumerate(operations) if each == operation])
        if operation == "send":
            result[index] = point_to_point_s(payload[index], crosses=float(tier == "network"), cluster=cluster, constants=constants)
            continue
        members = group(ranks[index], stride[index], cluster)
        match operation:
            case "all-reduce":
                result[index] = all_reduce_s(payload[index], members, cluster, constants)
            case "all-gather":
                result[index] = all_gather_s(payload[index], members, cluster, constants)
            case "reduce-scatter":
                result[index] = reduce_scatter_s(payload[index], members, cluster, constants)
            case _:
                result[index] = all_to_all_s(payload[index], members, cluster, constants)
    return result


def fit_beside(samples: Sequence[Sample]) -> dict[str, Fitted]:
    """``overlap_ratio`` and how much a collective slows the compute that hides it.

        slowdown = (beside - alone) / collective beside;   overlap = collective alone / collective beside

    A collective that runs for ``c'`` beside a loop that takes ``w`` alone lengthens the loop by ``slowdown`` of the time that both
    ran; while both run it advances at ``overlap`` of its own pace, and that share of it is what compute can hide.
    """
    slow: defaultdict[str, list[float]] = defaultdict(list)
    overlaps: list[float] = []
    for each in samples:
        alone, beside = each.values.get("alone_s", 0.0), each.values.get("beside_s", 0.0)
        free, busy = each.values.get("collective_alone_s", 0.0), each.values.get("collective_beside_s", 0.0)
        if min(alone, beside, free, busy) <= 0.0:
            continue
        tier = str(each.arguments.get("tier", "scale_up"))
        slow[tier].append((beside - alone) / min(alone, busy))
        overlaps.append(free / busy)
    found: dict[str, Fitted] = {}
    every = [value for values in slow.values() for value in values]
    if not every:
        return found
    for name, tier in (("contention_slowdown_scale_up", "scale_up"), ("contention_slowdown", "network")):
        values = slow.get(tier) or every
        slowdown = max(LEAST_SLOWDOWN, float(np.median(values)))
        found[name] = Fitted(value=slowdown, words=f"{len(values)} product loops beside a collective")
    overlap = float(np.clip(np.median(overlaps), LEAST_OVERLAP, MOST_OVERLAP))
    found["overlap_ratio"] = Fitted(value=overlap, words=f"{len(overlaps)} collectives beside a product loop")
    return found
