"""How far each rank's collectives got: what locates a hang."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from meshwright.domain.observed.place import Place
from meshwright.value import Value


class CollectiveEntry(Value, frozen=True, kw_only=True):
    """One collective of one rank, as a watchdog or a flight recorder has it."""

    rank: int | None
    group: str
    sequence: int | None
    operation: str
    """As the recorder spells it: ``ALLREDUCE``, ``nccl:all_reduce``."""
    state: str
    """``scheduled``, ``started``, ``completed`` or ``timed out``."""
    elements_in: int | None = None
    elements_out: int | None = None
    sizes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    waited_s: float | None = None
    """From when it was asked for until it was done, or until the file was written."""
    timeout_s: float | None = None
    place: Place | None = None
    frame: str = ""
    """The frame of the user's code that asked for it."""
    point_to_point: bool = False
    """A send or a receive, counted apart from what all ranks of the group do."""


class RankProgress(Value, frozen=True, kw_only=True):
    """The last collectives of one rank in one group."""

    rank: int | None
    group: str
    last_enqueued: int | None = None
    last_started: int | None = None
    last_completed: int | None = None
    place: Place | None = None


class Hanging(Value, frozen=True, kw_only=True):
    """A dump, or the watchdog's lines of a log."""

    file: str
    format: str
    entries: tuple[CollectiveEntry, ...] = ()
    progress: tuple[RankProgress, ...] = ()
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Process group -> its ranks, where said."""
    notes: tuple[str, ...] = ()


class Hang(Value, frozen=True, kw_only=True):
    """What a hang waits for, as far as its evidence goes."""

    kind: str
    """``missing``: these ranks have not asked for the collective that others wait in. ``mismatch``: they asked for another
    operation or size. ``late``: they asked for it and their devices have not begun, or not finished what others have. ``stalled``:
    every rank is in it and none gets on, so that the network or a device is at fault. ``unknown``: every rank that says something
    is in it, and nobody says which ranks there are."""
    ranks: tuple[int, ...]
    group: str
    collective: str
    """As the recorder spells it; empty where nobody says."""
    sequence: int | None
    waiting: tuple[int, ...] = ()
    """Ranks that are known to wait."""
    silent: tuple[int, ...] = ()
    """Ranks of the group that nothing is known of."""
    instead: tuple[CollectiveEntry, ...] = ()
    """What ``ranks`` asked for instead, or wait in elsewhere."""
    place: Place | None = None
