"""What the errors stand beside: the noise of the measurements, and what one fitted constant reaches."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.rows.groups import FOLDS
from meshwright.evidence.score.columns import view_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.score.columns import View
    from meshwright.evidence.score.scored import Scored

    Ints = NDArray[np.int64]


def noise_ratio(timed: View | Sequence[Scored]) -> float | None:
    """How far re-measurements of one configuration lie apart: the median over configurations of slowest / fastest - 1.

    A configuration is one set of settings in one group, whatever the release; None where nothing was measured twice.
    No prediction from settings alone can be nearer than about half of this.

    Units:   ratio.
    """
    view = view_of(timed)
    _, configuration, times = np.unique(view.repeated, return_inverse=True, return_counts=True)
    slowest, fastest = np.zeros(len(times)), np.full(len(times), np.inf)
    np.maximum.at(slowest, configuration, view.measured_step_s)
    np.minimum.at(fastest, configuration, view.measured_step_s)
    several = times > 1
    return middle(slowest[several] / fastest[several] - 1.0)


def constant_hfu(timed: View | Sequence[Scored]) -> float | None:
    """Mean error of the step time where one constant efficiency predicts all rows, fitted on the other folds of the set.

        t = hardware FLOPs / (c peak devices),   c the median of the other folds

    Units:   ratio.
    Holds:   two groups or more; folds are those of ``grouped`` whatever the scheme.
    """
    view = view_of(timed)
    view = view.where(np.nan_to_num(view.ideal_s) != 0.0)
    if not len(view):
        return None
    fold_of = dealt(view)
    shares = view.ideal_s / view.measured_step_s
    off = np.empty(len(view))
    for fold in np.unique(fold_of):
        own = fold_of == fold
        constant = middle(shares[~own])
        if constant is None:
            return None
        off[own] = np.abs(shares[own] / constant - 1.0)
    return fsum(off.tolist()) / len(off)


def dealt(view: View) -> Ints:
    """The fold of every row: ``evidence.rows.groups.folds`` by ``grouped``, from the numbers of groups and sources.

    Holds:   groups are told apart, and ordered, by the beginning of their hash.
    """
    groups, group_of, sizes = np.unique(view.group, return_inverse=True, return_counts=True)
    sources: list[set[int]] = [set() for _ in groups]
    pairs = np.unique(np.stack([group_of, view.source]), axis=1)
    for group, source in pairs.T.tolist():
        sources[group].add(source)
    total = [0] * FOLDS
    of_source: dict[frozenset[int], list[int]] = {}
    fold_of = np.empty(len(groups), dtype=np.int64)
    for group in np.lexsort((groups, -sizes)).tolist():
        counts = of_source.setdefault(frozenset(sources[group]), [0] * FOLDS)
        fold = min(range(FOLDS), key=lambda each: (counts[each], total[each], each))
        fold_of[group] = fold
        counts[fold] += int(sizes[group])
        total[fold] += int(sizes[group])
    return fold_of[group_of]


def middle(values: NDArray[np.float64]) -> float | None:
    """The median; None of nothing."""
    if not len(values):
        return None
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half]) if len(values) % 2 else float((ordered[half - 1] + ordered[half]) / 2)
