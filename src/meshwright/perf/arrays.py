"""Array conventions of the formulas: every argument is a number or a column, and both give the same bits.

Scalars enter as arrays of no dimension, only ufuncs act on them, and sums are written in order, so that one layout
explained alone agrees with the same layout inside a column of a million.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Number: TypeAlias = float | int | Array


def array(value: Number) -> Array:
    """A number or a column as a float64 array of any dimension."""
    return np.asarray(value, dtype=np.float64)


def ceil_divide(value: Number, by: Number) -> Array:
    """ceil(value / by), for positive numbers."""
    return np.ceil(np.divide(value, by))
