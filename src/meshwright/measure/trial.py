"""A trial: one layout as a command with its files, and how long it may take."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from meshwright.documents.source import File

LONGEST_NAME = 48
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
OUTPUT, ENDED, RECORD, TOLD = "output.log", "ended.json", "record", "told-to-end.json"
"""Files of a trial's folder: what it prints, how it ended, what ranks of the reference step note, and why it was told to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a trial may be silent, and how long it may last; seconds."""

    first_step_s: float = 1800.0
    """Until its first step: compilation, loading, the building of groups."""
    step_s: float = 600.0
    """Between steps that it prints."""
    silence_s: float = 600.0
    """Between two lines of any kind, once the first step is there."""
    total_s: float = 3600.0
    dying_s: float = 30.0
    """What the other ranks may take to end by themselves when one has said why it does."""
    grace_s: float = 5.0
    """From the request to end until it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Ranks that may run a trial without being started for it, and stay behind it for the next."""

    command: tuple[str, ...]
    """Starts them; their folder is added to its words (``engine/company.py``)."""
    task: bytes
    """What they run, as ``task`` in the folder of the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What an executor runs."""

    label: str
    command: tuple[str, ...]
    """Words, run in the folder of the trial, on every node; ``{port}`` stands for nothing: a port comes as MASTER_PORT."""
    files: tuple[File, ...] = ()
    """Written into the folder first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """On top of the executor's own."""
    devices: int = 1
    nodes: int = 1
    devices_per_node: int = 1
    accelerators: bool = False
    """Whether the devices are accelerators, which nobody else may be using."""
    spreads: bool = True
    """Whether the command itself starts its ranks on all nodes under Slurm, as launch scripts of the frameworks do."""
    limits: Limits = Limits()
    steps: int | None = None
    """Steps after which it ends by itself, where that is known."""
    scale: float = 1.0
    """What its step is multiplied by: above 1 where it runs fewer layers than the model has."""
    scale_error_ratio: float = 0.0
    """What the product may be wrong by, beside the interval of what was measured."""
    resident: Resident | None = None
    """What can run it, too, where an executor reuses ranks; None where the program permits it not."""
    scaled: str = ""
    """What it runs of the model, in words; empty for all of it."""

    @property
    def name(self) -> str:
        """A name for jobs and folders, whatever the label holds."""
        return safe_name(self.label)

    def fill(self, folder: Path) -> None:
        """Write its files into its folder, which is made where it is not there."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text, encoding="utf-8")
            if file.executable:
                path.chmod(0o755)

    def whole(self, interval_s: tuple[float, float] | None) -> tuple[float, float] | None:
        """An interval of the step that was measured as one of the whole model's."""
        if interval_s is None or not self.scaled:
            return interval_s
        low, high = interval_s
        return max(0.0, low * self.scale * (1.0 - self.scale_error_ratio)), high * self.scale * (1.0 + self.scale_error_ratio)


def safe_name(text: str) -> str:
    """Letters, digits, dots and hyphens alone; two texts that differ in what is left out differ in their end.

    >>> safe_name("tp8 pp4")
    'tp8-pp4'
    >>> safe_name("x; rm -rf /").startswith("x-rm--rf")
    True
    """
    plain = _UNSAFE.sub("-", text).strip("-.") or "trial"
    if plain == text.replace(" ", "-") and len(plain) <= LONGEST_NAME:
        return plain
    return f"{plain[:LONGEST_NAME - 7].strip('-.')}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def identifier(subject: str, label: str) -> str:
    """What a trial is known by in a store: the same case and layout have the same.

    >>> identifier("case", "tp1") == identifier("case", "tp1") != identifier("case", "tp2")
    True
    """
    return sha256(f"{subject}\n{label}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
