"""What a grid under evaluation is asked by, looks at piece by piece, and says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct

from meshwright.search.legal_grid import take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.search.grid_tables import States, Work
    from meshwright.search.legal_grid import Pairs

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]


class Knobs(Struct, frozen=True, kw_only=True):
    """Knobs of layouts as columns that broadcast to their figures; the values of a knob that is open stand on an axis in front."""

    meshes: dict[str, Ints]
    """All meshes of the grid."""
    at: Ints
    """Which of them."""
    mb: Ints
    vp: Ints
    zero: Ints
    treatment: Ints
    """Code: place in ``Space.recomputes``."""
    able: Bools | None = None
    """Whether a mesh has a sharding, where that is open."""

    @property
    def mesh(self) -> dict[str, Ints]:
        """Degrees as columns."""
        return take(self.meshes, self.at)


class Bar(Protocol):
    """What a search has found already, asked whether layouts can still matter."""

    def beyond(self, step_s: Floats, reserved_bytes: Floats, of: Knobs | None = None, /, *, exactly: bool = False) -> Bools:
        """Whether no layout can matter that takes at least so long and needs at least (or ``exactly``) so much.

        ``of``: what is known of their knobs.
        """
        ...


class Rows(Struct, frozen=True, kw_only=True):
    """Evaluated layouts: their knobs as columns, step time and reserved bytes."""

    meshes: dict[str, Ints]
    """All meshes of the grid."""
    at: Ints
    """Which of them."""
    mb: Ints
    vp: Ints
    zero: Ints
    shards: Ints
    treatment: Ints
    """Code: place in ``Space.recomputes``."""
    schedule: str
    order: Ints
    """Place in the enumeration of the grid, whatever order it is evaluated in."""
    step_s: Floats
    mean_s: Floats
    """The step on average over the times that runs of a layout take; never less than ``step_s``."""
    reserved_bytes: Floats

    def __len__(self) -> int:
        return len(self.step_s)

    @property
    def mesh(self) -> dict[str, Ints]:
        """Degrees as columns."""
        return take(self.meshes, self.at)

    def take(self, index: Ints | Bools) -> Rows:
        """Chosen rows."""
        return Rows(
            meshes=self.meshes, at=self.at[index], mb=self.mb[index], vp=self.vp[index],
            zero=self.zero[index], shards=self.shards[index], treatment=self.treatment[index], schedule=self.schedule,
            order=self.order[index], step_s=self.step_s[index], mean_s=self.mean_s[index],
            reserved_bytes=self.reserved_bytes[index],
        )


class Level(Struct, frozen=True, kw_only=True):
    """A block under one schedule."""

    number: int
    """Of the schedule."""
    states: States
    possible: Bools
    """Whether a layout is looked at, ``[shape, sharding]``."""
    room: Floats
    """What the leanest states need, ``[mesh, chunks]``; infinite where no layout is looked at."""
    legal: int
    """Layouts."""


class Turn(Struct, frozen=True, kw_only=True):
    """Pairs that are looked at side by side."""

    number: Ints
    """Their places in the grid."""
    pairs: Pairs
    place: Ints
    """Of their meshes in the block."""
    knobs: Knobs | None
    """Under a bar alone."""
    work: Work
    least_s: Floats | None
    """Lower bound of the step under each treatment of the space, ``[treatment, pair]``. Under a bar alone."""


class Piece(Struct, frozen=True, kw_only=True):
    """Pipelines: pair of the turn, treatment, chunk count and shape of each."""

    pair: Ints
    treatment: Ints
    chunk: Ints
    shape: Ints

    def where(self, index: Ints | Bools) -> Piece:
        """Chosen ones."""
        return Piece(pair=self.pair[index], treatment=self.treatment[index], chunk=self.chunk[index], shape=self.shape[index])
