"""How wide intervals must be, and how likely a layout runs, from predictions of runs that the fit had not seen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import field

from meshwright.domain.uncertainty import CELL, OTHER, FitCurve, Scale
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVELS = (0.5, 0.8, 0.9, 0.95)
LEAST = 0.01
"""Residuals below this are as good as none: nobody reports steps more precisely."""
RIDGE = 4.0
"""Weight of the pull of an effect to nought, in runs."""
GROUP_RUNS = 15.0
"""Runs at which a group's own quantile weighs as much as the shared one."""
LEVEL = 0.9
"""Level whose intervals runs of the unseen are to lie in."""
GROWTH, REACHES = 0.25, {"model": 4.0}
"""How far what runs share grows with the errors of a regime, and reaches in doublings (``Scale``): the loss of ``shifts``, over the
corpus, is least from 0 to 0.25 (0.5 % more at 0.5, 3 % at 1) and from 4 to 6; numbers of devices are alike in nothing."""
VARIANCES = (0.0, *np.geomspace(0.01, 100.0, 81).tolist())
"""What is shared is tried at, over the variance of a run."""
TURNS = 6
LEAST_P = 1e-6
"""No probability is nearer to 0 or 1: one odd run must not decide."""
SIZE, GROUP, FRAMEWORK, LAUNCH, MODEL = "size", CELL, "framework", "launch", "model"
"""The number of devices of a cell; the feature whose values get a quantile of their own, as far as they have runs; the one of kin;
the one that says how a run is launched; the shape of a model."""
SHARED = (SIZE, MODEL, GROUP, FRAMEWORK)
"""Features whose values have errors in common."""


class Elsewhere(Value, frozen=True, kw_only=True):
    """Runs as fits without all their kin predict them: their whole source, all runs of as many devices, or of their model."""

    scores: Floats
    """|log(measured / predicted)| over the half-width of 0.9 that a scale without the kin has where nothing is unseen; NaN where
    nothing was measured."""
    hidden: Mapping[str, Floats]
    """Feature -> what the other runs do not say of its value (``Scale.hidden``)."""
    weights: Floats
    voices: NDArray[np.int64]
    """Number of what counts as one: a source, a configuration."""

    def of(self, use: NDArray[np.bool_]) -> Elsewhere:
        """The measured ones of some runs."""
        chosen = np.flatnonzero(use & np.isfinite(self.scores))
        return Elsewhere(
            scores=self.scores[chosen], hidden={name: each[chosen] for name, each in self.hidden.items()},
            weights=self.weights[chosen], voices=self.voices[chosen],
        )


class Unseen(Value, frozen=True, kw_only=True):
    """What says how much wider intervals of the step are of what no run had."""

    step: Mapping[str, Elsewhere]
    """Feature -> predictions that say what its unseen values have in common, coarser features last."""
    launch: Mapping[str, float] = field(default_factory=dict)
    """Effect of a kind of launch: how such runs were predicted by a fit without any of them."""


def fit_scale(
    residuals: Floats, features: Sequence[Mapping[str, str]], weights: Floats, *,
    elsewhere: Mapping[str, Elsewhere] | None = None, launches: Mapping[str, float] | None = None,
) -> Scale:
    """The width of intervals by regime.

        log |r| = base + sum of effects + noise   (ridge regression);   q(level) = conformal quantile of |r| / exp(...)
        then each value of ``cell`` is moved towards its own quantile by n / (n + n0)
        then each feature of ``elsewhere`` gets the variance of what its unseen values have in common (``shifts``)

    Symbols: r log(measured / predicted) out of fold; ``launches`` effects of kinds of launch without runs.
    Shapes:  one residual, mapping and weight per run.
    Holds:   runs of one configuration share a weight of one.
    Source:  split conformal with a scale model (locally weighted): Lei et al. 2018, section 5.2; groups as in Mondrian conformal.
    """
    names = sorted({name for feature in features for name in feature} - {SIZE, MODEL})
    columns = [(name, value) for name in names for value in sorted({feature[name] for feature in features})]
    place = {column: index for index, column in enumerate(columns)}
    design = np.zeros((len(residuals), len(columns)))
    for row, feature in enumerate(features):
        for name in names:
            design[row, place[name, feature[name]]] = 1.0
    size = np.log(np.maximum(np.abs(residuals), LEAST))
    base = float(np.average(size, weights=weights))
    weighted = design * weights[:, None]
    effects = np.linalg.solve(weighted.T @ design + RIDGE * np.eye(len(columns)), weighted.T @ (size - base))
    fitted: dict[str, dict[str, float]] = {name: {} for name in names}
    for (name, value), effect in zip(columns, effects, strict=True):
        fitted[name][value] = float(effect)
    scores = np.abs(residuals) / np.exp(base + design @ effects)
    shared = conformal_quantile(scores, weights, 0.9)
    for value in list(fitted[GROUP]):
        members = np.array([feature[GROUP] == value for feature in features])
        move = group_move(scores[members], weights[members], shared)
        fitted[GROUP][value] += move
        scores[members] *= math.exp(-move)
    for name in names:
        fitted[name][OTHER] = max(0.0, *fitted[name].values()) / 2.0
        if name.startswith((FRAMEWORK, GROUP)):  # what has no runs is wider by its shift
            fitted[name][OTHER] = 0.0
    if LAUNCH in fitted:
        fitted[LAUNCH] = {**(launches or {}), **fitted[LAUNCH]}
    quantiles = {f"{level:g}": round(conformal_quantile(scores, weights, level), 4) for level in LEVELS}
    rounded = {name: {key: round(each, 4) for key, each in values.items()} for name, values in fitted.items()}
    scale = Scale(base=base, effects=rounded, quantiles=quantiles)
    return replace(informed(scale, features, weights, elsewhere), shifts=shifts(elsewhere)) if elsewhere else scale


