"""Least squares whose constants stay at or below their ceilings: where a ceiling binds, more of an offset changes no prediction, so
nothing but its prior may pull at it, and what other devices and frameworks share of it stays what their runs say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.evidence.fit.linear import Runs
    from meshwright.evidence.fit.pooling import Pooling

    Floats = NDArray[np.float64]

STIFFNESS = 4e6
"""Weight of the square by which a log multiplier passes its room: runs that ask for more pass it by some thousandths."""
ROUNDS = 20
"""Of finding which ceilings bind. Our judgement: what is left then is put right by the next step."""


def room_of(space: Runs, ceilings: Floats) -> Floats:
    """The largest log multiplier of every constant for every key: log of ceiling over prior, at least 0.

    Shapes:  ``ceilings [key, constant] -> [key, constant]``; infinite where nothing bounds.
    Holds:   runs of one key have one prior.
    """
    _, first = np.unique(space.key_of, return_index=True)
    return np.asarray(np.maximum(0.0, np.log(ceilings / space.priors[first])))


def bounded(normal: Floats, right: Floats, offsets: Floats, pool: Pooling, free: NDArray[np.bool_]) -> Floats:
    """The minimum of a quadratic about some offsets, with no key's multiplier beyond its room.

        minimise  1/2 d^T A d - b^T d   where   sum of (z + d) over the offsets of a key and constant <= room

    Symbols: A ``normal``; b ``right``; z ``offsets``; d the step.
    Shapes:  ``[offset, offset]``, ``[offset]``, ``[offset]``; ``free`` over the offsets, the others stay -> offsets.
    Holds:   an active set of stiff squares: bounds that are passed are added, those that no longer pull are dropped.
    Source:  Nocedal and Wright 2006, sections 16.5 and 17.1.
    """
    base, side = normal[np.ix_(free, free)], right[free]
    which, most = pool.bounds
    left, which = most - which @ offsets, which[:, free]
    binds = np.zeros(len(most), dtype=bool)
    step = _least(base, side, which[binds], left[binds])
    for _ in range(ROUNDS):
        passed = which @ step > left
        if (passed == binds).all():
            break
        binds = passed
        step = _least(base, side, which[binds], left[binds])
    moved = offsets.copy()
    moved[free] += step
    return moved


def _least(base: Floats, side: Floats, rows: Floats, left: Floats) -> Floats:
    """The minimum where some sums are held by stiff squares; offsets that nothing couples to others are quotients by themselves."""
    step = side / np.diag(base)
    coupled = (np.count_nonzero(base, axis=1) > 1) | rows.any(axis=0)
    inside, rows = base[np.ix_(coupled, coupled)], rows[:, coupled]
    step[coupled] = np.linalg.solve(inside + STIFFNESS * rows.T @ rows, side[coupled] + STIFFNESS * rows.T @ left)
    return step
