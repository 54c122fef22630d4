"""Who says which layout is run next: a fixed list (``sweep``), or a brain that learns from every outcome (``tune``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.domain.layout import Layout
    from meshwright.measure.outcome import Outcome


BLOCK = " #"
"""Between a label and the number of a block of it."""


def layout_of(name: str) -> tuple[str, int]:
    """The label of what a store has under a name, and which block it is.

    >>> layout_of("tp1 dp2 #3"), layout_of("tp1 dp2")
    (('tp1 dp2', 3), ('tp1 dp2', 0))
    """
    label, mark, number = name.rpartition(BLOCK)
    return (label, int(number)) if mark and number.isdecimal() else (name, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout that may be run, and what is expected of it."""

    label: str
    """Names it within its case: two candidates of one label are one trial."""
    layout: Layout
    predicted_s: float | None = None
    """The expected step; limits of a trial and its price are worked out of it."""
    predicted_memory_bytes: float | None = None
    """Expected peak of the fullest rank."""
    block: int = 0
    """Which time it is measured again by turns with others (``conduct.finals``); 0: the trial itself."""

    @property
    def name(self) -> str:
        """Names what is run once in a store: the trial, or one of its blocks."""
        return f"{self.label}{BLOCK}{self.block}" if self.block else self.label


class Chooser(Protocol):
    """Asked for the next layout whenever one can start, told of every outcome; never asked of two trials of one label.

    Several trials may run at once: ``ask`` may be called again before the last candidate's outcome is told. None means that
    nothing is to start now; the run is over when nothing runs and ``ask`` gives None. An outcome that a store already has is told
    at once, without a run.
    """

    def ask(self) -> Candidate | None:
        """The next layout to run."""

    def take(self, candidate: Candidate) -> None:
        """A layout that was run, or runs, though it was not asked for now: a store has it. Told of like one that was."""

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """How a trial ended, after the last of its attempts; a failure is an outcome, too."""

    @property
    def enough(self) -> bool:
        """Whether what was asked for and has not begun need not be run any more."""

    @property
    def stopped(self) -> str:
        """Why nothing more is asked for, in one sentence; empty while there is something, or where all has been run."""


class Named(Protocol):
    """What is chosen from: a label names it."""

    @property
    def label(self) -> str:
        """Its name; two of one label are one."""


One = TypeVar("One", bound=Named)


class Listed(Generic[One]):
    """A fixed list, in its order."""

    def __init__(self, candidates: Iterable[One]) -> None:
        """Each label once, the first of its name."""
        self._left = {each.label: each for each in candidates}

    def ask(self) -> One | None:
        """The next of the list."""
        return self._left.pop(next(iter(self._left))) if self._left else None

    def take(self, candidate: One) -> None:
        """It is not the list's any more."""
        self._left.pop(candidate.label, None)

    def tell(self, candidate: One, outcome: Outcome) -> None:
        """Nothing is learnt from an outcome."""

    @property
    def enough(self) -> bool:
        """A list is run to its end."""
        return False

    @property
    def stopped(self) -> str:
        """A list has no reason to stop before its end."""
        return ""
