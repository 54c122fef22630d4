"""What follows from an answer about stages: layers, gaps, shares of a bubble."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.domain.balance import Balance, BalanceProblem, Body, BubbleSplit, Overfull, Placement

BODIES = tuple(Body(layers=count, forward_time=1.0, backward_times=(2.0, 3.0)) for count in (3, 5))
PROBLEM = BalanceProblem(stages=2, chunks=2, microbatches=4, bodies=BODIES, memory_bounds=(1.0, 1.0))


def placement(slot=10.0, simulated=100.0):
    counts = np.arange(16).reshape(2, 2, 2, 2)  # body, treatment, chunk, stage
    return Placement(counts=counts, slot_time=slot, simulated_time=simulated, stage_memory=(1.0, 2.0))


def test_layers_are_counted_over_bodies_and_treatments():
    assert PROBLEM.layers == 8
    assert placement().layers == ((0 + 4 + 8 + 12, 1 + 5 + 9 + 13), (2 + 6 + 10 + 14, 3 + 7 + 11 + 15))
    assert placement().treated(1) == ((4 + 12, 5 + 13), (6 + 14, 7 + 15))


def test_what_is_missing_is_demand_less_bound():
    assert Overfull(stage=0, demand=7.0, bound=4.0, proved=True).gap == 3.0


def test_a_bubble_is_the_sum_of_its_reasons():
    split = BubbleSplit(ideal_ratio=0.1, imbalance_ratio=0.02, recompute_ratio=0.003, communication_ratio=0.0004)
    assert split.total_ratio == pytest.approx(0.1234)


@pytest.mark.parametrize(
    ("objective", "slot_bound", "simulated_bound", "gap"),
    [
        ("slot", 10.0, 1.0, 0.0),
        ("slot", 8.0, 100.0, 0.2),
        ("simulated", 1.0, 100.0, 0.0),
        ("simulated", 10.0, 75.0, 0.25),
        ("slot", 10.0 * (1 - 1e-12), 1.0, 0.0),
    ],
)
def test_an_answer_is_as_far_from_the_best_as_its_own_bound_says(objective, slot_bound, simulated_bound, gap):
    split = BubbleSplit(ideal_ratio=0.0, imbalance_ratio=0.0, recompute_ratio=0.0, communication_ratio=0.0)
    found = Balance(
        problem=PROBLEM,
        objective=objective,
        best=placement(),
        slot_found=10.0,
        slot_bound=slot_bound,
        simulated_bound=simulated_bound,
        status="gap",
        gap_ratio=0.0,
        bubble=split,
        solve_s=0.1,
    )
    assert found.answer_gap_ratio == pytest.approx(gap)
