"""Answers that lists of first layers can say: against every way of treating the layers where they stand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from meshwright.domain.balance import BalanceProblem, Body
from meshwright.search.balance.listable import crosses, listable
from meshwright.search.balance.solve import balance, place

PAIR = ("selective", "communication")
TREATMENTS = ("none", *PAIR, "both", "full")


def problem(bound: float, **changes) -> BalanceProblem:
    body = Body(layers=9, forward_time=10.0, backward_times=(20.0, 21.0, 23.0, 24.0, 30.0), static_memory=10.0,
                activation_memory=(9.0, 6.0, 5.0, 3.5, 1.0))
    return BalanceProblem(**{"stages": 3, "microbatches": 6, "treatments": TREATMENTS, "bodies": (body,),
                             "memory_bounds": (bound,) * 3, **changes})


def crossing_placement(asked: BalanceProblem):
    """Three layers a stage, the first stage with one of each of the pair."""
    counts = np.zeros((1, 5, 1, 3), dtype=np.int64)
    counts[0, :, 0, 0] = (0, 1, 1, 0, 1)
    counts[0, 0, 0, 1:] = 3
    return place(asked, counts)


@pytest.mark.parametrize("bound", [45.0, 60.0, 66.0, 70.0, 90.0, 120.0])
def test_a_chunk_is_treated_in_the_fastest_way_that_fits(bound):
    asked = problem(bound)
    start = crossing_placement(asked)
    assert crosses(asked, start, PAIR)
    found = listable(asked, (start,), PAIR)
    ways = [way for way in product(range(4), repeat=5) if sum(way) == 3 and not (way[1] and way[2])]
    memory = {way: 30 + 3 * sum(n * size for n, size in zip(way, (9, 6, 5, 3.5, 1), strict=True)) for way in ways}
    fitting = [way for way in ways if memory[way] <= bound]
    if not fitting:
        assert found is None
        return
    assert not crosses(asked, found, PAIR)
    assert (found.counts.sum(axis=1) == start.counts.sum(axis=1)).all()
    backward = [sum(n * time for n, time in zip(way, (20, 21, 23, 24, 30), strict=True)) for way in fitting]
    mine = sum(n * time for n, time in zip(found.counts[0, :, 0, 0], (20, 21, 23, 24, 30), strict=True))
    assert mine == min(backward)


def test_an_answer_keeps_its_layers_and_its_bounds():
    asked = problem(62.0)
    answer = balance(asked, time_limit_s=2.0)
    found = listable(asked, (answer.best, *answer.others), PAIR)
    assert not crosses(asked, found, PAIR)
    assert max(found.stage_memory) <= 62.0
    assert found.simulated_time >= answer.simulated_bound


def test_treatments_without_the_pair_never_cross():
    plain = problem(90.0, treatments=("none", "full"), bodies=(
        Body(layers=9, forward_time=10.0, backward_times=(20.0, 30.0), activation_memory=(9.0, 1.0)),
    ))
    counts = np.zeros((1, 2, 1, 3), dtype=np.int64)
    counts[0, :, 0, :] = ((2, 2, 2), (1, 1, 1))
    placement = place(plain, counts)
    assert not crosses(plain, placement, PAIR)
    assert listable(plain, (placement,), PAIR).simulated_time == placement.simulated_time


def test_many_layers_change_only_the_treatment_of_the_pair():
    body = Body(layers=60, forward_time=1.0, backward_times=(2.0, 2.1, 2.3, 2.4, 3.0), activation_memory=(9.0, 6.0, 5.0, 3.5, 1.0))
    asked = BalanceProblem(stages=1, microbatches=2, treatments=TREATMENTS, bodies=(body,), memory_bounds=(400.0,))
    counts = np.zeros((1, 5, 1, 1), dtype=np.int64)
    counts[0, :, 0, 0] = (20, 10, 10, 10, 10)
    found = listable(asked, (place(asked, counts),), PAIR)
    assert not crosses(asked, found, PAIR)
    assert found.counts[0, 0, 0, 0] >= 20
    assert max(found.stage_memory) <= 400.0
