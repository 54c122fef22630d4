"""How a run ended."""

from __future__ import annotations

from typing import Literal

from meshwright.domain.observed.place import Place
from meshwright.value import Value

Status = Literal[
    "ok", "oom", "nccl", "timeout", "hang", "node", "preempted", "user", "parse", "cancelled", "running", "unknown"
]
"""``timeout``: the time given to the job is over; ``hang``: a collective waited in vain; ``user``: the program or its settings;
``parse``: it ended well and says nothing that can be read; ``unknown``: the log does not tell."""


class Ending(Value, frozen=True, kw_only=True):
    """The first cause, not what followed from it on other ranks."""

    status: Status
    sign: str = ""
    """The sign that says so; empty where only the exit status does, or nothing."""
    evidence: str = ""
    """Its line."""
    place: Place | None = None
    rank: int | None = None
    at_s: float | None = None
    """On the log's own clock."""
