"""Decisions: in each cell of rows that answer one question, is the configuration that ranks first the one that measured best?"""

from __future__ import annotations

from math import comb, isclose
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.score.baselines import middle
from meshwright.evidence.score.columns import FAILED, MIN_MEASURED, View, view_of
from meshwright.evidence.score.metrics import spearman
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.score.scored import Scored

FIRST = 3
TIED = 1e-9
"""Predictions as near as this are one."""


class Candidate(Value, frozen=True, kw_only=True):
    """Rows of identical settings: one choice."""

    predicted_step_s: float | None
    predicted_fits: bool
    measured_step_s: float | None
    """Median of those that ran; None where none ran."""
    legal: bool
    predicted_memory_bytes: float | None


class Cell(Value, frozen=True, kw_only=True):
    """One question and how it was answered; ratios 0..1."""

    key: tuple[str, ...]
    """Source group, then the columns of ``groups.CELL``."""
    measured: int
    failed: int
    regret_ratio: float
    """1 - throughput of the first choice / best measured; 1 where the choice failed or nothing is said to fit; ties: mean."""
    best_of_3_regret_ratio: float
    """The best of the first three choices."""
    failed_choice: float
    """1 where the first choice failed or nothing is said to fit; the share of the tied first choices that did."""
    explained: bool
    """The failed choice needed more memory, by its own prediction, than any run of the same framework on the same device is
    known to have used, or a rule of legality refuses it."""
    spearman: float | None
    nothing_fits: bool

    @property
    def devices(self) -> int:
        """Number of devices."""
        return int(self.key[6] or 0)


class Decisions(Value, frozen=True, kw_only=True):
    """Cells together."""

    cells: int
    regret_mean_ratio: float
    regret_worst_ratio: float
    best_of_3_regret_mean_ratio: float
    failed_choices: float
    failed_choices_explained: int
    spearman_within_cells_median: float | None


def cells_of(rows: View | Sequence[Scored]) -> tuple[Cell, ...]:
    """Every cell with five measured rows or more, in the order of its key.

    A failed row belongs to every cell whose question it was tried for, whatever its source calls it (``fail-*`` rows are the
    failures of the playbook's cells).
    """
    view = view_of(rows)
    measured = view.where(view.ok & ~np.isnan(view.measured_step_s))
    failed = dict(view.where(view.status == FAILED).by("cell"))
    most, names, nobody = _most_bytes(view), tuple(view.columns.names["source"]), view.where(np.empty(0, dtype=np.int64))
    found = []
    for source, of_source in measured.by("source"):
        for cell, own in of_source.by("cell"):
            if len(own) >= MIN_MEASURED:
                first = own.where(np.zeros(1, dtype=np.int64))
                where = int(first.framework[0]), int(first.device[0])
                found.append(
                    _cell((names[source], *view.columns.cells[cell]), own, failed.get(cell, nobody), most.get(where, 0.0))
                )
    return tuple(sorted(found, key=lambda each: each.key))


def _most_bytes(view: View) -> dict[tuple[int, int], float]:
    """The most memory that a run of a framework on a device is known to have used."""
    known = view.where(view.ok & ~np.isnan(view.measured_memory_bytes))
    return {
        (framework, device): float(runs.measured_memory_bytes.max())
        for framework, own in known.by("framework") for device, runs in own.by("device")
    }


def decisions(cells: Sequence[Cell]) -> Decisions | None:
    """Mean and worst over cells; None without cells."""
    if not cells:
        return None
    ranked = [each.spearman for each in cells if each.spearman is not None]
    return Decisions(
        cells=len(cells), regret_mean_ratio=fmean(each.regret_ratio for each in cells),
        regret_worst_ratio=max(each.regret_ratio for each in cells),
        best_of_3_regret_mean_ratio=fmean(each.best_of_3_regret_ratio for each in cells),
        failed_choices=sum(each.failed_choice for each in cells),
        failed_choices_explained=sum(each.explained for each in cells if each.failed_choice),
        spearman_within_cells_median=median(ranked) if ranked else None,
    )


def _cell(key: tuple[str, ...], measured: View, failed: View, most_bytes: float) -> Cell:
    together = View(measured.columns, np.concatenate([measured.rows, failed.rows]))
    candidates = [_candidate(own) for _, own in together.by("settings")]
    timed = [each for each in candidates if each.measured_step_s is not None and each.predicted_step_s is not None]
    fitting = [each for each in candidates if each.predicted_fits and each.predicted_step_s is not None]
    best = min(each.measured_step_s for each in candidates if each.measured_step_s is not None)
    tiers = _tiers(fitting)
    regrets = [[_regret(each, best) for each in tier] for tier in tiers]
    first = tiers[0] if tiers else []
    lost = [each for each in first if each.measured_step_s is None]
    return Cell(
        key=key, measured=len(measured), failed=len(failed), regret_ratio=fmean(regrets[0]) if regrets else 1.0,
        best_of_3_regret_ratio=best_of(regrets, FIRST), failed_choice=len(lost) / len(first) if first else 1.0,
        explained=bool(lost) and all(_explained(each, most_bytes) for each in lost), nothing_fits=not first,
        spearman=spearman([each.predicted_step_s or 0.0 for each in timed], [each.measured_step_s or 0.0 for each in timed]),
    )


def _candidate(rows: View) -> Candidate:
    """Rows of identical settings as one: medians, and fitting where most are said to fit."""
    return Candidate(
        predicted_step_s=_middle(rows.predicted_step_s), predicted_fits=2 * int(rows.fits.sum()) > len(rows),
        measured_step_s=_middle(rows.where(rows.ok).measured_step_s), legal=bool((rows.legal == 1).all()),
        predicted_memory_bytes=_middle(rows.predicted_memory_bytes),
    )


def _middle(values: NDArray[np.float64]) -> float | None:
    """The median of what there is."""
    return middle(values[~np.isnan(values)])


def _tiers(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates from the fastest prediction on, those predicted alike together."""
    tiers: list[list[Candidate]] = []
    for each in sorted(candidates, key=lambda one: one.predicted_step_s or 0.0):
        if tiers and isclose(tiers[-1][0].predicted_step_s or 0.0, each.predicted_step_s or 0.0, rel_tol=TIED):
            tiers[-1].append(each)
        else:
            tiers.append([each])
    return tiers


def _regret(each: Candidate, best_s: float) -> float:
    return 1.0 if each.measured_step_s is None else 1.0 - best_s / each.measured_step_s


def best_of(tiers: Sequence[Sequence[float]], choices: int) -> float:
    """Expected least regret of the first choices, where ties are broken at random; 1 where nothing is chosen.

        E[least of r out of t] = sum over i of x_i C(t - i, r - 1) / C(t, r),   x sorted, i from 1

    Units:   ratio.
    """
    best, left = 1.0, choices
    for tier in tiers:
        if len(tier) <= left:
            best, left = min(best, *tier), left - len(tier)
            if not left:
                break
            continue
        values = sorted(min(best, each) for each in tier)
        ways = comb(len(values), left)
        return sum(value * comb(len(values) - place, left - 1) for place, value in enumerate(values, start=1)) / ways
    return best


def _explained(each: Candidate, most_bytes: float) -> bool:
    """Whether a choice that failed is told apart by legality, or by more memory than any run that worked."""
    return not each.legal or bool(most_bytes and (each.predicted_memory_bytes or 0.0) > most_bytes)
