"""What a file says against itself, as findings (``complaints.yaml``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.readers.shipped import load_shipped

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What a sign means."""

    severity: Severity
    says: str
    remedy: str = ""
    """The finding whose remedies help."""


@cache
def complaints() -> dict[str, Complaint]:
    """Sign -> what it means; signs that are no findings are not in it."""
    loaded: Any = load_shipped(Path(__file__).with_name("complaints.yaml"))
    return {id_: Complaint(**row) for id_, row in loaded.items()}