def informed(scale: Scale, features: Sequence[Mapping[str, str]], weights: Floats, names: Collection[str]) -> Scale:
    """A scale that knows of these features how many runs each value has."""
    runs: dict[str, dict[str, float]] = {}
    for name in names:
        counts: dict[str, float] = {}
        for feature, weight in zip(features, weights, strict=True):
            counts[feature[name]] = counts.get(feature[name], 0.0) + float(weight)
        runs[name] = {value: round(count, 2) for value, count in sorted(counts.items())}
    return replace(scale, runs=runs, reaches={name: reach for name, reach in REACHES.items() if name in names}, growth=GROWTH)


def shifts(elsewhere: Mapping[str, Elsewhere]) -> dict[str, float]:
    """The variances of what runs of unseen values have in common, by which a scale holds nine of ten of them.

        u_f = argmin over ``VARIANCES`` of  sum over the runs of f of  w rho(log z - 1/2 log(1 + sum over g of u_g hidden_g))
        rho(x) = 0.9 x where x > 0, else -0.1 x;   one feature after the other until none moves

    Symbols: z the scores; f and g features, the runs of f those that fits without their kin predict; w the weight of a run in its
             voice: n runs of one voice count as sqrt(n).
    Shapes:  feature -> number; 0 where no run was measured.
    Holds:   deterministic. A voice is a source where fits without sources teach: what one cluster with a thousand runs does not say
             of the next counts as 32 clusters with one run would.
    Source:  quantile regression: Koenker and Bassett 1978; the quantile of a log is the log of the quantile.
    """
    found = dict.fromkeys(elsewhere, 0.0)
    weights = {name: _in_voices(each) for name, each in elsewhere.items()}
    for _ in range(TURNS):
        before = dict(found)
        for name, each in elsewhere.items():
            if not len(each.scores):
                continue
            size = np.log(np.maximum(each.scores, 1e-3))
            others = sum((u * each.hidden[other] for other, u in found.items() if other != name), np.ones(len(size)))
            over = [size - 0.5 * np.log(others + u * each.hidden[name]) for u in VARIANCES]
            losses = [float(weights[name] @ np.maximum(LEVEL * each, (LEVEL - 1.0) * each)) for each in over]
            found[name] = VARIANCES[int(np.argmin(losses))]
        if found == before:
            break
    return {name: round(u, 4) for name, u in found.items()}


def _in_voices(elsewhere: Elsewhere) -> Floats:
    """Weights of runs of which n of one voice count as sqrt(n)."""
    total = np.bincount(elsewhere.voices, weights=elsewhere.weights)
    return np.asarray(elsewhere.weights / np.sqrt(np.maximum(total, 1e-12))[elsewhere.voices])


def group_move(scores: Floats, weights: Floats, shared: float) -> float:
    """How far a group's effect moves so that its own quantile counts as far as it has runs.

        n / (n + n0) log(own / shared)

    Source:  shrinkage of Mondrian groups; n0 ``GROUP_RUNS``.
    """
    count = float(weights.sum())
    own = conformal_quantile(scores, weights, 0.9, largest=True)
    return count / (count + GROUP_RUNS) * math.log(max(own, 1e-3) / shared)


