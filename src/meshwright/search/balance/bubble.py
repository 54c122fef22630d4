"""Why a placement's pipeline is longer than ideal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.balance import BubbleSplit
from meshwright.perf.schedules import bubble_parts
from meshwright.search.balance.times import ChunkTimes, chunk_times, simulated_times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Counts = NDArray[np.int64]


def bubble_of(problem: BalanceProblem, counts: Counts) -> BubbleSplit:
    """The bubble in four parts, each relative to the ideal work of a stage.

    Units:   ratios of m times the mean work of a stage.
    Source:  ``perf.schedules.bubble_split``, for pipelines of any length.
    """
    plain = np.zeros_like(counts)
    plain[:, 0] = counts.sum(axis=1)
    bare, treated = chunk_times(problem, plain), chunk_times(problem, counts)
    alike = ChunkTimes(*(np.full_like(each, each.mean()) for each in bare))
    work, whole = (problem.microbatches * float((each.forward + each.backward).sum()) / problem.stages for each in (bare, treated))
    if work <= 0.0:
        return BubbleSplit(ideal_ratio=0.0, imbalance_ratio=0.0, recompute_ratio=0.0, communication_ratio=0.0)
    return bubble_parts(
        real=float(simulated_times(problem, treated)), alike=float(simulated_times(problem, alike)),
        free=float(simulated_times(replace(problem, hop_time=0.0), alike)), work=work, recompute=whole - work,
    )
