"""What came of one trial: the value that executors bring home, the store keeps and the tuner learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.observed.ending import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a trial ended and what it measured; a failure is an outcome, too."""

    status: Status
    step_s: float | None = None
    """Median of the steady steps; None where none was measured."""
    interval_s: tuple[float, float] | None = None
    """Of that median, at 80 %; None where one measurement stands alone."""
    tokens_per_s_per_device: float | None = None
    memory_peak_bytes: float | None = None
    """Of the fullest rank, where the log says it."""
    device_s: float = 0.0
    """Devices times the seconds they were held."""
    rank: int | None = None
    evidence: str = ""
    """The line that says how it ended."""

    @property
    def measured(self) -> bool:
        """Whether its step counts: it ended well and has one."""
        return self.status == "ok" and self.step_s is not None
