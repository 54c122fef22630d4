"""Small balance problems drawn from a seed, for the oracle."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

from balance_oracle import held_vectors, load, of_bodies, stage_memory

from meshwright.domain.balance import BalanceProblem, Body, End

SCHEDULES = (("1f1b", 1), ("interleaved", 2), ("interleaved-less-memory", 2), ("zb1p", 1))


def drawn(seed: int) -> BalanceProblem:
    """A small problem: the schedule turns with the seed, everything else is drawn from it."""
    draw = random.Random(seed)
    schedule, chunks = SCHEDULES[seed % len(SCHEDULES)]
    if chunks == 1:
        stages, microbatches = draw.randint(2, 5), draw.randint(1, 12)
        layers = draw.randint(stages, 14)
    else:
        stages = draw.randint(2, 3)
        microbatches = draw.randint(stages, 4 * stages)
        layers = draw.randint(chunks * stages, chunks * stages + 4)
    kinds = draw.randint(1, 4 if chunks == 1 else 3)
    bodies = _bodies(draw, layers, kinds, split=schedule == "zb1p")
    problem = BalanceProblem(
        stages=stages,
        chunks=chunks,
        microbatches=microbatches,
        schedule=schedule,
        treatments=("none", "select", "both", "full")[:kinds],
        bodies=bodies,
        first=_end(draw),
        last=_end(draw),
        constant_memory=() if draw.random() < 0.7 else tuple(draw.uniform(0, 3) for _ in range(stages)),
        memory_bounds=(1e6,) * stages,
        hop_time=0.0 if draw.random() < 0.5 else draw.uniform(0.0, 2.0),
        recompute_rule="first" if kinds > 1 and draw.random() < 0.2 else "any",
    )
    problem = _fixed(draw, problem)
    return replace(problem, memory_bounds=_bounds(draw, problem))


def of_two_bodies(seed: int) -> BalanceProblem:
    """Two or three bodies that differ much, little memory, and a chunk in which they meet; at times one has no such treatment."""
    draw = random.Random(5000 + seed)
    chunks = draw.choice((1, 1, 2))
    stages, kinds = draw.randint(2, 3), draw.randint(2, 3)
    layers = draw.randint(chunks * stages + 2, chunks * stages + (4 if chunks > 1 else 6))
    cuts = sorted(draw.sample(range(1, layers), draw.choice((1, 1, 2))))
    sizes = [b - a for a, b in zip((0, *cuts), (*cuts, layers), strict=True)]
    bodies = []
    for size in sizes:
        forward, keeps = draw.uniform(1.0, 20.0), draw.uniform(0.2, 6.0)
        backward_times = [2.0 * forward + step * forward * draw.uniform(0.2, 0.5) for step in range(kinds)]
        if draw.random() < 0.15:
            backward_times[draw.randrange(1, kinds)] = inf
        kept = tuple(keeps * (1.0 - 0.9 * step / (kinds - 1)) for step in range(kinds))
        bodies.append(Body(layers=size, forward_time=forward, backward_times=tuple(backward_times), activation_memory=kept,
                           static_memory=draw.uniform(0.0, 3.0)))
    problem = BalanceProblem(
        stages=stages, chunks=chunks, microbatches=2 * stages, schedule="1f1b" if chunks == 1 else "interleaved",
        treatments=("none", "full") if kinds == 2 else ("none", "both", "full"), bodies=tuple(bodies), last=_end(draw),
        memory_bounds=(1e6,) * stages,
    )
    least, most = (_even_need(replace(problem, last=End()), treatment) for treatment in (kinds - 1, 0))
    return replace(problem, memory_bounds=(least + draw.uniform(0.1, 0.8) * abs(most - least),) * stages)


def _bodies(draw: random.Random, layers: int, kinds: int, *, split: bool) -> tuple[Body, ...]:
    several = layers >= 4 and draw.random() < 0.35
    cut = draw.randint(1, layers - 1) if several else layers
    bodies = []
    for count in (cut, layers - cut) if several else (layers,):
        forward = draw.choice((1.0, 10.0, draw.uniform(0.5, 20.0)))
        backward, keeps = 2 * forward, draw.uniform(0.5, 4.0)
        costs = sorted(draw.uniform(0.02, 1.0) for _ in range(kinds - 1))
        saves = sorted((draw.uniform(0.02, 0.95) for _ in range(kinds - 1)), reverse=True)
        bodies.append(
            Body(
                layers=count,
                forward_time=forward,
                backward_times=(backward, *(backward + cost * forward for cost in costs)),
                weight_time=draw.uniform(0.2, 1.0) * forward if split else 0.0,
                static_memory=draw.uniform(0.0, 6.0),
                activation_memory=(keeps, *(share * keeps for share in saves)),
                transient_memory=tuple(draw.uniform(0.0, 4.0) for _ in range(kinds)) if draw.random() < 0.4 else (),
            )
        )
    return tuple(bodies)


def _end(draw: random.Random) -> End:
    if draw.random() < 0.3:
        return End()
    forward = draw.uniform(0.0, 10.0)
    return End(
        forward_time=forward,
        backward_time=2 * forward,
        weight_time=forward * draw.random(),
        static_memory=draw.uniform(0.0, 8.0),
        activation_memory=draw.choice((0.0, draw.uniform(0.0, 2.0))),
        transient_memory=draw.choice((0.0, draw.uniform(0.0, 8.0))),
    )


def _fixed(draw: random.Random, problem: BalanceProblem) -> BalanceProblem:
    """Now and then the split or the recomputation is given."""
    if draw.random() < 0.15:
        sizes = [1] * (problem.stages * problem.chunks)
        for _ in range(problem.layers - len(sizes)):
            sizes[draw.randrange(len(sizes))] += 1
        rows = [sizes[i : i + problem.stages] for i in range(0, len(sizes), problem.stages)]
        return replace(problem, fixed_layers=tuple(tuple(row) for row in rows))
    if draw.random() < 0.1 and len(problem.treatments) > 1:
        return replace(problem, fixed_recompute=(draw.choice(problem.treatments[1:]), draw.randint(0, 4)))
    return problem


def _bounds(draw: random.Random, problem: BalanceProblem) -> tuple[float, ...]:
    """Between what an even split needs that recomputes all and one that keeps all; a little less, or plenty."""
    kinds = len(problem.treatments)
    least, most = (_even_need(problem, treatment) for treatment in (kinds - 1, 0))
    level = least + draw.choice((-0.2, 0.02, 0.1, 0.25, 0.5, 0.75, 1.0, 3.0)) * max(most - least, 0.1 * least)
    if draw.random() < 0.3:
        return tuple(level * draw.uniform(0.95, 1.3) for _ in range(problem.stages))
    return (level,) * problem.stages


def _even_need(problem: BalanceProblem, treatment: int) -> float:
    """What the fullest stage holds if chunks are as alike as whole layers allow."""
    places = problem.stages * problem.chunks
    sizes = [problem.layers // places + (place < problem.layers % places) for place in range(places)]
    if problem.fixed_layers is not None:
        sizes = [layers for row in problem.fixed_layers for layers in row]
    needs = []
    for stage in range(problem.stages):
        loads = []
        for chunk in range(problem.chunks):
            place = chunk * problem.stages + stage
            bodies = of_bodies(problem, sum(sizes[:place]), sizes[place])
            pieces = tuple(tuple(layers * (kind == treatment) for kind in range(len(problem.treatments))) for layers in bodies)
            loads.append(load(problem, chunk, stage, pieces))
        needs.append(stage_memory(problem, stage, tuple(loads), held_vectors(problem, stage)))
    return max(needs)
