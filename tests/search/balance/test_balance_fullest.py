"""Stages filled one by one beside every placement: together they hold the layers at the least slot, and not at a shorter one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balance_cases import drawn
from balance_oracle import brute_force, fits, held_vectors, load, stage_memory
from tests.draws import draws

from meshwright.domain.balance import BalanceProblem
from meshwright.search.balance.fullest import Fullest

PLENTY = 1e6
"""A slot that is longer than any of the drawn problems has."""


def free(seed: int) -> BalanceProblem | None:
    """A drawn problem of one body whose chunks choose freely."""
    problem = drawn(seed)
    if len(problem.bodies) > 1:
        return None
    return replace(problem, recompute_rule="any", fixed_layers=None, fixed_recompute=None)


CASES = [(seed, problem) for seed in range(draws(120)) if (problem := free(seed)) is not None]


@pytest.mark.parametrize(("seed", "problem"), CASES, ids=[str(seed) for seed, _ in CASES])
def test_stages_together_hold_the_layers_at_the_least_slot_only(seed: int, problem: BalanceProblem) -> None:
    least = brute_force(problem, simulated=False).slot
    stages = Fullest(problem)

    def hold(slot: float) -> bool:
        found = [stages.most(stage, slot)[0] for stage in range(problem.stages)]
        return min(found) >= 0 and sum(found) >= problem.layers

    assert hold(PLENTY) == bool(np.isfinite(least)), seed
    if np.isfinite(least):
        assert hold(least)
        assert not hold(least * (1 - 1e-6))


@pytest.mark.parametrize(("seed", "problem"), CASES, ids=[str(seed) for seed, _ in CASES])
def test_a_filling_is_what_it_says_and_stays_under_slot_and_bound(seed: int, problem: BalanceProblem) -> None:
    slot = 0.5 * problem.layers * (problem.bodies[0].forward_time + problem.bodies[0].backward_times[0])
    for stage in range(problem.stages):
        layers, counts = Fullest(problem).most(stage, slot)
        if counts is None:
            continue
        assert counts.sum() == layers, seed
        loads = tuple(
            load(problem, chunk, stage, (tuple(int(count) for count in counts[:, chunk]),)) for chunk in range(problem.chunks)
        )
        assert max(each.forward for each in loads) + max(each.backward for each in loads) <= slot * (1 + 1e-8)
        assert fits(stage_memory(problem, stage, loads, held_vectors(problem, stage)), problem.memory_bounds[stage])
