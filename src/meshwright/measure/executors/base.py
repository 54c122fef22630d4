"""What an executor is: it starts trials, says how far they are, ends them, and finds those of a Meshwright that was killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from meshwright.measure.trial import Trial

Handle: TypeAlias = str
"""What an executor knows a started trial by; text that a store keeps."""
Phase = Literal["waiting", "running", "ended"]
Cause = Literal["", "cancelled", "time", "preempted", "node", "oom", "orphaned", "lost", "disk"]
"""What the executor itself knows of an end: nothing, that it was cancelled, was over its time, gave way to another job, lost a
node, was killed for its memory, was ended because Meshwright was gone, or that nothing of it is left; ``disk``: a full disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far a trial is."""

    phase: Phase
    said: str = ""
    """Why it waits, as a scheduler says it."""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a trial ended, as far as whoever ran it knows."""

    exit_status: int | None = None
    """Of the program; minus the signal that ended it, 128 and the signal from a shell; None where nobody knows."""
    cause: Cause = ""
    said: str = ""
    """The executor's words for it."""
    duration_s: float | None = None
    """While devices were held."""
    nodes: tuple[str, ...] = ()
    memory_kills: int | None = None
    """Processes that the kernel killed for memory in that time; None where nobody knows."""


class Executor(Protocol):
    """Runs trials. Every call returns soon; errors are ``InputError`` for what the user can mend, before anything has started."""

    @property
    def name(self) -> str:
        """As ``--executor`` has it."""

    @property
    def at_once(self) -> int:
        """How many trials it takes at a time unless the user says otherwise; a scheduler queues what is more."""

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse what cannot be run: programs or devices that are missing, or busy with somebody else's work."""

    def describe(self, trial: Trial) -> str:
        """What would be done, as a person would do it: the command line, or the script that would be handed over."""

    def submit(self, trial: Trial, folder: Path, mark: str, *, avoid: Sequence[str] = ()) -> Handle:
        """Start a trial in its folder, away from some nodes. ``mark`` is known to nobody else: ``adopt`` finds it by that."""

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        """How far trials are; one that nothing is known of has ended."""

    def cancel(self, handle: Handle, grace_s: float) -> None:
        """End a trial with all its processes: asked first, killed after ``grace_s``. Returns before it has ended."""

    def adopt(self, folder: Path, mark: str, handle: Handle | None) -> Handle | None:
        """A trial that another Meshwright has started and may not have noted: its handle where it waits, runs or has ended by
        itself; None where it never started or was ended with that Meshwright, after making sure that nothing of it runs."""

    def collect(self, handle: Handle, folder: Path) -> Ended:
        """How a trial that has ended did so."""


class Handed(NamedTuple):
    """A trial as ``submit`` takes it."""

    trial: Trial
    folder: Path
    mark: str


@runtime_checkable
class TakesSeveral(Protocol):
    """An executor to which trials that start together are handed together."""

    def submit_all(self, handed: Sequence[Handed], *, avoid: Sequence[str] = ()) -> list[Handle]:
        """Start all of them -> their handles, in order; where one cannot be, none has been."""


@runtime_checkable
class Holds(Protocol):
    """An executor that holds something between trials: an allocation, ranks that wait for the next."""

    reuse: bool
    """Whether it is to; not before somebody says so."""

    def let_go(self) -> None:
        """Give back what is held; what runs goes on to its end."""
