"""What turns measured runs into predictions of others: the interface of a calibration's fit, and two that fit nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from meshwright.evidence.fit.calibrate import Outside, outside, table, unseen_effects
from meshwright.evidence.fit.linear import key_of
from meshwright.evidence.fit.solve import Fit, fit, refit
from meshwright.evidence.fit.spread import Unseen
from meshwright.evidence.rows.groups import folds
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from meshwright.domain.calibration import Calibration, CalibrationTable, Constants, Freedom, Key
    from meshwright.domain.case import Case
    from meshwright.evidence.fit.calibrate import Progress
    from meshwright.evidence.rows.run import Run

    Predictor = Callable[[Run], Case]
    """The case of a run with the constants (and the spread) that its device, framework and precision were found to have."""


REFITTED = "refitted"
"""Label of what is fitted to the rows at hand."""


class Fitter(Protocol):
    """A way to fit a calibration."""

    @property
    def label(self) -> str:
        """Name and version of what it fits: ``name@version``."""

    def fit(self, runs: Sequence[Run]) -> Predictor:
        """Fit to all runs."""

    def fit_folds(self, runs: Sequence[Run], fold_of: Sequence[int]) -> Sequence[Predictor]:
        """For every fold 0 .. k - 1, a fit to the runs of all other folds; ``fold_of`` stands beside ``runs``."""


class Fixed(Value, frozen=True, kw_only=True):
    """A calibration as it is: nothing is fitted to the runs at hand."""

    label: str
    predictor: Predictor

    def fit(self, runs: Sequence[Run]) -> Predictor:
        """The calibration, whatever the runs."""
        return self.predictor

    def fit_folds(self, runs: Sequence[Run], fold_of: Sequence[int]) -> Sequence[Predictor]:
        """The calibration for every fold."""
        return [self.predictor] * (max(fold_of, default=-1) + 1)


class Kept(Value, frozen=True, kw_only=True):
    """Fits to all folds but one that were made before, for the very rows that they are asked for."""

    predictors: Sequence[Predictor]
    label: str = REFITTED

    def fit(self, runs: Sequence[Run]) -> Predictor:
        """Not kept: what has seen all rows.

        Errors:  ``ValueError``.
        """
        raise ValueError("fits without a fold alone are kept")

    def fit_folds(self, runs: Sequence[Run], fold_of: Sequence[int]) -> Sequence[Predictor]:
        """The fit without each fold."""
        return self.predictors


def prior_fitter() -> Fixed:
    """The priors of the catalogue, ``none@0``: a run's own case has them."""
    return Fixed(label="none@0", predictor=_own_case)


def _own_case(run: Run) -> Case:
    return run.case


def predictor_of(calibration: CalibrationTable) -> Predictor:
    """Cases with the constants that a calibration has for their device, framework and precision; priors are their own."""

    known: dict[tuple[int, Key], tuple[Constants, Calibration]] = {}  # many runs share a key; constants are held, so is their id

    def case(run: Run) -> Case:
        prior, key = run.case.calibration.constants, key_of(run)
        if (id(prior), key) not in known:
            known[id(prior), key] = prior, calibration.calibration(prior, key)
        return replace(run.case, calibration=known[id(prior), key][1])

    return case


@dataclass(slots=True)
class _LastFit:
    """The last fit to all rows, with what is learnt from it alone."""

    runs: tuple[Run, ...] = ()
    whole: Fit | None = None
    held: Outside | None = None
    unseen: Unseen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The fit with partial pooling: what the shipped calibration is made by.

    Holds:   the fit to all rows is the same under every scheme; it is kept, and done again for other runs alone.
    """

    freedoms: tuple[Freedom, ...]
    label: str = REFITTED
    progress: Progress | None = None
    _kept: _LastFit = field(default_factory=_LastFit, init=False, repr=False, compare=False)

    def fit(self, runs: Sequence[Run]) -> Predictor:
        """Fit to all runs; its intervals are judged by ten held-out folds all the same."""
        whole, held, unseen = self._whole(runs)
        everyone = np.ones(len(runs), dtype=bool)
        return predictor_of(table(whole, whole.offsets, held, everyone, unseen, name=self.label, version="0", provenance={}))

    def fit_folds(self, runs: Sequence[Run], fold_of: Sequence[int]) -> Sequence[Predictor]:
        """For every fold a fit without it, with intervals as ``fit`` has them, learnt from the runs of the other folds.

        Holds:   whatever the folds are, a scheme judges the interval model that ships. What is learnt once, from all runs: the
                 predictions whose errors say how wide intervals are, and the effect of a kind of launch without runs.
        """
        return [predictor_of(each) for each in self.tables(runs, fold_of, {})]

    def tables(self, runs: Sequence[Run], fold_of: Sequence[int], provenance: Mapping[str, str]) -> Iterator[CalibrationTable]:
        """The calibration of every fold, as ``fit_folds`` predicts with it."""
        (whole, held, unseen), numbers = self._whole(runs), np.array(fold_of)
        for fold in range(int(numbers.max()) + 1):
            others = numbers != fold
            yield table(
                whole, refit(whole, others), held, others, unseen, name=self.label, version=f"fold {fold}", provenance=provenance
            )

    def _whole(self, runs: Sequence[Run]) -> tuple[Fit, Outside, Unseen]:
        """The fit to all runs, its predictions by held-out folds, and how much wider intervals of what is unseen are."""
        kept = self._kept
        if kept.whole is None or kept.held is None or kept.unseen is None or kept.runs != tuple(runs):
            groups = ["\x1f".join(run.group) for run in runs]
            kept.whole = fit(runs, self.freedoms, groups=groups, progress=self.progress)
            kept.held, _ = outside(kept.whole, np.array(folds([run.row for run in runs], "grouped")), self.progress)
            kept.unseen, kept.runs = unseen_effects(kept.whole, kept.held, self.progress), tuple(runs)
        return kept.whole, kept.held, kept.unseen
