"""Student's t for whole degrees of freedom: how far off a least-squares fit may be."""

from __future__ import annotations

import math


def within(t: float, freedom: int) -> float:
    """Probability that a t-distributed value lies within -t..t.

        A = 2/pi (a + sin a (cos a + 2/3 cos^3 a + ...))   (odd),   sin a (1 + 1/2 cos^2 a + 3/8 cos^4 a + ...)   (even)

    Symbols: a = atan(t / sqrt(n)), n degrees of freedom; powers up to n - 2.
    Holds:   exact for whole n.
    Source:  Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def two_sided(freedom: int, probability: float = 0.95) -> float:
    """The t that a value stays within with this probability."""
    low, high = 0.0, 1.0
    while within(high, freedom) < probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < probability else (low, middle)
    return high
