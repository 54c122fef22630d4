"""One knob at a time, always the best move: what trying by hand would reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.estimate.many import evaluate_many
from meshwright.judging.neighbours import neighbours

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout

MOVES = 24


def climb(case: Case, features: Features, start: Layout, start_s: float) -> tuple[float, int]:
    """Step time where no single step is faster and fits, and the number of moves to get there.

    Units:   s.
    Holds:   every move is the fastest fitting neighbour.
    """
    current, best = start, start_s
    for move in range(MOVES):
        layouts = [each.layout for each in neighbours(case, features, current) if each.layout is not None]
        if not layouts:
            return best, move
        times, reserved = evaluate_many(case, layouts)
        found = min(
            ((float(t), index) for index, (t, size) in enumerate(zip(times, reserved, strict=True)) if size <= case.capacity_bytes),
            default=(best, -1),
        )
        if found[1] < 0 or found[0] >= best * 0.9999:
            return best, move
        best, current = found[0], layouts[found[1]]
    return best, MOVES
