"""Which candidates each step of the guide's way has, its first wish first; some are not legal, and are passed over (``walk``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import log, prod
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.judging.neighbours import OFF, shard_ranks, shards
from meshwright.judging.questions import LONG_TOKENS, MICRO_BATCHES, START_PARAMETERS
from meshwright.perf.parameters import total_parameters
from meshwright.search.space import divisors

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.judging.ground import Ground, Knobs

LARGE_BATCH_SEQUENCES = 1
"""Sequences per device from which a batch is large: the judge of the rule holds it so, too."""
STAGES = 2
CONTEXT = (2, 4, 8, 16, 32, 64)
MOST_GROWN = 64
"""Times that model parallelism grows at most before the guide gives up."""


def start(ground: Ground, layout: Layout) -> Iterable[Knobs]:
    """Degrees by how near n / (TP PP), or n / (ETP EP) of mixtures, is to 4 B; TP in a node, of the others no more than needed."""
    case, node = ground.case, ground.case.cluster.devices_per_node
    world, count = layout.world, total_parameters(case.model)
    every, inside = divisors(world), [degree for degree in divisors(node) if world % degree == 0]
    moe = case.model.is_moe

    def far(knobs: Knobs) -> tuple[float, ...]:
        tp, pp, ep, etp = (knobs[name] for name in PARTS)
        parts = ep * etp if moe else tp * pp
        return (round(abs(log(count / parts / START_PARAMETERS)), 9), knobs["context_parallel"], etp, pp, tp)

    names = (*PARTS, "context_parallel")
    return sorted((
        dict(zip(names, (tp, pp, ep, etp, cp), strict=True))
        for tp in inside for pp in every for cp in every if world % (tp * pp * cp) == 0
        for ep in (every if moe else (1,)) for etp in (inside if moe else (1,)) if world // pp % (ep * etp) == 0
    ), key=far)


def experts(_: Ground, layout: Layout) -> Iterator[Knobs]:
    """EP in the place of ETP: the whole product, else the EP that there is."""
    ep, etp = layout.expert_parallel, layout.expert_tensor_parallel
    yield from ({"expert_parallel": degree, "expert_tensor_parallel": 1} for degree in dict.fromkeys((ep * etp, ep)))


def stages(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """Two stages at least where the batch is large, in the place of TP; of mixtures, whose parts are experts, beside it."""
    large = ground.case.batch.global_batch_sequences >= LARGE_BATCH_SEQUENCES * layout.world
    tp, dense = layout.tensor_parallel, not ground.case.model.is_moe
    if large and layout.pipeline_parallel < STAGES and (tp > 1 or not dense):
        yield {"pipeline_parallel": STAGES} | ({"tensor_parallel": tp // STAGES} if dense else {})
    yield {}


def context(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """CP of 2 or more from 8192 tokens."""
    if ground.case.batch.sequence_tokens >= LONG_TOKENS:
        yield from ({"context_parallel": degree} for degree in CONTEXT if degree >= layout.context_parallel)
    yield {}


def fewer_stages(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """Fewer stages than micro-batches: the most that are, what they give up to TP as far as a node goes."""
    case, world, node = ground.case, layout.world, ground.case.cluster.devices_per_node
    for pp in reversed(divisors(layout.pipeline_parallel)):
        for tp in (layout.tensor_parallel * layout.pipeline_parallel // pp, layout.tensor_parallel):
            replicas = world // (tp * pp * layout.context_parallel)
            if tp <= node and replicas and (pp == 1 or pp < case.batch.global_batch_sequences // replicas):
                yield {"pipeline_parallel": pp, "tensor_parallel": tp}


def optimizer(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """The optimizer states over all replicas."""
    stage = min((each for each in ground.features.zero_stages if each >= 1), default=0)
    yield shards(max(stage, layout.zero_stage), shard_ranks(ground.features, layout) if stage else 1)


def parallelism(ground: Ground, layout: Layout) -> list[Knobs]:
    """The layout as it is, then ever more model parallelism: first by how much more, then stages, CP, TP, EP, and ETP last."""
    node, every = ground.case.cluster.devices_per_node, divisors(layout.world)
    now = {name: getattr(layout, name) for name in GROWN}

    def more(name: str) -> list[int]:
        most = node if name in ("tensor_parallel", "expert_tensor_parallel") else layout.world
        moe_only = name.startswith("expert") and not ground.case.model.is_moe
        return [now[name]] if moe_only else [degree for degree in every if degree % now[name] == 0 and degree <= most]

    grown = [
        dict(zip(GROWN, degrees, strict=True)) for degrees in _products([more(name) for name in GROWN], MOST_GROWN)
    ]
    return sorted(grown, key=lambda knobs: (
        prod(knobs[name] // now[name] for name in GROWN), *(knobs[name] for name in reversed(GROWN))
    ))


def recomputes(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """None, then selective, then full; where even that does not fit, full with more model parallelism."""
    able = ground.features.recompute
    yield {"recompute": NoRecompute()}
    if "selective" in able:
        yield {"recompute": Selective(modules=ground.features.selective_default)}
    if "full" in able:
        yield from ({"recompute": Full(), **knobs} for knobs in parallelism(ground, layout))


def chunks(_: Ground, layout: Layout) -> Iterator[Knobs]:
    """One chunk or two."""
    yield {}
    if layout.pipeline_parallel > 1:
        yield {"virtual_stages": 2}


def micro_batches(_: Ground, layout: Layout) -> Iterator[Knobs]:
    """One, then more."""
    yield from ({"microbatch_sequences": size} for size in MICRO_BATCHES if size >= layout.microbatch_sequences)


def overlap_off(_: Ground, layout: Layout) -> Iterator[Knobs]:
    """Nothing beside compute; where a schedule needs its transfers beside it, nothing else."""
    yield {"overlap": OFF}
    yield {"overlap": replace(OFF, point_to_point=layout.overlap.point_to_point)}


PARTS = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "expert_tensor_parallel")
GROWN = ("pipeline_parallel", "context_parallel", "tensor_parallel", "expert_parallel", "expert_tensor_parallel")
CHOICES: Mapping[str, Callable[[Ground, Layout], Iterable[Knobs]]] = {
    "start": start, "experts": experts, "stages": stages, "context": context, "fewer-stages": fewer_stages,
    "optimizer": optimizer, "parallelism": parallelism, "recomputes": recomputes, "chunks": chunks,
    "micro-batches": micro_batches, "overlap-off": overlap_off,
}
"""``choose`` of a step -> its candidates."""


def _products(lists: list[list[int]], factor: int) -> Iterator[tuple[int, ...]]:
    """One of each list, as long as all together are at most so many times the first of each."""
    if not lists:
        yield ()
        return
    first, *rest = lists
    for value in first:
        grown = value // first[0]
        if grown <= factor:
            yield from ((value, *more) for more in _products(rest, factor // grown))
