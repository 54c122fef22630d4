"""How a rank ended, in one word and one line: out of memory, a number that is none, a refusal, a fault of its own, or of a peer."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from meshwright.errors import MeshwrightError, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["out-of-memory", "refused", "error", "killed", "timeout", "peer", "port"]
OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "cuda_error_out_of_memory",
)
PEER = (
    "connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "timed out waiting",
    "remote process exited", "socket timeout", "no route to host", "ncclremoteerror",
)
"""What a rank sees when another one has died."""
PORT = ("eaddrinuse", "address already in use")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The end of one rank."""

    rank: int
    kind: Kind
    text: str
    lines: Sequence[str] = ()
    """The last lines that it wrote, where it said nothing of itself."""
    id: str = ""
    """Identifier of the message, where Meshwright itself refused."""

    @property
    def message(self) -> Message:
        """The failure as a user reads it."""
        if self.kind == "refused":
            return Message(self.id or "engine.refused", "{text}", {"text": self.text})
        behind = f"; its last lines: {' | '.join(self.lines)}" if self.lines else ""
        values = {"rank": self.rank, "text": self.text, "behind": behind, "kind": self.kind.replace("-", " ")}
        return Message(f"engine.{self.kind}", "rank {rank}: {kind}: {text}{behind}", values)


def classify(error: BaseException) -> tuple[Kind, str]:
    """The sort of an exception, and its first telling line."""
    if isinstance(error, MeshwrightError):
        return "refused", str(error)
    cause = _root(error)
    text = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
    lowered = str(cause).lower()
    if (
        isinstance(cause, MemoryError)
        or type(cause).__name__ == "OutOfMemoryError"
        or any(sign in lowered for sign in OUT_OF_MEMORY)
    ):
        return "out-of-memory", text or type(cause).__name__
    if any(sign in lowered for sign in PORT):
        where = os.environ.get("MASTER_PORT", "")
        return "port", f"MASTER_PORT {where}, at which ranks meet, is taken by another program: choose one that is free"
    if any(sign in lowered for sign in PEER):
        return "peer", text
    return "error", f"{type(cause).__name__}: {text}" if text else type(cause).__name__


def _root(error: BaseException) -> BaseException:
    """The exception that others were raised from: pipeline schedules wrap what a stage raises."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def by_signal(rank: int, code: int, lines: Sequence[str]) -> Failure:
    """A rank that ended without a word of its own."""
    if code == -signal.SIGKILL:
        return Failure(rank=rank, kind="killed", text="killed by the system (signal 9), as where memory runs out", lines=lines)
    name = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    return Failure(rank=rank, kind="killed" if code < 0 else "error", text=name, lines=lines)


def first_cause(failures: Sequence[Failure]) -> Failure:
    """The failure that made the others fail: one that is no lost connection, where there is one."""
    own = [failure for failure in failures if failure.kind != "peer"]
    return (own or list(failures))[0]
