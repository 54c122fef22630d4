"""What rows mean where they say it in their own way: ``data/conventions.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.readers.safe import load_yaml
from meshwright.readers.structure import make_converter, structure

if TYPE_CHECKING:
    from meshwright.evidence.rows.row import Row

FILE = Path(__file__).parents[1] / "data" / "conventions.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Conditions on a row, all of which must hold, and what follows; the head of the file explains them."""

    framework: str = ""
    version: str = ""
    device: str = ""
    source: str = ""
    notes: str = ""
    precision: str = ""
    cluster: str = ""
    network_bytes_per_s: float = 0.0
    implementation: str = ""

    def holds(self, row: Row, device: str = "") -> bool:
        """Whether the row meets the conditions; ``device`` is the catalogue's name of its device."""
        return (
            row.framework.lower().startswith(self.framework)
            and row.framework_version.startswith(self.version)
            and self.device in ("", device)
            and row.source.startswith(self.source)
            and self.notes in row.notes
            and self.precision in ("", row.precision)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """The file."""

    devices: Mapping[str, str]
    precisions: Mapping[str, str]
    hybrids: tuple[str, ...]
    micro_batches: Mapping[str, tuple[int, ...]]
    clusters: tuple[Rule, ...]
    implementations: tuple[Rule, ...]
    assumptions: tuple[str, ...]


@cache
def conventions() -> Conventions:
    """All conventions."""
    return structure(make_converter(), load_yaml(FILE), Conventions, where=FILE.name)


def precision_name(spelling: str) -> str:
    """The recipe that a source means."""
    return conventions().precisions.get(spelling, spelling)
