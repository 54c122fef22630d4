"""Partial pooling: which offsets a run's constants are made of, as the columns of a design matrix."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.calibration import LEVELS, Offsets
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.calibration import Freedom, Key


class Pooling(Value, frozen=True, dict=True):
    """Offsets z of all levels and values; log multiplier of constant k for key j = sum of the offsets that j has."""

    freedoms: tuple[Freedom, ...]
    keys: tuple[Key, ...]
    columns: tuple[tuple[int, str, str], ...]
    """Constant, level and value of every offset."""
    spreads: NDArray[np.float64]
    """Prior standard deviation of every offset."""
    member: tuple[NDArray[np.int64], ...]
    """Per constant: ``[key, level]`` column of the offset."""
    room: NDArray[np.float64] | None = None
    """The largest log multiplier ``[key, constant]``; None: nothing is bounded."""

    @property
    def size(self) -> int:
        """Number of offsets."""
        return len(self.columns)

    def multipliers(self, offsets: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log multipliers ``[key, constant]``."""
        return np.stack([offsets[member].sum(axis=1) for member in self.member], axis=1)

    def normal_equations(
        self, jacobian: NDArray[np.float64], key_of: NDArray[np.int64], factor: NDArray[np.float64], residual: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Matrix and right side of weighted least squares by offsets, from derivatives by constants.

            A = sum over rows of  w d d^T,   b = sum over rows of  w d r

        Symbols: d derivatives by the offsets of a row: those of its constants, the same for every offset of one constant.
        Shapes:  ``jacobian [row, constant]``, the others ``[row]`` -> ``[offset, offset]``, ``[offset]``.
        Holds:   rows of one key share their offsets, so each key is summed by constants first: rows x constants^2 operations
                 instead of rows x offsets^2; constants that move none of its rows are left out.
        """
        matrix, right = np.zeros((self.size, self.size)), np.zeros(self.size)
        for key in np.unique(key_of):
            chosen = key_of == key
            own = jacobian[chosen]
            moves = own.any(axis=0)
            own = own[:, moves]
            weighted = own * factor[chosen, None]
            columns = self._columns[key][moves[self._constants]]
            repeated = (np.cumsum(moves) - 1)[self._constants[moves[self._constants]]]
            matrix[np.ix_(columns, columns)] += (weighted.T @ own)[np.ix_(repeated, repeated)]
            right[columns] += (weighted.T @ residual[chosen])[repeated]
        return matrix, right

    @cached_property
    def _constants(self) -> NDArray[np.int64]:
        """Constant of every offset of a key."""
        return np.repeat(np.arange(len(self.member)), [member.shape[1] for member in self.member])

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """``[key, offset of the key]``: its columns."""
        return np.concatenate(self.member, axis=1)

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Which offsets every bounded sum has, ``[bound, offset]``, and the most that it may be; several keys' sum is one bound."""
        found: dict[tuple[int, ...], float] = {}
        if self.room is not None:
            for constant, member in enumerate(self.member):
                for key in np.flatnonzero(np.isfinite(self.room[:, constant])):
                    columns = tuple(member[key].tolist())
                    found[columns] = min(float(self.room[key, constant]), found.get(columns, np.inf))
        which = np.zeros((len(found), self.size))
        for row, columns in enumerate(found):
            which[row, list(columns)] = 1.0
        return which, np.array(list(found.values()))

    def offsets_by_name(self, offsets: NDArray[np.float64]) -> dict[str, Offsets]:
        """Offsets as values that a calibration carries; those that stayed at nought are left out."""
        result: dict[str, dict[str, dict[str, float]]] = {freedom.name: {} for freedom in self.freedoms}
        for (constant, level, value), offset in zip(self.columns, offsets, strict=True):
            if abs(offset) >= NEGLIGIBLE:
                result[self.freedoms[constant].name].setdefault(level, {})[value] = round(float(offset), 5)
        return {
            freedom.name: Offsets(by_level=result[freedom.name], maximum=freedom.maximum, reached=freedom.reached)
            for freedom in self.freedoms if result[freedom.name]
        }


NEGLIGIBLE = 5e-4


def ceilings_of(freedoms: Sequence[Freedom], keys: Sequence[Key]) -> NDArray[np.float64]:
    """The largest value of every constant for every key.

    Shapes:  ``[key, constant]``; infinite where nothing bounds it.
    """
    return np.array([[each.most(key.device) for each in freedoms] for key in keys]).reshape(len(keys), len(freedoms))


def pooling(freedoms: Sequence[Freedom], keys: Sequence[Key], shares: Mapping[str, float] | None = None) -> Pooling:
    """The offsets that a set of keys needs; ``shares``: of the spread of what is fitted for some values of a level."""
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
                    spreads.append(freedom.spreads[level] * (shares or {}).get(value[level], 1.0))
                own[row, column] = place[name]
        member.append(own)
    return Pooling(
        freedoms=tuple(freedoms), keys=tuple(keys), columns=tuple(columns), spreads=np.array(spreads), member=tuple(member)
    )
