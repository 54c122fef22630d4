"""Types shared by the schedule formulas, and the one conversion they start with."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Value: TypeAlias = float | npt.NDArray[Any]
Count: TypeAlias = int | npt.NDArray[Any]


def floats(value: Value) -> Floats:
    """Any scalar or column as float64, so that both take the same path through the ufuncs.

    Shapes:  any; kept.
    Units:   kept.
    Holds:   numbers.
    Source:  none, a conversion.

    >>> floats(3).dtype.name
    'float64'
    """
    return np.asarray(value, dtype=np.float64)


def ints(value: Count) -> Ints:
    """Any scalar or column of counts as int64.

    Shapes:  any; kept.
    Units:   counts.
    Holds:   integers.
    Source:  none, a conversion.

    >>> ints(3).dtype.name
    'int64'
    """
    return np.asarray(value, dtype=np.int64)
