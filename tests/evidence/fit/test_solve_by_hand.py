"""One step of a fit with a single constant, by sums that a page can hold; noises and weights with figures of their own."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from types import SimpleNamespace as Some

import numpy as np
import pytest

from meshwright.evidence.fit import solve
from meshwright.evidence.fit.noise import FLOOR, GUESS, GUESS_RUNS, Kinds, noise_of_kinds, student_loss, student_weights

NU = 4.0
NONE = np.full(4, np.nan)
MEASURED = np.array([0.30, 0.10, -0.20, np.nan])
NAMES = np.array([0, 0, 1, 1])
ALL, ONE = np.ones(4, dtype=bool), np.ones(1, dtype=bool)
WHOLE = solve.Phase(teaches=ALL, free=ONE)


@pytest.fixture
def given(monkeypatch):
    """Four runs of which one has no figure; a constant that shifts each by so much; its prior is as wide as 0.5."""
    monkeypatch.setattr(solve, "kinds_of_runs", lambda *_: Kinds(step=NAMES, memory=NAMES))
    by = np.array([[1.0], [2.0], [0.5], [1.0]])

    def normal_equations(by, key_of, factor, residual):
        return (by * factor[:, None]).T @ by, (by * factor[:, None]).T @ residual

    pool = Some(
        keys=["k"],
        freedoms=["f"],
        spreads=np.array([0.5]),
        size=1,
        bounds=(np.zeros((0, 1)), np.zeros(0)),
        multipliers=lambda offsets: offsets[None, :],
        normal_equations=normal_equations,
    )
    base = np.array([0.05, 0.0, 0.0, 0.0])

    def state(memory: bool):
        space = Some(
            log_step=NONE if memory else MEASURED,
            log_memory=MEASURED if memory else NONE,
            keys=["k"],
            key_of=np.zeros(4, dtype=int),
            runs=range(4),
        )
        linear = Some(step=base, step_by=by, memory=base, memory_by=by)
        return space, pool, (linear, np.zeros(4))

    return state


def noise(*residuals: float) -> float:
    middle = 1.4826 * float(np.median(np.abs(residuals)))
    return max(FLOOR, sqrt((len(residuals) * middle**2 + GUESS_RUNS * GUESS**2) / (len(residuals) + GUESS_RUNS)))


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("offset", [0.0, 0.1])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 1.0), (0.5, 2.0, 1.0, 9.0)])
def test_a_step_solves_the_weighted_squares_and_the_prior(given, memory, offset, weights):
    space, pool, state = given(memory)
    residuals, slopes = (0.25, 0.10, -0.20), (1.0, 2.0, 0.5)
    noises = (noise(0.25, 0.10), noise(0.25, 0.10), noise(-0.20))
    factors = [w * (NU + 1) / (NU + (r / s) ** 2) / s**2 for w, r, s in zip(weights, residuals, noises, strict=False)]
    normal = 1 / 0.5**2 + sum(f * x * x for f, x in zip(factors, slopes, strict=True))
    right = -offset / 0.5**2 + sum(f * x * r for f, x, r in zip(factors, slopes, residuals, strict=True))
    found = solve._solve(space, pool, state, np.array([offset]), np.array(weights), WHOLE, ALL)
    assert found == pytest.approx([offset + right / normal])
    damped = solve._solve(space, pool, state, np.array([offset]), np.array(weights), WHOLE, ALL, damping=3.0)
    assert damped == pytest.approx([offset + right / (4.0 * normal)])
    only = solve._solve(space, pool, state, np.array([offset]), np.array(weights), WHOLE, np.array([False, False, True, True]))
    alone = factors[2]
    assert only == pytest.approx([offset + (-offset / 0.25 + alone * 0.5 * -0.2) / (1 / 0.25 + alone * 0.25)])


def test_step_times_that_do_not_teach_move_nothing_and_memory_always_teaches(given):
    last = np.array([False, False, True, True])
    space, pool, state = given(False)
    silent = solve._solve(space, pool, state, np.array([0.1]), np.ones(4), solve.Phase(teaches=last, free=ONE), ALL)
    assert silent == pytest.approx(solve._solve(space, pool, state, np.array([0.1]), np.ones(4), WHOLE, last))
    space, pool, state = given(True)
    heard = solve._solve(space, pool, state, np.array([0.1]), np.ones(4), solve.Phase(teaches=last, free=ONE), ALL)
    assert heard == pytest.approx(solve._solve(space, pool, state, np.array([0.1]), np.ones(4), WHOLE, ALL))


def test_an_offset_that_is_not_free_stays(given):
    space, pool, state = given(False)
    held = solve.Phase(teaches=ALL, free=~ONE)
    assert solve._solve(space, pool, state, np.array([0.1]), np.ones(4), held, ALL) == 0.1


def test_residuals_follow_the_linear_model_away_from_where_it_was_made(given):
    space, pool, state = given(False)
    here = solve._solve(space, pool, state, np.array([0.1]), np.ones(4), WHOLE, ALL, at=np.array([0.0]))
    linear, corrections = state
    moved = Some(**{**vars(linear), "step": linear.step + 0.1 * linear.step_by[:, 0]})
    there = solve._solve(space, pool, (moved, corrections), np.array([0.1]), np.ones(4), WHOLE, ALL)
    assert here == pytest.approx(there)


@pytest.mark.parametrize("memory", [False, True])
def test_the_objective_is_the_loss_of_every_figure_and_of_the_prior(given, memory):
    space, pool, state = given(memory)
    noises = (noise(0.25, 0.10), noise(0.25, 0.10), noise(-0.20))
    losses = [2.5 * log(1 + (r / s) ** 2 / NU) + log(s) for r, s in zip((0.25, 0.10, -0.20), noises, strict=True)]
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    found = solve._objective(space, pool, state, np.array([0.25]), weights, ALL)
    assert found == pytest.approx(0.5 * (0.25 / 0.5) ** 2 + losses[0] + 2 * losses[1] + 3 * losses[2])


@pytest.mark.parametrize("step_noise", [0.02, 0.5])
def test_a_noise_that_is_known_stands_for_what_residuals_say_of_steps(given, step_noise):
    space, pool, state = given(False)
    losses = [2.5 * log(1 + (r / step_noise) ** 2 / NU) + log(step_noise) for r in (0.25, 0.10, -0.20)]
    found = solve._objective(space, pool, state, np.array([0.25]), np.array([1.0, 2.0, 3.0, 4.0]), ALL, step_noise)
    assert found == pytest.approx(0.5 * (0.25 / 0.5) ** 2 + losses[0] + 2 * losses[1] + 3 * losses[2])
    known, judged = (replace(WHOLE, step_noise=each) for each in (step_noise, None))
    moved = [solve._solve(space, pool, state, np.array([0.1]), np.ones(4), each, ALL)[0] for each in (known, judged)]
    assert moved[0] != pytest.approx(moved[1])


def test_corrections_are_part_of_a_prediction(given):
    space, pool, (linear, _) = given(False)
    own = Some(**{**vars(linear), "step": linear.step + 0.02})
    shifted, corrected = (
        solve._solve(space, pool, state, np.array([0.1]), np.ones(4), WHOLE, ALL)
        for state in ((own, np.zeros(4)), (linear, np.full(4, 0.02)))
    )
    assert shifted == pytest.approx(corrected)
    one, other = (
        solve._objective(space, pool, state, np.array([0.1]), np.ones(4), ALL)
        for state in ((own, np.zeros(4)), (linear, np.full(4, 0.02)))
    )
    assert one == pytest.approx(other)


def test_noises_and_weights_of_a_kind():
    names = np.array([0, 1, 0, 0])
    found = noise_of_kinds(np.array([0.1, 5.0, -0.4, 0.2]), names)
    assert found == pytest.approx([noise(0.1, -0.4, 0.2), noise(5.0), noise(0.1, -0.4, 0.2), noise(0.1, -0.4, 0.2)])
    assert noise_of_kinds(np.zeros(400), np.zeros(400, dtype=np.int64))[0] == FLOOR
    assert student_weights(np.array([0.0, 1.0, 3.0])) == pytest.approx([5 / 4, 1.0, 5 / 13])
    assert student_loss(np.array([0.3]), np.array([0.1])) == pytest.approx([2.5 * log(1 + 9 / 4) + log(0.1)])


def test_runs_of_one_group_weigh_as_much_as_one():
    assert solve._shares(["a", "b", "a", "a", "a"]) == pytest.approx([0.5, 1.0, 0.5, 0.5, 0.5])
