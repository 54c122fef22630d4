"""SAPP's cases T1 and T9 and models of 126 layers: at least as good as every answer that was published or measured for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from balance_oracle import all_violations, held_vectors, loads_of, simulate, stage_memory
from benchmarks.balance_cases import LARGE, LS1, PUBLISHED, Published
from tests.draws import one_of

from meshwright.domain.balance import Balance, BalanceProblem, Overfull, Placement
from meshwright.search.balance.solve import balance

LISTED = (
    (16, (-1, 0, -1, -1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0), (3, 3, 2, 2, 2, 2, 1, 1, *(0,) * 8), 111_510.0),
    (16, (-3, 0, -2, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0), (1, 3, 0, 1, 2, 2, 1, 1, *(0,) * 8), 110_610.0),
    (64, (-3, 0, -2, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0), (1, 3, 0, 1, 2, 2, 1, 1, *(0,) * 8), 292_050.0),
)
"""Micro-batches, offsets, fully recomputed layers and the simulated time of answers that were published in full (T1, T9)."""
PARAMETERS_MB = (18915, 9498, 7915, 7915, *(9498,) * 6, 11081, 11081, 9498, 9498, 11081, 11971)
ACTIVATIONS_MB = (1748, 2574, 2542, 2542, 3368, 3368, 4162, 4162, 4956, 4956, 5782, 5782, 4956, 4956, 5782, 4956)
"""Golden memory of the first of them: parameters, and activations of one micro-batch."""


def listed(offsets: tuple[int, ...], recomputed: tuple[int, ...]) -> Placement:
    """A published answer as a placement without figures."""
    layers, full = 6 + np.array(offsets), np.array(recomputed)
    counts = np.stack((layers - full, full))[None, :, None, :]
    return Placement(counts=counts, slot_time=0.0, simulated_time=0.0, stage_memory=(0.0,) * 16)


@pytest.mark.parametrize(("microbatches", "offsets", "recomputed", "simulated"), LISTED)
def test_the_oracle_simulates_published_answers_as_they_were(
    microbatches: int, offsets: tuple[int, ...], recomputed: tuple[int, ...], simulated: float
) -> None:
    problem = replace(LS1, microbatches=microbatches)
    loads = loads_of(problem, listed(offsets, recomputed))
    forward, backward, weight = (
        np.array([[[getattr(chunk, name)] for chunk in stage] for stage in loads]).transpose(1, 0, 2)
        for name in ("forward", "backward", "weight")
    )
    assert simulate(problem, forward, backward, weight)[0] == pytest.approx(simulated)


def test_the_oracle_counts_the_memory_of_the_golden_answer_as_it_was() -> None:
    for stage, ((chunk,), parameters, activation) in enumerate(
        zip(loads_of(LS1, listed(*LISTED[0][1:3])), PARAMETERS_MB, ACTIVATIONS_MB, strict=True)
    ):
        assert (chunk.static, chunk.activation) == (parameters, activation)
        assert stage_memory(LS1, stage, (chunk,), held_vectors(LS1, stage)) == parameters + (16 - stage) * activation


def balanced(problem: BalanceProblem, good: Callable[[Balance | Overfull], bool]) -> Balance | Overfull:
    """The answer after a second, or after the time that a user's search has, where the first is not good yet."""
    found = balance(problem, time_limit_s=1.0)
    return found if good(found) else balance(problem)


@pytest.mark.parametrize("case", PUBLISHED, ids=[case.name for case in PUBLISHED])
def test_answers_reach_the_published_ones(case: Published) -> None:
    def reaches(found: Balance | Overfull) -> bool:
        proved = case.slot is None or found.status == "optimal"
        return isinstance(found, Balance) and proved and found.best.simulated_time <= case.simulated

    found = balanced(case.problem, reaches)
    assert isinstance(found, Balance)
    assert not all_violations(found)
    assert found.best.simulated_time <= case.simulated
    assert found.simulated_bound <= found.best.simulated_time
    if case.slot is not None:
        assert found.status == "optimal"
        assert found.slot_bound == pytest.approx(case.slot)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "problem"), one_of(4, LARGE), ids=[name for name, _ in LARGE])
def test_models_of_126_layers_are_balanced_within_one_per_cent_of_the_least_slot(name: str, problem: BalanceProblem) -> None:
    found = balanced(problem, lambda found: isinstance(found, Balance) and found.gap_ratio <= 0.01)
    assert isinstance(found, Balance), name
    assert not all_violations(found)
    assert found.gap_ratio <= 0.01
