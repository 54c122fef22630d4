"""What the cost model says of a remedy: the best layout one step away along the knobs that the remedy turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.judging.neighbours import neighbours

if TYPE_CHECKING:
    from meshwright.judging.facts import Facts, Trial


def best_change(facts: Facts, knobs: frozenset[str]) -> tuple[float, Trial] | None:
    """The largest gain of one step along the knobs, and where it leads; None where none is faster and fits.

    gain = 1 - step of the neighbour / step of the layout
    """
    best: tuple[float, Trial] | None = None
    for each in neighbours(facts.case, facts.features, facts.layout):
        if each.knob not in knobs or each.layout is None:
            continue
        trial = facts.trial(each.layout)
        gain = 1.0 - trial.step_s / facts.step_s
        if not trial.refused_because and trial.estimate.fits and gain > 0.0 and (best is None or gain > best[0]):
            best = (gain, trial)
    return best
