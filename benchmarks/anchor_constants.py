"""The constants of anchored memory, from pairs of recorded runs: ``python -m benchmarks.anchor_constants``.

Each pair is two runs of one source and model that differ in micro-batch, batch or devices alone; the one with the smaller peak is
the probe. What measured peaks differ from those that held-out fits predict is taken for normal with the covariance of
``estimate.anchor.inferred``, and the shares are those under which all pairs are likeliest. Models vote by turns: shares are
fitted without a model, and its pairs say how many standard deviations hold 90 % of the errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.few_shot_memory import families, peak
from meshwright.estimate import estimate
from meshwright.estimate.anchor import FIXED, MULTIPLE, NINETY, OWN, SHARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.fit.fitters import Predictor
    from meshwright.evidence.rows.run import Run

    Floats = NDArray[np.float64]

NAMES = ("MULTIPLE", "FIXED", "OWN", "SHARED")
SHIPPED = (MULTIPLE, FIXED, OWN, SHARED)
FRAMEWORK = "nanotron"
"""The only framework with hundreds of such pairs."""
HELD = 0.9
ROUNDS = 40
"""Rounds of the search; each halves the steps that found nothing better."""
LEAST = 1e-3
"""No share is printed smaller."""
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

    def of(self, keep: Sequence[bool]) -> Pairs:
        """Some of them."""
        chosen = np.array(keep)
        return Pairs(
            tuple(model for model, kept in zip(self.models, keep, strict=True) if kept), self.varying[:, chosen],
            self.states[:, chosen], self.errors[:, chosen],
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


def _figures(run: Run, case: Predictor) -> tuple[float, float, float]:
    memory = max((stage.memory for stage in estimate(case(run), run.layout).stages), key=lambda each: each.allocated_bytes)
    states = memory.parameters + memory.gradients + memory.optimizer
    gib = 2**30
    return (memory.activations + memory.temporary) / gib, states / gib, (peak(run) - memory.allocated_bytes) / gib


def variances(shares: Sequence[float], found: Pairs) -> tuple[Floats, Floats, Floats]:
    """Of probe and run, and their covariance: ``estimate.anchor.inferred`` for pairs."""
    multiple, fixed, own, shared = shares
    v, s = found.varying, found.states
    each = (multiple * v) ** 2 + (fixed * s) ** 2 + (own * (v + s)) ** 2
    return each[0], each[1], shared * (multiple**2 * v[0] * v[1] + fixed**2 * s[0] * s[1])


def loss(shares: Sequence[float], found: Pairs) -> float:
    """Minus twice the mean log-likelihood of pairs."""
    probe, run, both = variances(shares, found)
    determinant = probe * run - both**2
    if (determinant <= 0.0).any():
        return math.inf
    d = found.errors
    form = (run * d[0] ** 2 - 2.0 * both * d[0] * d[1] + probe * d[1] ** 2) / determinant
    return float(np.mean(form + np.log(determinant)))


def likeliest(found: Pairs) -> tuple[float, ...]:
    """The shares under which the pairs are likeliest: one share after the other, up and down by steps that shrink."""
    best, steps = [0.3, 0.1, 0.05, 0.8], [0.5] * 4
    least = loss(best, found)
    for _ in range(ROUNDS):
        for place, way in product(range(4), (1.0, -1.0)):
            moved = list(best)
            if place == NAMES.index("SHARED"):  # between nought and one
                odds = moved[place] / (1.0 - moved[place]) * math.exp(way * steps[place])
                moved[place] = odds / (1.0 + odds)
            else:
                moved[place] *= math.exp(way * steps[place])
            if (tried := loss(moved, found)) < least:
                best, least = moved, tried
                break
        else:
            steps = [step / 2.0 for step in steps]
    return tuple(best)


def standard_errors(shares: Sequence[float], found: Pairs) -> Floats:
    """What is left of the run's error when the probe is known, in its standard deviations."""
    probe, run, both = variances(shares, found)
    left = run - both**2 / probe
    return np.asarray((found.errors[1] - both / probe * found.errors[0]) / np.sqrt(left))


def ninety(found: Pairs) -> tuple[float, int]:
    """Standard deviations that hold 90 % of the errors of models that the shares were not fitted to, and of how many pairs."""
    outside = []
    for model in sorted(set(found.models)):
        own = [each == model for each in found.models]
        if sum(own) >= LEAST_MODEL:
            outside.append(np.abs(standard_errors(likeliest(found.of([not each for each in own])), found.of(own))))
    every = np.sort(np.concatenate(outside))
    return float(every[min(len(every) - 1, math.ceil(HELD * (len(every) + 1)) - 1)]), len(every)


def section(found: Pairs) -> str:
    """The part of the page: each constant as it ships and as these pairs have it."""
    fitted, (quantile, count) = likeliest(found), ninety(found)
    rows = list(zip(NAMES, SHIPPED, fitted, strict=True))
    lines = ["## Constants of anchored memory\n",
             f"`python -m benchmarks.anchor_constants`: {len(found.models)} pairs of {FRAMEWORK}, likeliest shares, and how many",
             f"standard deviations hold 90 % of {count} errors of models that were left out.\n",
             "| constant (`estimate/anchor.py`) | ships | these pairs |", "|---|---:|---:|"]
    lines += [f"| `{name}` | {ships:g} | {max(value, LEAST):.3g} |" for name, ships, value in (*rows, ("NINETY", NINETY, quantile))]
    gain = loss(SHIPPED, found) - loss(fitted, found)
    return "\n".join(lines) + f"""

What ships is {gain * len(found.models) / 2.0:.1f} less likely (log-likelihood of all pairs) than the best, and was fitted to fewer
pairs by a script that is not kept. An `OWN` of nought says that what two layouts do not share has the form of what they do.
"""


if __name__ == "__main__":
    print(section(pairs()))
