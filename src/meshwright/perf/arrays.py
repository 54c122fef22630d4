"""Array conventions of the formulas: every argument is a number or a column, and both give the same bits.

Scalars enter as arrays of no dimension, only ufuncs act on them, and sums are written in order, so that one layout
explained alone agrees with the same layout inside a column of a million.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

if TYPE_CHECKING:
    Record = TypeVar("Record", bound=Struct)

Array: TypeAlias = NDArray[np.float64]
Number: TypeAlias = float | int | NDArray[Any]


def array(value: Number) -> Array:
    """A number or a column as a float64 array of any dimension."""
    return np.asarray(value, dtype=np.float64)


def ceil_divide(value: Number, by: Number) -> Array:
    """ceil(value / by), for positive numbers."""
    return np.ceil(np.divide(value, by))


def spread(values: Array, shape: tuple[int, ...]) -> Array:
    """An array in a shape that it broadcasts to; itself where it has that shape."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def take(record: Record, index: NDArray[Any]) -> Record:
    """Chosen columns of a record of arrays; the column is the last dimension, numbers stay numbers."""
    chosen = {name: pick(getattr(record, name), index) for name in record.__struct_fields__}
    return structs.replace(record, **chosen)


def pick(values: Array, index: NDArray[Any]) -> Array:
    """Chosen columns of an array; a number stays a number."""
    return values[..., index] if values.ndim else values
