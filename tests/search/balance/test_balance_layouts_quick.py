"""The quick balance of the plan search against every placement of small pipelines."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from meshwright.domain.balance import BalanceProblem, Body, End
from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.quick import quick_placements, splits
from meshwright.search.balance.times import chunk_times, positions, simulated_times
from meshwright.search.balance.treatments import kinds_at, leading

PROBLEMS = 48


def drawn(seed: int) -> BalanceProblem:
    """A small pipeline: one body or two, heavy ends, one or two chunks; its memory is unbounded."""
    rng = random.Random(seed)
    chunks = rng.choice((1, 1, 2))
    stages = rng.choice((2, 3, 4)) if chunks == 1 else rng.choice((2, 3))
    layers = rng.randint(max(stages * chunks, 4), 10)

    def body(number: int) -> Body:
        forward, kept = rng.uniform(1.0, 4.0), rng.uniform(0.0, 4.0)
        return Body(
            layers=number, forward_time=forward, backward_times=(2.0 * forward, 3.0 * forward), static_memory=rng.uniform(0.0, 5.0),
            activation_memory=(kept, 0.1),
        )

    return BalanceProblem(
        stages=stages, chunks=chunks, microbatches=stages * rng.randint(1, 6), schedule="1f1b" if chunks == 1 else "interleaved",
        treatments=("none", "full"), bodies=(body(layers),) if rng.random() < 0.6 else (body(2), body(layers - 2)),
        first=End(forward_time=rng.uniform(0.0, 1.0), static_memory=rng.uniform(0.0, 10.0)),
        last=End(forward_time=rng.uniform(0.0, 6.0), backward_time=rng.uniform(0.0, 12.0), static_memory=rng.uniform(0.0, 10.0)),
        memory_bounds=(1e9,) * stages, recompute_rule="first",
    )


def every_placement(problem: BalanceProblem):
    """All splits whose inner chunks hold layers, with every number of leading layers recomputed."""
    places = positions(problem)
    rows = []
    for cuts in combinations(range(problem.layers + len(places) - 1), len(places) - 1):
        row = [after - before - 1 for before, after in pairwise((-1, *cuts, problem.layers + len(places) - 1))]
        if all(row[1:-1]):
            rows.append(row)
    totals = np.zeros((problem.chunks, problem.stages, len(rows)), dtype=np.int64)
    for place, (chunk, stage) in enumerate(places):
        totals[chunk, stage] = [row[place] for row in rows]
    kinds = kinds_at(problem, totals)
    kept = leading(problem, kinds, 0, 0)
    return np.concatenate([kept, *(leading(problem, kinds, 1, k) for k in range(1, problem.layers + 1))], axis=-1)


def bounded(problem: BalanceProblem, columns, share: float) -> BalanceProblem:
    """The problem under a bound that so large a share of all placements keeps."""
    fullest = stage_memory(problem, columns).max(axis=0)
    return replace(problem, memory_bounds=(float(np.quantile(fullest, share)),) * problem.stages)


@pytest.mark.parametrize("share", [0.03, 0.3, 1.0])
def test_the_quick_balance_is_near_the_best_of_all_placements_and_fits_wherever_one_does(share):
    losses: dict[int, list[float]] = {1: [], 2: []}
    for seed in range(PROBLEMS):
        problem = drawn(seed)
        columns = every_placement(problem)
        problem = bounded(problem, columns, share)
        fits = stage_memory(problem, columns).max(axis=0) <= problem.memory_bounds[0]
        best = simulated_times(problem, chunk_times(problem, columns[..., fits])).min()
        (found,) = quick_placements(problem) or (None,)
        assert found is not None, seed
        assert max(stage_memory(problem, found.counts)) <= problem.memory_bounds[0] * (1.0 + 1e-9)
        loss = float(simulated_times(problem, chunk_times(problem, found.counts))) / best - 1.0
        assert loss > -1e-9
        losses[problem.chunks].append(loss)
    assert max(losses[1]) < 0.07
    assert np.mean(losses[1]) < 0.005
    assert np.mean(losses[2]) < 0.03


def test_splits_place_every_layer_and_leave_no_inner_chunk_empty():
    for seed in range(PROBLEMS):
        problem = drawn(seed)
        found = splits(problem)
        assert (found.sum(axis=(0, 1)) == problem.layers).all()
        rows = np.stack([found[chunk, stage] for chunk, stage in positions(problem)])
        assert (rows >= 0).all()
        assert (rows[1:-1] >= 1).all()
        assert len(np.unique(rows, axis=1).T) == rows.shape[1]


@pytest.mark.parametrize("share", [0.0, 0.03, 0.3, 0.8])
def test_placements_that_are_skipped_would_change_nothing(share, monkeypatch):
    """Whatever the working sets of treatments are, and however few placements fit."""
    own, module = [], sys.modules["meshwright.search.balance.quick"]
    for seed in range(PROBLEMS):
        problem, rng = drawn(seed), random.Random(seed)
        bodies = [
            replace(
                body, activation_memory=(body.activation_memory[0], rng.uniform(0.0, 1.0) * body.activation_memory[0]),
                transient_memory=(rng.uniform(0.0, 2.0), rng.uniform(0.0, 6.0)),
            )
            for body in problem.bodies
        ]
        problem = replace(problem, bodies=tuple(bodies))
        own.append(bounded(problem, every_placement(problem), share))
    short = [quick_placements(problem, keep=3) for problem in own]
    monkeypatch.setattr(module, "_hopeful", list)
    assert [[each.layers for each in found] for found in short] == [
        [each.layers for each in quick_placements(problem, keep=3)] for problem in own
    ]
