"""What the errors stand beside: the noise of the measurements, and what one fitted constant reaches."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING

from meshwright.evidence.rows.groups import folds, group_key, settings_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.evidence.score.scored import Scored


def noise_ratio(timed: Sequence[Scored]) -> float | None:
    """How far re-measurements of one configuration lie apart: the median over configurations of slowest / fastest - 1.

    A configuration is one set of settings in one group, whatever the release; None where nothing was measured twice.
    No prediction from settings alone can be nearer than about half of this.

    Units:   ratio.
    """
    found: dict[tuple[tuple[str, ...], ...], list[float]] = defaultdict(list)
    for each in timed:
        assert each.measured_step_s is not None
        found[(group_key(each.row), settings_key(each.row)[:-1])].append(each.measured_step_s)
    spreads = [max(times) / min(times) - 1.0 for times in found.values() if len(times) > 1]
    return median(spreads) if spreads else None


def constant_hfu(timed: Sequence[Scored]) -> float | None:
    """Mean error of the step time where one constant efficiency predicts all rows, fitted on the other folds of the set.

        t = hardware FLOPs / (c peak devices),   c the median of the other folds

    Units:   ratio.
    Holds:   two groups or more; folds are those of ``grouped`` whatever the scheme.
    """
    rows = [each for each in timed if each.ideal_s]
    if not rows:
        return None
    fold_of = folds([each.row for each in rows], "grouped")
    shares = [(each.ideal_s or 0.0) / (each.measured_step_s or 1.0) for each in rows]
    off: list[float] = []
    for fold in sorted(set(fold_of)):
        others = [share for share, own in zip(shares, fold_of, strict=True) if own != fold]
        if not others:
            return None
        constant = median(others)
        off += [abs(share / constant - 1.0) for share, own in zip(shares, fold_of, strict=True) if own == fold]
    return fmean(off)
