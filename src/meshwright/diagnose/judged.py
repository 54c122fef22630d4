"""One thing that is wrong in what was observed, or worth a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshwright.domain.observed import Place
from meshwright.errors import Message

Severity = Literal["critical", "high", "medium", "low", "advice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One thing that is wrong or worth a change."""

    message: Message
    """Its identifier, its sentence and the sentence's values."""
    severity: Severity
    place: Place
    change: str = ""
    """What to change, in one clause."""

    @property
    def id(self) -> str:
        """The identifier: ``network.tcp``."""
        return self.message.id