def rescaled(scale: Scale, residuals: Floats, features: Sequence[Mapping[str, str]], weights: Floats) -> Scale:
    """A scale whose groups are moved by further runs: what a user's own runs teach about intervals."""
    own, shared = dict(scale.own), scale.quantiles["0.9"]
    for value in sorted({feature[GROUP] for feature in features}):
        members = np.array([feature[GROUP] == value for feature in features])
        spread = np.array([scale.spread(feature) for feature, chosen in zip(features, members, strict=True) if chosen])
        own[value] = round(own.get(value, 0.0) + group_move(np.abs(residuals[members]) / spread, weights[members], shared), 4)
    return replace(scale, own=own)


def widened(scale: Scale, half_widths: Floats, features: Sequence[Mapping[str, str]]) -> Scale:
    """A scale whose groups have these half-widths of the interval of 0.9, in the mean of their logs."""
    own = dict(scale.own)
    for value in sorted({feature[GROUP] for feature in features}):
        moves = [math.log(wide / scale.half_width(feature)) for wide, feature in zip(half_widths, features, strict=True)
                 if feature[GROUP] == value]
        own[value] = round(own.get(value, 0.0) + sum(moves) / len(moves), 4)
    return replace(scale, own=own)


def conformal_quantile(scores: Floats, weights: Floats, level: float, *, largest: bool = False) -> float:
    """The weighted quantile that a new score stays under with probability ``level``.

        smallest q with  sum of w over scores <= q  >=  level (1 + 1/n) of all

    Source:  Vovk et al. 2005; ``largest`` takes the largest score where n is too small for the level.
    """
    order = np.argsort(scores)
    total = np.cumsum(weights[order])
    count = total[-1]
    wanted = min(1.0, level * (1.0 + 1.0 / count)) * count
    if wanted > count - 1e-12 and not largest and count * (1.0 - level) < 1.0:
        return float(scores[order[-1]]) * 1.2
    return float(scores[order[min(len(order) - 1, int(np.searchsorted(total, wanted - 1e-9)))]])


def weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """The least value below or at which lies this share of the weight."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(total, level * total[-1] - 1e-12))]])


def fit_curve(log_ratio: Floats, ran: NDArray[np.bool_], weights: Floats) -> FitCurve:
    """Edge, width and share of other failures that make what ran and what failed most likely.

        p(ran) = (1 - f) / (1 + exp((x - edge) / width)),   x = log(reserved / memory)

    Shapes:  one value per run.
    Holds:   by coordinate search on a fixed grid, refined: no start value, no random number.
    """
    best, value = (0.0, 0.05, 0.02), math.inf
    edges, widths, failures = np.linspace(-0.4, 0.4, 33), np.geomspace(0.01, 0.3, 18), np.linspace(0.0, 0.3, 16)
    for _ in range(3):
        for edge in edges:
            for width in widths:
                losses = _curve_losses(log_ratio, ran, weights, edge, width, failures)
                least = int(np.argmin(losses))
                if losses[least] < value:
                    best, value = (float(edge), float(width), float(failures[least])), float(losses[least])
        edge, width, share = best
        step = (edges[1] - edges[0]) / 4.0
        edges, widths = np.linspace(edge - 3 * step, edge + 3 * step, 7), np.geomspace(width / 1.2, width * 1.2, 5)
        failures = np.clip(np.linspace(share - 0.02, share + 0.02, 5), 0.0, 0.5)
    return FitCurve(edge=round(best[0], 4), width=round(best[1], 4), failures=round(best[2], 4))


def _curve_losses(
    log_ratio: Floats, ran: NDArray[np.bool_], weights: Floats, edge: float, width: float, failures: Floats
) -> Floats:
    """Negative log likelihood of one edge and width, for every share of other failures.

    Shapes:  ``[share]``.
    """
    p_memory = 1.0 / (1.0 + np.exp(np.clip((log_ratio - edge) / width, -60.0, 60.0)))
    others = 1.0 - failures[:, None]
    log_p = np.clip(np.log(others) + np.log(p_memory[ran]), math.log(LEAST_P), math.log1p(-LEAST_P))
    p_failed = np.clip(others * p_memory[~ran], LEAST_P, 1.0 - LEAST_P)
    return -np.asarray(log_p @ weights[ran] + np.log1p(-p_failed) @ weights[~ran])
