"""What turns measured runs into predictions of others: the interface of a calibration's fit, and two that fit nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.case import Case
    from meshwright.evidence.rows import Run

    Predictor = Callable[[Run], Case]
    """The case of a run with the constants (and the spread) that its device, framework and precision were found to have."""


class Fitter(Protocol):
    """A way to fit a calibration."""

    @property
    def label(self) -> str:
        """Name and version of what it fits: ``name@version``."""

    def fit(self, runs: Sequence[Run]) -> Predictor:
        """Fit to all runs."""

    def fit_folds(self, runs: Sequence[Run], fold_of: Sequence[int]) -> Sequence[Predictor]:
        """For every fold 0 .. k - 1, a fit to the runs of all other folds; ``fold_of`` stands beside ``runs``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A calibration as it is: nothing is fitted to the runs at hand."""

    label: str
    predictor: Predictor

    def fit(self, runs: Sequence[Run]) -> Predictor:
        """The calibration, whatever the runs."""
        return self.predictor

    def fit_folds(self, runs: Sequence[Run], fold_of: Sequence[int]) -> Sequence[Predictor]:
        """The calibration for every fold."""
        return [self.predictor] * (max(fold_of, default=-1) + 1)


def prior_fitter() -> Fixed:
    """The priors of the catalogue, ``none@0``: a run's own case has them."""
    return Fixed(label="none@0", predictor=_own_case)


def _own_case(run: Run) -> Case:
    return run.case
