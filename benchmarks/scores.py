"""How far predictions are from measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.predict import Prediction, Predictions

FACTOR = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of one quantity; ratios, None where there is nothing to compare."""

    n: int
    mape: float
    median: float
    bias: float
    within: float
    """Share of rows within a factor of 1.25."""
    spearman: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a layout was said to fit, against whether it ran."""

    n: int
    accuracy: float
    ran: float
    """Share of the rows that ran that are called fitting."""
    failed: float
    """Share of the rows that failed that are called not fitting."""


def errors(predicted: Sequence[float], measured: Sequence[float]) -> Errors | None:
    """Errors of predictions relative to measurements.

    Units:   ratios; bias is the mean of predicted / measured - 1.
    """
    if not predicted:
        return None
    p, m = np.asarray(predicted), np.asarray(measured)
    ratio = p / m
    off = np.abs(ratio - 1.0)
    return Errors(
        n=len(p), mape=float(off.mean()), median=float(np.median(off)), bias=float(ratio.mean() - 1.0),
        within=float(((ratio <= FACTOR) & (ratio >= 1.0 / FACTOR)).mean()), spearman=spearman(p, m),
    )  # fmt: skip


def step_errors(rows: Sequence[Prediction]) -> Errors | None:
    """Errors of the step time."""
    timed = [each for each in rows if each.run.step_s and not each.run.failed]
    return errors([each.step_s for each in timed], [each.run.step_s or 0.0 for each in timed])


def memory_errors(rows: Sequence[Prediction]) -> Errors | None:
    """Errors of the peak that the row's ``mem_kind`` names: allocated, reserved, or the whole device."""
    with_memory = [each for each in rows if each.run.memory_bytes]
    return errors([each.memory_bytes for each in with_memory], [each.run.memory_bytes or 0.0 for each in with_memory])


def fit(predictions: Predictions) -> Fit | None:
    """Fit accuracy over rows that ran and rows that failed; None where none failed."""
    ran = [each.fits for each in predictions.rows if not each.run.failed]
    failed = [not each.fits for each in predictions.rows if each.run.failed]
    ran += [False for row in predictions.impossible if row["status"] != "failed"]
    failed += [True for row in predictions.impossible if row["status"] == "failed"]
    if not failed or not ran:
        return None
    both = ran + failed
    return Fit(n=len(both), accuracy=sum(both) / len(both), ran=sum(ran) / len(ran), failed=sum(failed) / len(failed))


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Rank correlation; ties share their mean rank."""
    if len(a) < 3:
        return float("nan")
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2.0)[inverse]
