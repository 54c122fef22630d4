"""How far off predictions were on runs that the fit had not seen, as values that every estimate can apply.

Two curves: how wide an interval must be in a regime, and how likely a layout that needs so much memory runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from meshwright.value import Value

Number: TypeAlias = float | NDArray[np.float64]
OTHER = "*"
"""The effect of a value that no calibration run had."""
CELL = "cell"
"""The feature that own runs teach about."""
WIDEST = 7.0
"""A factor of a thousand either way: whatever is wider says as little."""


class Scale(Value, frozen=True, kw_only=True):
    """Half-width of an interval of a quantity, in log units, by regime.

        h(level) = q(level) m sqrt(s^2 + sum over features of u r^2 hidden(value))
        s = exp(base + sum over features of effect(value));   r = exp(base) (s / exp(base))^growth
        hidden(value) = 1 - largest over values v with runs of  k(value, v)^2 n(v) / (n(v) + (s / r)^2)

    Symbols: q the split-conformal quantile of |log(measured / predicted)| over s, on out-of-fold predictions of runs whose like was
             in the fit; u the variance of what all runs of a value have in common that the fit has not seen, over that of one run
             of a usual regime (r^2 where growth is 0); n the runs of a value; k = exp(-doublings apart / reach) how alike two
             values are, 0 where they are of other kinds, or differ and the feature has no reach; m what own runs taught of a cell.
    Holds:   errors in common and each run's own are independent, so that their variances add up. A run is as unsure as what it
             shares, and as its regime is: (s / r)^2 more of them tell as much where runs scatter more. Only the value that says
             most is asked, so that more never say less; all of them together would say a little more. growth 1: what is shared
             grows with a regime's errors; 0: it is the same in all.
    Source:  one-way random effects: Searle, Casella and McCulloch 1992, chapter 3; alike values: best linear prediction from one
             of them, Rasmussen and Williams 2006, (2.26) with the kernel (4.18).
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
    reaches: Mapping[str, float] = field(default_factory=dict)
    """Feature -> reach in doublings, where values are a kind and a place (``doublings_apart``)."""
    growth: float = 1.0
    own: Mapping[str, float] = field(default_factory=dict)
    """Cell -> log of m; none is 0."""

    def hidden(self, features: Mapping[str, str]) -> Mapping[str, float]:
        """Feature -> what runs do not say of the variance of its value, times r^2 / s^2: how much each u adds to that of a run."""
        return self._hidden(features, self._regime(features))

    def widening(self, features: Mapping[str, str]) -> float:
        """How much wider an interval is because runs of these values are few or none, as a log."""
        hidden = self.hidden(features) if self.shifts else {}
        return 0.5 * math.log1p(sum(u * hidden.get(name, 1.0) for name, u in self.shifts.items()))

    def spread(self, features: Mapping[str, str]) -> float:
        """The scale of a regime, in log units: s, and wider by what is new to the fit and by what own runs taught."""
        own = self.own.get(features.get(CELL, OTHER), 0.0)
        return math.exp(self.base + self._regime(features) + self.widening(features) + own)

    def over(self, names: Collection[str]) -> Scale:
        """The scale by these features alone: the mean over what the others would say."""
        return replace(self, effects={name: effects for name, effects in self.effects.items() if name in names})

    def half_width(self, features: Mapping[str, str], level: float = 0.9) -> float:
        """Half-width of the interval of a level, in log units, at most ``WIDEST``."""
        return min(WIDEST, self.quantiles[f"{level:g}"] * self.spread(features))

    def _regime(self, features: Mapping[str, str]) -> float:
        """log(s) over the base."""
        return sum(effects.get(features.get(name, OTHER), effects.get(OTHER, 0.0)) for name, effects in self.effects.items())

    def _hidden(self, features: Mapping[str, str], regime: float) -> dict[str, float]:
        runs_as_one = math.exp(2.0 * (1.0 - self.growth) * regime)
        found = {}
        for name, counts in self.runs.items():
            value, reach = features.get(name, OTHER), self.reaches.get(name)
            near = {value: 0.0} if reach is None else doublings_apart(value, counts)
            told = (
                math.exp(-2.0 * apart / (reach or 1.0)) * (1.0 - runs_as_one / (counts.get(other, 0.0) + runs_as_one))
                for other, apart in near.items()
            )
            found[name] = (1.0 - max(told, default=0.0)) / runs_as_one
        return found


def doublings_apart(value: str, others: Collection[str]) -> dict[str, float]:
    """How far values of the same kind are from one, as the sum over what their place says in doublings.

    A value is a kind, a space and a place; a place is numbers between x: ``megatron h100-sxm dense 16-bit 12.0x5.0``.
    """
    apart = ((other, _apart(value, other)) for other in others)
    return {other: each for other, each in apart if each is not None}


@lru_cache(maxsize=4096)
def _apart(value: str, other: str) -> float | None:
    """How far one value is from another; None where they are of other kinds. Layouts of a case ask about the same few."""
    kind, _, place = value.rpartition(" ")
    start = len(kind) + 1
    if not (kind and other.startswith(kind + " ") and " " not in other[start:]):
        return None
    return sum(abs(float(a) - float(b)) for a, b in zip(place.split("x"), other[start:].split("x"), strict=False))


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
