"""Stage balance worked out again, plainly: orders, memory, simulation, every placement of a small problem.

Shares nothing with the solver but the values of ``domain.balance``. Durations are arrays whose last axis is placements, so that
many are simulated in one walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.balance import Balance, BalanceProblem, Placement

Pieces = tuple[tuple[tuple[int, ...], ...], ...]
"""What one chunk holds: layers by body and treatment."""

TOLERANCE = 1e-9


def same(ours: float, theirs: float) -> bool:
    """Equal but for rounding."""
    return abs(ours - theirs) <= TOLERANCE * max(1.0, abs(ours), abs(theirs))


# Orders ---------------------------------------------------------------------------------------------------------------


def group_of(stages: int, microbatches: int) -> int:
    """Megatron's smallest legal group of micro-batches; the number of stages where there are fewer micro-batches."""
    for group in range(stages, microbatches + 1):
        if microbatches % group == 0 or microbatches % group >= stages:
            return group
    return stages


def stage_order(problem: BalanceProblem, stage: int) -> list[tuple[str, int, int]]:
    """(kind, micro-batch, chunk) in the order in which one stage runs them."""
    stages, chunks, count = problem.stages, problem.chunks, problem.microbatches
    group = group_of(stages, count) if chunks > 1 else 1
    turns = [
        (m, chunk) for first in range(0, count, group) for chunk in range(chunks) for m in range(first, min(first + group, count))
    ]
    forwards = [("F", m, chunk) for m, chunk in turns]
    backwards = [("B", m, chunks - 1 - chunk) for m, chunk in turns]
    ahead = {
        "1f1b": stages - stage - 1,
        "zb1p": stages - stage - 1,
        "interleaved": 2 * (stages - stage - 1) + (chunks - 1) * group,
        "interleaved-less-memory": stages - stage - 1 + (chunks - 1) * group,
    }[problem.schedule]
    order, done = [], 0
    for place, backward in enumerate(backwards):
        while done < len(forwards) and done < ahead + place + 1:
            order.append(forwards[done])
            done += 1
        order.append(backward)
    return _with_weights(order, stage, stages, count) if problem.schedule == "zb1p" else order


def _with_weights(order: list[tuple[str, int, int]], stage: int, stages: int, count: int) -> list[tuple[str, int, int]]:
    """ZB-H1: the weight gradient of a micro-batch comes ``stage`` backwards later, or when nothing else is left."""
    lag = min(stage, max(0, count - (stages - stage - 1)))
    late = []
    for kind, m, _ in order:
        late.append((kind, m, 0))
        if kind == "B" and m >= lag:
            late.append(("W", m - lag, 0))
    return late + [("W", m, 0) for m in range(count - lag, count)]


def held_vectors(problem: BalanceProblem, stage: int) -> set[tuple[int, ...]]:
    """Micro-batches in flight by chunk whenever an operation of this stage ends its first instant: all that occur."""
    held, seen = [0] * problem.chunks, set()
    frees = "W" if problem.schedule == "zb1p" else "B"
    for kind, _, chunk in stage_order(problem, stage):
        if kind == "F":
            held[chunk] += 1
        seen.add(tuple(held))
        if kind == frees:
            held[chunk] -= 1
    return seen


# Times ----------------------------------------------------------------------------------------------------------------


