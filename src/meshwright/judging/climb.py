"""One knob at a time, always the best move: what trying by hand would reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.estimate.certainty import expected_s
from meshwright.estimate.known_work import KnownWork
from meshwright.estimate.many import price_many
from meshwright.judging.neighbours import neighbours

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout

MOVES = 24


def climb(case: Case, features: Features, start: Layout, start_expected_s: float) -> tuple[Layout, int]:
    """The layout than which no single step is expected to be faster and fits, and the number of moves to get there.

    Units:   s.
    Holds:   every move is to the fitting neighbour that is expected to be fastest.
    """
    current, best, known = start, start_expected_s, KnownWork()
    for move in range(MOVES):
        layouts = [each.layout for each in neighbours(case, features, current) if each.layout is not None]
        if not layouts:
            return current, move
        _, mean_s, reserved = price_many(case, layouts, known)
        expected = np.where(reserved <= case.capacity_bytes, expected_s(case, mean_s, reserved), np.inf)
        found = int(np.argmin(expected))
        if expected[found] >= best * 0.9999:
            return current, move
        best, current = float(expected[found]), layouts[found]
    return current, MOVES
