"""Partial pooling: which offsets a run's constants are made of, as the columns of a design matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.calibration import LEVELS, Offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.calibration import Freedom, Key


@dataclass(frozen=True, slots=True)
class Pooling:
    """Offsets z of all levels and values; log multiplier of constant k for key j = sum of the offsets that j has."""

    freedoms: tuple[Freedom, ...]
    keys: tuple[Key, ...]
    columns: tuple[tuple[int, str, str], ...]
    """Constant, level and value of every offset."""
    spreads: NDArray[np.float64]
    """Prior standard deviation of every offset."""
    member: tuple[NDArray[np.int64], ...]
    """Per constant: ``[key, level]`` column of the offset."""

    @property
    def size(self) -> int:
        """Number of offsets."""
        return len(self.columns)

    def multipliers(self, offsets: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log multipliers ``[key, constant]``."""
        return np.stack([offsets[member].sum(axis=1) for member in self.member], axis=1)

    def spread_out(self, jacobian: NDArray[np.float64], key_of: NDArray[np.int64]) -> NDArray[np.float64]:
        """Derivatives by offsets from derivatives by constants: ``[row, constant] -> [row, offset]``."""
        result = np.zeros((len(jacobian), self.size))
        rows = np.arange(len(jacobian))
        for index, member in enumerate(self.member):
            for level in range(member.shape[1]):
                result[rows, member[key_of, level]] += jacobian[:, index]
        return result

    def offsets_by_name(self, offsets: NDArray[np.float64]) -> dict[str, Offsets]:
        """Offsets as values that a calibration carries; those that stayed at nought are left out."""
        result: dict[str, dict[str, dict[str, float]]] = {freedom.name: {} for freedom in self.freedoms}
        for (constant, level, value), offset in zip(self.columns, offsets, strict=True):
            if abs(offset) >= NEGLIGIBLE:
                result[self.freedoms[constant].name].setdefault(level, {})[value] = round(float(offset), 5)
        return {
            freedom.name: Offsets(by_level=result[freedom.name], maximum=freedom.maximum)
            for freedom in self.freedoms if result[freedom.name]
        }  # fmt: skip


NEGLIGIBLE = 5e-4


def pooling(freedoms: Sequence[Freedom], keys: Sequence[Key]) -> Pooling:
    """The offsets that a set of keys needs."""
    columns: list[tuple[int, str, str]] = []
    spreads: list[float] = []
    place: dict[tuple[int, str, str], int] = {}
    member: list[NDArray[np.int64]] = []
    values = [key.values() for key in keys]
    for index, freedom in enumerate(freedoms):
        levels = [level for level in LEVELS if freedom.spreads.get(level, 0.0) > 0.0]
        own = np.zeros((len(keys), len(levels)), dtype=np.int64)
        for row, value in enumerate(values):
            for column, level in enumerate(levels):
                name = (index, level, value[level])
                if name not in place:
                    place[name] = len(columns)
                    columns.append(name)
                    spreads.append(freedom.spreads[level])
                own[row, column] = place[name]
        member.append(own)
    return Pooling(
        freedoms=tuple(freedoms), keys=tuple(keys), columns=tuple(columns), spreads=np.array(spreads), member=tuple(member)
    )
