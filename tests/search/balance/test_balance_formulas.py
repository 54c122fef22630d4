"""Times, memory and bounds of the solver beside the oracle, for placements that nobody chose."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from balance_cases import drawn
from balance_oracle import held_vectors, load, of_bodies, simulate, slot, stage_memory

from meshwright.domain.balance import BalanceProblem
from meshwright.search.balance import memory, times
from meshwright.search.balance.lower import lower_bounds

SHAPES = (
    ("1f1b", 1), ("zb1p", 1), ("interleaved", 2), ("interleaved", 3), ("interleaved", 4), ("interleaved-less-memory", 2),
    ("interleaved-less-memory", 3),
)
COLUMNS = 32


def shaped(seed: int) -> tuple[BalanceProblem, random.Random]:
    """A pipeline whose stages need not divide the micro-batches, with hops from none to longer than a chunk."""
    draw = random.Random(seed)
    schedule, chunks = SHAPES[seed % len(SHAPES)]
    stages = draw.randint(1, 6) if chunks == 1 else draw.randint(2, 5)
    least = 1 if chunks == 1 else stages
    microbatches = draw.choice((least, least + 1, draw.randint(least, 12), draw.randint(12, 50)))
    hop = draw.choice((0.0, draw.uniform(0.0, 1.0), draw.uniform(0.0, 30.0)))
    problem = replace(
        drawn(4), stages=stages, chunks=chunks, microbatches=microbatches, schedule=schedule, hop_time=hop, constant_memory=(),
        memory_bounds=(1.0,) * stages, fixed_layers=None, fixed_recompute=None, recompute_rule="any",
    )
    return problem, draw


@pytest.mark.parametrize("seed", range(42))
def test_simulation_agrees_and_no_bound_exceeds_it(seed: int) -> None:
    problem, draw = shaped(seed)
    numbers = np.random.default_rng(seed)
    shape = (problem.chunks, problem.stages, COLUMNS)
    forward = numbers.uniform(0.0, draw.choice((1.0, 10.0)), shape)
    backward = numbers.uniform(0.0, 20.0, shape) if draw.random() < 0.5 else 2 * forward
    weight = backward * numbers.uniform(0.0, 1.0, shape) if problem.schedule == "zb1p" else np.zeros(shape)
    chunk_times = times.ChunkTimes(*(np.swapaxes(each, 0, 1).copy() for each in (forward, backward - weight, weight)))
    truth = simulate(problem, forward, backward, weight)
    assert np.allclose(times.simulated_times(problem, chunk_times), truth, rtol=1e-9)
    assert np.allclose(times.slot_times(chunk_times), slot(forward, backward), rtol=1e-12)
    assert (lower_bounds(problem, chunk_times) <= truth * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(42))
def test_memory_agrees_at_the_fullest_moment(seed: int) -> None:
    problem = drawn(seed)
    draw = random.Random(seed)
    places = problem.stages * problem.chunks
    cuts = sorted(draw.randint(0, problem.layers) for _ in range(places - 1))
    sizes = [end - begin for begin, end in zip((0, *cuts), (*cuts, problem.layers), strict=True)]
    counts = np.zeros((len(problem.bodies), len(problem.treatments), problem.chunks, problem.stages), dtype=np.int64)
    for place, size in enumerate(sizes):
        chunk, stage = divmod(place, problem.stages)
        for body, layers in enumerate(of_bodies(problem, sum(sizes[:place]), size)):
            for _ in range(layers):
                counts[body, draw.randrange(len(problem.treatments)), chunk, stage] += 1
    ours = memory.stage_memory(problem, counts)
    for stage in range(problem.stages):
        loads = tuple(
            load(problem, chunk, stage, tuple(tuple(int(n) for n in body) for body in counts[:, :, chunk, stage]))
            for chunk in range(problem.chunks)
        )
        assert ours[stage] == pytest.approx(stage_memory(problem, stage, loads, held_vectors(problem, stage)), rel=1e-9)


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("zb1p", 1), ("interleaved", 2)])
def test_the_short_form_of_a_long_pipeline_grows_by_its_busiest_stage_at_least(schedule: str, chunks: int) -> None:
    """Where early rounds wait for other stages, more of them hide work of the busiest one, which later rounds cannot."""
    hidden = 0
    for seed in range(6):
        numbers, stages = np.random.default_rng(seed), 4
        problem = replace(
            drawn(4), stages=stages, chunks=chunks, microbatches=20 * stages, schedule=schedule, hop_time=0.0, constant_memory=(),
            memory_bounds=(1.0,) * stages, fixed_layers=None, fixed_recompute=None, recompute_rule="any",
        )
        forward = numbers.uniform(0.0, 10.0, (stages, chunks, COLUMNS))
        backward = numbers.uniform(0.0, 20.0, (stages, chunks, COLUMNS))
        weight = backward * numbers.uniform(0.0, 1.0, backward.shape) if schedule == "zb1p" else 0.0 * backward
        chunk_times = times.ChunkTimes(forward, backward - weight, weight)
        short, whole = (times.simulated_times(problem, chunk_times, short=short) for short in (True, False))
        assert np.allclose(short, whole, rtol=0.04)
        few = replace(problem, microbatches=times.short_microbatches(problem))
        more = replace(few, microbatches=few.microbatches + stages)
        first, longer = (times.simulated_times(each, chunk_times) for each in (few, more))
        busiest = (forward + backward).sum(axis=1).max(axis=0)
        hidden += int(((longer - first) / stages < busiest * (1 - 1e-6)).sum())
        left = problem.microbatches - few.microbatches
        assert (short >= first + left * busiest - 1e-6).all()
    assert hidden
