"""How far off predictions were on runs that the fit had not seen, as values that every estimate can apply.

Two curves: how wide an interval must be in a regime, and how likely a layout that needs so much memory runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from meshwright.value import Value

Number: TypeAlias = float | NDArray[np.float64]
OTHER = "*"
"""The effect of a value that no calibration run had."""
WIDEST = 7.0
"""A factor of a thousand either way: whatever is wider says as little."""


class Scale(Value, frozen=True, kw_only=True):
    """Half-width of an interval of a quantity, in log units, by regime.

        h(level) = q(level) s sqrt(1 + sum over features of u / (1 + n(value)))
        s = exp(base + sum over features of effect(value))

    Symbols: q the split-conformal quantile of |log(measured / predicted)| over s, on out-of-fold predictions of runs whose like was
             in the fit; u the variance of what all runs of a value have in common that the fit has not seen, over that of one run;
             n the runs of the value: their mean leaves 1 / (1 + n) of u.
    Holds:   errors in common and each run's own are independent, so that their variances add up; u grows with s, as errors of
             regimes do.
    Source:  one-way random effects: Searle, Casella and McCulloch 1992, chapter 3, with one run as unsure as what it shares.
    """

    base: float
    effects: Mapping[str, Mapping[str, float]]
    """Feature -> value -> effect on the log scale; the value ``*`` stands for values without runs."""
    quantiles: Mapping[str, float]
    """Level (as text, ``0.9``) -> conformal quantile."""
    shifts: Mapping[str, float] = field(default_factory=dict)
    """Feature -> u; none for features whose new values are predicted as well as known ones."""
    runs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Feature -> value -> n, re-measurements of one configuration as one; what is not there has none."""

    def widening(self, features: Mapping[str, str]) -> float:
        """How much wider an interval is because runs of these values are few or none, as a log."""
        shared = sum(u / (1.0 + self.runs.get(name, {}).get(features.get(name, OTHER), 0.0)) for name, u in self.shifts.items())
        return 0.5 * math.log1p(shared)

    def spread(self, features: Mapping[str, str]) -> float:
        """The scale of a regime, in log units: s, and wider by what is new to the fit."""
        total = self.base + self.widening(features)
        for name, effects in self.effects.items():
            total += effects.get(features.get(name, OTHER), effects.get(OTHER, 0.0))
        return math.exp(total)

    def over(self, names: Collection[str]) -> Scale:
        """The scale by these features alone: the mean over what the others would say."""
        return replace(self, effects={name: effects for name, effects in self.effects.items() if name in names})

    def half_width(self, features: Mapping[str, str], level: float = 0.9) -> float:
        """Half-width of the interval of a level, in log units, at most ``WIDEST``."""
        return min(WIDEST, self.quantiles[f"{level:g}"] * self.spread(features))


class FitCurve(Value, frozen=True, kw_only=True):
    """How likely a layout that needs so much memory runs.

        p_memory = 1 / (1 + exp((log(reserved / memory) - edge) / width));   p = (1 - failures) p_memory

    Edge and width are the framework's where it has failed runs, else the shared ones; the width includes the error of the
    memory prediction.
    """

    edge: float
    """log of the share of the device's memory at which half of the layouts run."""
    width: float
    failures: float
    """Share of the runs that fail for other reasons than memory."""

    def memory_probability(self, reserved_bytes: Number, memory_bytes: float) -> NDArray[np.float64]:
        """That a layout fits in memory; a number or a column."""
        over = (np.log(np.maximum(reserved_bytes, 1.0) / memory_bytes) - self.edge) / self.width
        return np.asarray(1.0 / (1.0 + np.exp(np.clip(over, -60.0, 60.0))))

    def half_width(self, level: float) -> float:
        """Half-width of the interval of a level, in log units: what the distribution of the need has on either side.

            w log((1 + level) / (1 - level))

        Holds:   the upper end of the interval of 0.9 is what is offered where a layout fits with a probability of 0.95.
        """
        return self.width * math.log((1.0 + level) / (1.0 - level))

    def usable_bytes(self, memory_bytes: float, probability: float = 0.5) -> float:
        """Reserved bytes at which a layout fits with this probability."""
        return memory_bytes * math.exp(self.edge + self.width * math.log(1.0 / probability - 1.0))


LEAST_PROBABILITY = 1e-3
"""Below it, a layout that does not run is as bad as any other."""


def expected_s(step_s: Number, fit_probability: Number) -> NDArray[np.float64]:
    """What a step costs on average where runs that do not fit in memory are paid for, too.

        E = t / p

    Symbols: t the step; p the probability that it fits in memory, at least ``LEAST_PROBABILITY``.
    Shapes:  numbers or columns.
    Units:   s.
    Source:  mean number of tries until one succeeds, 1 / p.
    """
    return np.asarray(step_s / np.maximum(fit_probability, LEAST_PROBABILITY))


class Uncertainty(Value, frozen=True, kw_only=True):
    """Intervals and probabilities of one calibration."""

    step: Scale
    memory: Scale
    fit: FitCurve
    ranking_ratio: float
    """Relative error between two layouts of one case: what is common to them cancels."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """Calibration runs of the device's family, of the device, of the framework, and of its cell: what grades rest on."""
