"""Models of several bodies: of a chunk in which they meet the first layers are recomputed, as the frameworks' lists say it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from balance_cases import of_two_bodies
from balance_oracle import Brute, all_violations, brute_force, same, violations
from tests.draws import draws

from meshwright.domain.balance import Balance, Overfull
from meshwright.search.balance.quick import quick_placements
from meshwright.search.balance.solve import balance, place

SEEDS = range(draws(16))


@cache
def answer(seed: int) -> Balance | Overfull:
    return balance(of_two_bodies(seed))


@cache
def truth(seed: int) -> Brute:
    return brute_force(of_two_bodies(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_placements_are_what_lists_can_say_and_their_figures_belong_to_them(seed: int) -> None:
    found = answer(seed)
    assert isinstance(found, Overfull) == (truth(seed).slot == np.inf)
    if isinstance(found, Balance):
        assert not all_violations(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_is_near_the_fastest_that_lists_can_say(seed: int) -> None:
    found, best = answer(seed), truth(seed)
    if isinstance(found, Balance):
        assert found.slot_bound <= best.slot or same(found.slot_bound, best.slot)
        assert best.simulated <= found.best.simulated_time * (1 + 1e-9)
        assert found.best.simulated_time <= best.simulated * 1.01


def test_slots_are_proved_among_what_lists_can_say() -> None:
    answers = [found for seed in SEEDS if isinstance(found := answer(seed), Balance)]
    assert len(answers) >= len(SEEDS) // 2
    assert sum(found.status == "optimal" for found in answers) >= 0.9 * len(answers)


@pytest.mark.parametrize("seed", SEEDS)
def test_quick_placements_are_what_lists_can_say(seed: int) -> None:
    problem = of_two_bodies(seed)
    for found in quick_placements(problem, keep=3):
        assert not violations(problem, place(problem, found.counts))
