"""The constants of anchored memory, from pairs of recorded runs: ``python -m benchmarks.anchor_constants``.

Each pair is two runs of one source and model that differ in micro-batch, batch or devices alone; the one with the smaller peak is
the probe. What measured peaks differ from those that held-out fits predict is taken for a Student's t of two dimensions with the
scales of ``estimate.anchor.inferred``, and the shares are those under which all pairs are likeliest. Models vote by turns: shares
are fitted without a model, and its pairs say how many scales an interval must be wide to hold 90 % of the errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.few_shot_memory import families, peak
from meshwright.estimate import estimate
from meshwright.estimate.anchor import FIXED, LEAST_RATIO, MULTIPLE, NINETY, SHARED
from meshwright.estimate.certainty import LEVEL, memory_curve
from meshwright.evidence.fit.spread import conformal_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.fit.fitters import Predictor
    from meshwright.evidence.rows.run import Run

    Floats = NDArray[np.float64]

NAMES = ("MULTIPLE", "FIXED", "SHARED")
SHIPPED = (MULTIPLE, FIXED, SHARED)
DEGREES = 4.0
"""Degrees of freedom, as of the fit (``evidence.fit.noise``): a few pairs are far off, and must not say how far all are."""
FRAMEWORK = "nanotron"
"""The only framework with hundreds of such pairs."""
HELD = 0.9
STEP, FINEST = 0.5, 1e-4
"""Steps of the search, as logs: the first, and the one at which it ends."""
LEAST_MODEL = 10
"""Pairs that a model needs to say how wide the errors are."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Columns over pairs, the probe first: ``[2, pair]``; bytes in GiB."""

    models: tuple[str, ...]
    varying: Floats
    states: Floats
    errors: Floats
    """Measured peak less the predicted one."""
    allocated: Floats
    """Predicted peak."""
    reserved: Floats
    """What the allocator holds there, which the interval is a share of."""
    half_width: Floats
    """Of the interval of 0.9 without a probe, in log units: what stays of it is the share that no probe shows."""

    def of(self, keep: Sequence[bool]) -> Pairs:
        """Some of them."""
        chosen = np.array(keep)
        return Pairs(
            tuple(model for model, kept in zip(self.models, keep, strict=True) if kept),
            self.varying[:, chosen], self.states[:, chosen], self.errors[:, chosen], self.allocated[:, chosen],
            self.reserved[:, chosen], self.half_width[:, chosen],
        )


def pairs() -> Pairs:
    """Every run of the framework with one smaller run of its family, drawn at random."""
    random, rows = np.random.default_rng(0), []
    for members in families().values():
        for run, case in members:
            smaller = [other for other in members if other[0].group != run.group and peak(other[0]) < peak(run)]
            if run.family != FRAMEWORK or not smaller:
                continue
            both = (smaller[int(random.integers(len(smaller)))], (run, case))
            rows.append((run.row.model, [_figures(each, case) for each, _ in both]))
    columns = np.array([figures for _, figures in rows]).transpose(2, 1, 0)
    return Pairs(tuple(model for model, _ in rows), *columns)


def _figures(run: Run, case: Predictor) -> tuple[float, ...]:
    memory = max((stage.memory for stage in estimate(case(run), run.layout).stages), key=lambda each: each.allocated_bytes)
    states, curve = memory.parameters + memory.gradients + memory.optimizer, memory_curve(case(run))
    assert curve is not None
    figures = (
        memory.activations + memory.temporary, states, peak(run) - memory.allocated_bytes, memory.allocated_bytes,
        memory.reserved_bytes,
    )
    return *(each / 2**30 for each in figures), curve.half_width(LEVEL)


def variances(shares: Sequence[float], found: Pairs) -> tuple[Floats, Floats, Floats]:
    """Of probe and run, and their covariance: ``estimate.anchor.inferred`` for pairs."""
    multiple, fixed, shared = shares
    v, s = found.varying, found.states
    each = (multiple * v) ** 2 + (fixed * s) ** 2
    return each[0], each[1], shared * (multiple**2 * v[0] * v[1] + fixed**2 * s[0] * s[1])


