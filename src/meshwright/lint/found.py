"""What the linter finds: a rule at a place, and the bytes that would mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.errors import Message
    from meshwright.frameworks.settings import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Bytes ``start`` to ``end`` of a file become ``text``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One finding of the linter."""

    id: str
    severity: Severity
    message: Message
    """Without a path: ``file``, ``line`` and ``column`` are its place."""
    file: str
    line: int = 1
    column: int = 1
    """In characters, from 1."""
    source: str = ""
    edits: tuple[Edit, ...] = ()
    """What mends it; none: that is for a person."""
    cell: int = 0
    """The code cell of a notebook, from 1, in which ``line`` counts; 0: a file of its own."""

    @property
    def place(self) -> str:
        """``train.py:14:5``, or ``notes.ipynb:cell 3:2:1``."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{self.file}:{cell}{self.line}:{self.column}"