def simulate(problem: BalanceProblem, forward: np.ndarray, backward: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Time until the last operation ends; durations ``[chunk, stage, placement]``, the weight part included in the backward."""
    queues = [stage_order(problem, stage)[::-1] for stage in range(problem.stages)]
    now = [np.zeros(forward.shape[2]) for _ in queues]
    end: dict[tuple[str, int, int], np.ndarray] = {}
    split = problem.schedule == "zb1p"
    last = problem.stages * problem.chunks - 1
    while any(queues):
        before = len(end)
        for stage, queue in enumerate(queues):
            while queue:
                kind, m, chunk = queue[-1]
                place = chunk * problem.stages + stage
                source = {"F": ("F", m, place - 1), "B": ("B", m, place + 1), "W": ("B", m, place)}[kind]
                if kind == "F" and place == 0:
                    source = None
                elif kind == "B" and place == last:
                    source = ("F", m, place)
                if source is not None and source not in end:
                    break
                if source is not None:
                    hop = problem.hop_time if source[2] % problem.stages != stage else 0.0
                    now[stage] = np.maximum(now[stage], end[source] + hop)
                lasting = {
                    "F": forward[chunk, stage],
                    "B": backward[chunk, stage] - (weight[chunk, stage] if split else 0.0),
                    "W": weight[chunk, stage],
                }[kind]
                now[stage] = now[stage] + lasting
                end[kind, m, place] = now[stage]
                queue.pop()
        assert len(end) > before, "deadlock"
    return np.max(now, axis=0)


def slot(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """Longest forward of one chunk plus backward of one chunk of the same stage; arrays ``[chunk, stage, placement]``."""
    return (forward.max(axis=0) + backward.max(axis=0)).max(axis=0)


# One chunk, one stage -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """What one chunk of one stage costs."""

    pieces: Pieces
    forward: float
    backward: float
    weight: float
    static: float
    activation: float
    transient: float


def load(problem: BalanceProblem, chunk: int, stage: int, pieces: Pieces) -> Load:
    """Costs of layers by body and treatment standing on a chunk, the ends included."""
    ends = [problem.first] * (chunk == stage == 0)
    ends += [problem.last] * (stage == problem.stages - 1 and chunk == problem.chunks - 1)
    forward = sum(end.forward_time for end in ends)
    backward = sum(end.backward_time for end in ends)
    weight = sum(end.weight_time for end in ends)
    static = sum(end.static_memory for end in ends)
    activation = sum(end.activation_memory for end in ends)
    transient = max((end.transient_memory for end in ends), default=0.0)
    for body, treated in zip(problem.bodies, pieces, strict=True):
        layers = sum(treated)
        forward += layers * body.forward_time
        weight += layers * body.weight_time
        static += layers * body.static_memory
        for treatment, count in enumerate(treated):
            if count:
                backward += count * body.backward_times[treatment]
                activation += count * (body.activation_memory[treatment] if body.activation_memory else 0.0)
                transient = max(transient, body.transient_memory[treatment] if body.transient_memory else 0.0)
    return Load(pieces, forward, backward, weight, static, activation, transient)


def stage_memory(problem: BalanceProblem, stage: int, loads: tuple[Load, ...], vectors: set[tuple[int, ...]]) -> float:
    """What a stage holds at most."""
    constant = problem.constant_memory[stage] if problem.constant_memory else 0.0
    held = max(sum(n * chunk.activation for n, chunk in zip(vector, loads, strict=True)) for vector in vectors)
    return constant + sum(chunk.static for chunk in loads) + held + max(chunk.transient for chunk in loads)


def fits(memory: float, bound: float) -> bool:
    """Within the bound but for rounding."""
    return memory <= bound + TOLERANCE * max(1.0, abs(bound))


# Every placement ------------------------------------------------------------------------------------------------------


def splits(problem: BalanceProblem) -> Iterator[tuple[int, ...]]:
    """Layers of every chunk in the model's order; the first and the last may be empty."""
    if problem.fixed_layers is not None:
        yield tuple(n for row in problem.fixed_layers for n in row)
        return
    places, layers = problem.stages * problem.chunks, problem.layers
    if places == 1:
        yield (layers,)
        return
    for cuts in combinations(range(1, layers + 2), places - 1):
        edges = (0, *cuts, layers + 2)
        sizes = [b - a for a, b in pairwise(edges)]
        yield (sizes[0] - 1, *sizes[1:-1], sizes[-1] - 1)


def of_bodies(problem: BalanceProblem, begin: int, layers: int) -> tuple[int, ...]:
    """How many of the layers from ``begin`` on belong to each body."""
    counts, start = [], 0
    for body in problem.bodies:
        counts.append(max(0, min(begin + layers, start + body.layers) - max(begin, start)))
        start += body.layers
    return tuple(counts)


def ways(total: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """Every way to give ``total`` layers one of ``kinds`` treatments each."""
    if kinds == 1:
        yield (total,)
        return
    for head in range(total + 1):
        for rest in ways(total - head, kinds - 1):
            yield (head, *rest)


def leading(problem: BalanceProblem, bodies: tuple[int, ...], treatment: int, count: int) -> Pieces:
    """The first ``count`` layers of a chunk under one treatment, the others kept."""
    pieces = []
    for layers in bodies:
        treated = [0] * len(problem.treatments)
        treated[treatment] += min(count, layers)
        treated[0] += layers - min(count, layers)
        count -= min(count, layers)
        pieces.append(tuple(treated))
    return tuple(pieces)


def available(problem: BalanceProblem, pieces: Pieces) -> bool:
    """Whether each body can be treated so."""
    return all(
        not count or np.isfinite(body.backward_times[treatment])
        for body, treated in zip(problem.bodies, pieces, strict=True)
        for treatment, count in enumerate(treated)
    )


def sayable(pieces: Pieces) -> bool:
    """Whether the lists of frameworks can say it: along a chunk no layer is treated more heavily than one before it."""
    present = [[treatment for treatment, count in enumerate(body) if count] for body in pieces if any(body)]
    return all(min(before) >= max(behind) for before, behind in pairwise(present))


def choices(problem: BalanceProblem) -> Iterator[tuple[int, int] | None]:
    """What ties the chunks together: (treatment, leading layers) of all of them, or nothing."""
    if problem.fixed_recompute is not None:
        name, count = problem.fixed_recompute
        yield problem.treatments.index(name), count
    elif problem.recompute_rule == "first":
        yield 0, 0
        yield from product(range(1, len(problem.treatments)), range(1, problem.layers + 1))
    else:
        yield None


def undominated(options: list[tuple[Load, ...]]) -> list[tuple[Load, ...]]:
    """Options of one stage, all of the same layers, that no other beats or equals in every chunk's backward."""
    kept: dict[tuple[float, ...], tuple[Load, ...]] = {}
    for option in options:
        kept.setdefault(tuple(chunk.backward for chunk in option), option)
    return [
        option
        for times, option in kept.items()
        if not any(other != times and all(a <= b for a, b in zip(other, times, strict=True)) for other in kept)
    ]


@dataclass(frozen=True)
class Brute:
    """The best of all placements; infinite where none fits."""

    slot: float
    simulated: float
    simulated_within_slot: float
    """Of the placements with the least slot."""
    placements: int


def brute_force(problem: BalanceProblem, *, simulated: bool = True) -> Brute:
    """Every split, and of every stage each undominated choice of treatments that fits."""
    vectors = [held_vectors(problem, stage) for stage in range(problem.stages)]
    found: list[tuple[tuple[Load, ...], ...]] = []
    best = np.inf
    memo: dict[object, list[tuple[Load, ...]]] = {}
    for choice in choices(problem):
        for sizes in splits(problem):
            starts = np.concatenate(([0], np.cumsum(sizes)))
            stage_options = []
            for stage in range(problem.stages):
                places = [chunk * problem.stages + stage for chunk in range(problem.chunks)]
                bodies = tuple(of_bodies(problem, int(starts[j]), sizes[j]) for j in places)
                key = (choice, stage, bodies)
                if key not in memo:
                    memo[key] = _options(problem, stage, bodies, choice, vectors[stage])
                stage_options.append(memo[key])
            if not all(stage_options):
                continue
            best = min(best, max(min(_slot_of(option) for option in options) for options in stage_options))
            if simulated:
                found += product(*stage_options)
    if not found:
        return Brute(best, np.inf, np.inf, 0)
    slots, times = (
        np.concatenate(each)
        for each in zip(*(_timed(problem, found[i : i + 20000]) for i in range(0, len(found), 20000)), strict=True)
    )
    return Brute(best, float(times.min()), float(times[slots <= best * (1 + TOLERANCE)].min()), len(found))


def _options(
    problem: BalanceProblem,
    stage: int,
    bodies: tuple[tuple[int, ...], ...],
    choice: tuple[int, int] | None,
    vectors: set[tuple[int, ...]],
) -> list[tuple[Load, ...]]:
    if choice is None:
        every = [product(*(ways(layers, len(problem.treatments)) for layers in chunk)) for chunk in bodies]
        per_chunk = [list(filter(sayable, options)) for options in every]
    else:
        per_chunk = [[leading(problem, chunk, *choice)] for chunk in bodies]
    loads = [
        [load(problem, chunk, stage, pieces) for pieces in options if available(problem, pieces)]
        for chunk, options in enumerate(per_chunk)
    ]
    return undominated(
        [option for option in product(*loads) if fits(stage_memory(problem, stage, option, vectors), problem.memory_bounds[stage])]
    )


def _slot_of(option: tuple[Load, ...]) -> float:
    return max(chunk.forward for chunk in option) + max(chunk.backward for chunk in option)


def _timed(problem: BalanceProblem, found: list[tuple[tuple[Load, ...], ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Slot and simulated time of placements."""

    def table(name: str) -> np.ndarray:
        rows = [[[getattr(chunk, name) for chunk in stage] for stage in placement] for placement in found]
        return np.array(rows, dtype=float).transpose(2, 1, 0)

    forward, backward, weight = (table(name) for name in ("forward", "backward", "weight"))
    return slot(forward, backward), simulate(problem, forward, backward, weight)


def busiest_stage(problem: BalanceProblem) -> float:
    """The least slot of a problem of one chunk and one body, by a table over stages and layers placed; infinite: none fits."""
    assert problem.chunks == 1 and len(problem.bodies) == 1 and problem.recompute_rule == "any" and problem.fixed_layers is None
    layers, stages = problem.layers, problem.stages
    done = [0.0] + [np.inf] * layers
    for stage in range(stages):
        vectors = held_vectors(problem, stage)
        least = 0 if stage in (0, stages - 1) else 1
        own = []
        for count in range(layers + 1):
            full = count > 1 and own[-1] == np.inf  # one layer more is never less memory
            options = [] if full else _options(problem, stage, ((count,),), None, vectors)
            own.append(min((_slot_of(option) for option in options), default=np.inf) if count >= least else np.inf)
        done = [min(max(done[total - count], own[count]) for count in range(total + 1)) for total in range(layers + 1)]
    return done[layers]


# What was answered ----------------------------------------------------------------------------------------------------


def loads_of(problem: BalanceProblem, placement: Placement) -> tuple[tuple[Load, ...], ...]:
    """Costs by stage and chunk of a placement."""
    counts = placement.counts
    return tuple(
        tuple(
            load(problem, chunk, stage, tuple(tuple(int(n) for n in body) for body in counts[:, :, chunk, stage]))
            for chunk in range(problem.chunks)
        )
        for stage in range(problem.stages)
    )


def violations(problem: BalanceProblem, placement: Placement) -> list[str]:
    """Every constraint that a placement breaks and every figure of it that is wrong."""
    counts = np.asarray(placement.counts)
    said = []
    if counts.shape != (len(problem.bodies), len(problem.treatments), problem.chunks, problem.stages):
        return [f"shape {counts.shape}"]
    if (counts < 0).any() or not np.issubdtype(counts.dtype, np.integer):
        said.append("counts are not whole and positive")
    sizes = tuple(int(n) for n in counts.sum(axis=(0, 1)).reshape(-1))
    if sizes not in set(_legal(problem, sizes)):
        said.append(f"split {sizes}")
    start = 0
    for place, size in enumerate(sizes):
        chunk, stage = divmod(place, problem.stages)
        if tuple(counts[:, :, chunk, stage].sum(axis=1)) != of_bodies(problem, start, size):
            said.append(f"bodies out of order at {place}")
        start += size
    loads = loads_of(problem, placement)
    if not all(available(problem, chunk.pieces) for stage in loads for chunk in stage):
        said.append("a treatment that a body does not have")
    if not all(sayable(chunk.pieces) for stage in loads for chunk in stage):
        said.append("recomputed layers are not the first of their chunk")
    ties = list(choices(problem))
    if ties != [None] and not any(
        all(chunk.pieces == leading(problem, tuple(sum(t) for t in chunk.pieces), *tie) for stage in loads for chunk in stage)
        for tie in ties
    ):
        said.append("recomputation breaks its rule")
    for stage in range(problem.stages):
        memory = stage_memory(problem, stage, loads[stage], held_vectors(problem, stage))
        if not fits(memory, problem.memory_bounds[stage]):
            said.append(f"stage {stage} holds {memory} of {problem.memory_bounds[stage]}")
        if not same(memory, placement.stage_memory[stage]):
            said.append(f"stage {stage} is said to hold {placement.stage_memory[stage]}, but holds {memory}")
    slot_time, simulated = (float(each[0]) for each in _timed(problem, [loads]))
    if not same(slot_time, placement.slot_time):
        said.append(f"slot {placement.slot_time}, but {slot_time}")
    if not same(simulated, placement.simulated_time):
        said.append(f"simulated {placement.simulated_time}, but {simulated}")
    return said


def _legal(problem: BalanceProblem, sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if problem.fixed_layers is not None:
        yield from splits(problem)
    elif sum(sizes) == problem.layers and min(sizes) >= 0 and min(sizes[1:-1], default=1) >= 1:
        yield sizes


def all_violations(answer: Balance) -> list[str]:
    """Of the best placement and of the others; and an order that is not one."""
    said = violations(answer.problem, answer.best)
    for index, other in enumerate(answer.others):
        said += [f"other {index}: {text}" for text in violations(answer.problem, other)]
        if other.simulated_time < answer.best.simulated_time * (1 - TOLERANCE):
            said.append(f"other {index} is faster than the best")
    if answer.faster is not None:
        said += [f"faster: {text}" for text in violations(answer.problem, answer.faster)]
    tables = {placement.counts.tobytes() for placement in (answer.best, *answer.others)}
    if len(tables) != 1 + len(answer.others):
        said.append("others repeat a placement")
    return said
