"""What a walk through a script meets on its way, and how its parts call each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from meshwright.documents.shell_conditions import Verdict
from meshwright.documents.shell_values import Source, State, Text, Value, merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tree_sitter import Node


class Ran(Struct):
    """A command as it would be started, in the reader's own terms."""

    words: list[Text]
    line: int
    environment: dict[str, Text | None]
    outer: list[Text]


MAX_ITEMS = 10_000
"""Words of one list or array."""


class Walk(Protocol):
    """The walk itself."""

    def statement(self, source: Source, node: Node, state: State, run: Run) -> Verdict:
        """Follow one statement."""

    def block(self, source: Source, nodes: Sequence[Node], state: State, run: Run) -> Verdict:
        """Follow statements in order."""

    def text(self, source: Source, state: State, run: Run) -> None:
        """Follow a whole program text."""


class Run(Struct, kw_only=True):
    """What was met on the way; shared by all branches and subshells."""

    commands: list[Ran] = field(default_factory=list)
    embedded: dict[str, tuple[str, int]] = field(default_factory=dict)
    functions: dict[str, tuple[Source, Node]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> text of the files that ``source`` may read."""
    read: list[str] = field(default_factory=list)
    """Paths of those that it did."""
    flow: str = ""
    depth: int = 0
    calls: int = 0
    outer: list[Text] = field(default_factory=list)
    locals: list[dict[str, Value | None]] = field(default_factory=list)
    broken: bool = False
    understood: int = 0
    follow: Walk
    """How statements, blocks and whole texts are followed; commands and branches call back through it."""


def truth(value: Text) -> Verdict:
    """The status of an arithmetic command."""
    return value.plain != "0" if value.known else None


def left(run: Run) -> bool:
    """Whether the branch that just ran ends the script; the others go on."""
    ended, run.flow = run.flow == "exit", ""
    return ended


def guards(before: State, launched: int, state: State, run: Run, line: int) -> bool:
    """Whether what just ran is a guard (``usage; exit 1``): it only ends the script, so the runs that we read pass it.

    Nothing of it is kept: the state is the one before.
    """
    if run.flow != "exit" or len(run.commands) > launched:
        return False
    run.flow = ""
    merge(state, [before], line)
    return True
