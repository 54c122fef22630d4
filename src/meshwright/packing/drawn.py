"""Lengths by a distribution instead of a file: ``lognormal:median=1500,sigma=0.8,max=8192,n=2048``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import did_you_mean, fault
from meshwright.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHAPES = {
    "lognormal": {"median": 1500.0, "sigma": 0.8}, "uniform": {"min": 1.0}, "bimodal": {"low": 500.0, "high": 6000.0, "share": 0.7},
    "fixed": {},
}
"""Name -> parameters with their defaults; all have ``max`` and ``n``."""
COMMON = {"max": 8192.0, "n": 2048.0}
MOST_SAMPLES, MOST_TOKENS = 10_000_000, 2**30
SPREAD = 0.25
"""Of each of two modes, in the logarithm of length."""


class Distribution(Value, frozen=True, kw_only=True):
    """A shape with its parameters; lengths in tokens."""

    shape: str
    parameters: dict[str, float]

    def draw(self, seed: int = 0) -> NDArray[np.int64]:
        """Lengths, the same for a seed; ``[n]``."""
        rng, of = np.random.default_rng(seed), self.parameters
        count, most = int(of["n"]), of["max"]
        match self.shape:
            case "lognormal":
                found = of["median"] * np.exp(of["sigma"] * rng.standard_normal(count))
            case "uniform":
                found = rng.integers(int(of["min"]), int(most) + 1, count).astype(np.float64)
            case "bimodal":
                centre = np.where(rng.random(count) < of["share"], of["low"], of["high"])
                found = centre * np.exp(SPREAD * rng.standard_normal(count))
            case _:
                found = np.full(count, most)
        return np.clip(np.rint(found), 1, most).astype(np.int64)


def distribution(text: str) -> Distribution:
    """A distribution as it is written.

    Errors:  ``InputError`` for a shape or a parameter that is not known, and for values that make no sense.

    >>> distribution("lognormal:median=1000,n=3").parameters["sigma"]
    0.8
    """
    shape, _, rest = text.strip().partition(":")
    if shape not in SHAPES:
        raise fault("distribution.shape", "{shape!r} is none of {shapes}{hint}", shape=shape, shapes=", ".join(SHAPES),
                    hint=did_you_mean(shape, SHAPES))
    known = {**SHAPES[shape], **COMMON}
    for pair in filter(None, (each.strip() for each in rest.split(","))):
        name, _, value = pair.partition("=")
        if name.strip() not in known:
            raise fault("distribution.name", "{name!r} is no parameter of {shape}: {known}", name=name.strip(), shape=shape,
                        known=", ".join(known))
        known[name.strip()] = _number(name.strip(), value.strip())
    _sensible(shape, known)
    return Distribution(shape=shape, parameters=known)


def _number(name: str, value: str) -> float:
    """A plain decimal number."""
    digits = value.replace("_", "")
    if len(value) > 20 or not digits.isascii() or not digits.replace(".", "", 1).isdigit():
        raise fault("distribution.number", "{name}={value!r} is not a number above 0", name=name, value=value)
    return float(digits)


def _sensible(shape: str, of: dict[str, float]) -> None:
    """Refuse what would draw nothing."""
    if not 1 <= of["n"] <= MOST_SAMPLES or of["n"] % 1:
        raise fault("distribution.n", "n={n:g} is no whole number from 1 to {most:,}", n=of["n"], most=MOST_SAMPLES)
    if not 1 <= of["max"] <= MOST_TOKENS:
        raise fault("distribution.max", "max={tokens:g} is no length from 1 to {most:,}", tokens=of["max"], most=MOST_TOKENS)
    low = {"lognormal": "median", "uniform": "min", "bimodal": "low"}.get(shape)
    if low is not None and not 1 <= of[low] <= of["max"]:
        raise fault("distribution.low", "{name}={low:g} is not between 1 and max={most:g}", name=low, low=of[low], most=of["max"])
    if not of.get("sigma", 1.0) <= 10:
        raise fault("distribution.sigma", "sigma={sigma:g} is more than 10", sigma=of["sigma"])
    if not of.get("share", 1.0) <= 1:
        raise fault("distribution.share", "share={share:g} is more than 1", share=of["share"])