def loss(shares: Sequence[float], found: Pairs) -> float:
    """Minus twice the mean log-likelihood of pairs, without constants.

        (nu + 2) log(1 + d^T S^-1 d / nu) + log |S|

    Source:  the multivariate t: Lange, Little and Taylor 1989.
    """
    probe, run, both = variances(shares, found)
    determinant = probe * run - both**2
    if (determinant <= 0.0).any():
        return math.inf
    d = found.errors
    form = (run * d[0] ** 2 - 2.0 * both * d[0] * d[1] + probe * d[1] ** 2) / determinant
    return float(np.mean((DEGREES + 2.0) * np.log1p(form / DEGREES) + np.log(determinant)))


def likeliest(found: Pairs) -> tuple[float, ...]:
    """The shares under which the pairs are likeliest: one share after the other, up and down by steps that shrink."""
    best, step = [0.3, 0.1, 0.8], STEP
    least = loss(best, found)
    while step > FINEST:
        before = least
        for place, way in product(range(len(NAMES)), (1.0, -1.0)):
            moved = list(best)
            if NAMES[place] == "SHARED":  # between nought and one
                odds = moved[place] / (1.0 - moved[place]) * math.exp(way * step)
                moved[place] = odds / (1.0 + odds)
            else:
                moved[place] *= math.exp(way * step)
            if (tried := loss(moved, found)) < least:
                best, least = moved, tried
        if least == before:
            step /= 2.0
    return tuple(best)


def conditioned(shares: Sequence[float], found: Pairs) -> tuple[Floats, Floats]:
    """What a probe says of the run's error, and the scale of what it leaves open: ``estimate.anchor`` for pairs."""
    probe, run, both = variances(shares, found)
    mean = np.maximum(both / probe * found.errors[0], (LEAST_RATIO - 1.0) * found.varying[1])
    return mean, np.sqrt(run - both**2 / probe)


def scaled_errors(shares: Sequence[float], found: Pairs) -> Floats:
    """How many scales wide the interval of a run must be to hold what its probe leaves.

        n = sqrt(log(measured / anchored)^2 - (h (1 - allocated / reserved))^2) reserved / scale,   0 where h alone holds it

    Source:  ``estimate.anchor.anchored``, solved for ``NINETY``.
    """
    mean, scale = conditioned(shares, found)
    allocated, reserved = found.allocated[1] + mean, found.reserved[1] + mean
    error = np.log((found.allocated[1] + found.errors[1]) / allocated)
    held = found.half_width[1] * (1.0 - allocated / reserved)
    return np.asarray(np.sqrt(np.maximum(error**2 - held**2, 0.0)) * reserved / scale)


def ninety(found: Pairs) -> tuple[float, int]:
    """Scales that hold 90 % of the errors of models that the shares were not fitted to, and of how many pairs."""
    errors = []
    for model in sorted(set(found.models)):
        own = [each == model for each in found.models]
        if sum(own) >= LEAST_MODEL:
            errors.append(scaled_errors(likeliest(found.of([not each for each in own])), found.of(own)))
    every = np.concatenate(errors)
    return conformal_quantile(every, np.ones(len(every)), HELD), len(every)


def section(found: Pairs) -> str:
    """The part of the page: each constant as it ships and as these pairs have it."""
    fitted, (quantile, count) = likeliest(found), ninety(found)
    rows = list(zip(NAMES, SHIPPED, fitted, strict=True))
    lines = ["## Constants of anchored memory\n",
             f"`python -m benchmarks.anchor_constants`: {len(found.models)} pairs of {FRAMEWORK}, the shares that are likeliest",
             f"under heavy tails (Student's t of {DEGREES:g}), and how many of these scales hold 90 % of {count} errors of",
             "models that were left out.\n",
             "| constant (`estimate/anchor.py`) | ships | these pairs |", "|---|---:|---:|"]
    lines += [f"| `{name}` | {ships:g} | {value:.3g} |" for name, ships, value in (*rows, ("NINETY", NINETY, quantile))]
    gain = loss(SHIPPED, found) - loss(fitted, found)
    return "\n".join(lines) + f"""

What ships is {gain * len(found.models) / 2.0:.1f} less likely (log-likelihood of all pairs) than the best: constants are rounded.
Heavy tails were chosen while looking at these pairs, and matter little: out of fold by model, a normal likelihood leaves the same
error. What two layouts do not share has the form of what they do, so nothing else is fitted. No other source has pairs enough to be
asked.
"""


if __name__ == "__main__":
    print(section(pairs()))
