"""One row, predicted and measured: what every metric looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.evidence.rows.groups import source_group
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.evidence.rows.row import Row

HALF = 0.5
Bounds = tuple[float, float]


class Scored(Value, frozen=True, kw_only=True):
    """A prediction beside its measurement; None where there is none. Bytes and seconds."""

    id: str
    line: int
    """Line of the file."""
    row: Row
    status: str
    """``ok``, ``failed``, or blank: a row to predict that counts in no metric."""
    predicted_step_s: float | None
    measured_step_s: float | None
    predicted_memory_bytes: float | None
    """Of the kind that the row measured: allocated, reserved, or the whole device."""
    measured_memory_bytes: float | None
    fit_probability: float
    refused: tuple[str, ...] = ()
    """Why the layout is impossible or illegal; empty where it may be run."""
    step_interval_s: Bounds | None = None
    memory_interval_bytes: Bounds | None = None
    mfu: float | None = None
    """Published where there is one, else from the measured step and causal model FLOPs."""
    ideal_s: float | None = None
    """Hardware FLOPs of the step (recompute counted) over the dense peak of all devices."""
    device: str = ""
    implementation: str = ""
    """Family of the implementation that the row was predicted with."""
    is_moe: bool = False
    fold: int = -1
    calibration: str = ""
    grade: str = ""
    """How the step time is known: measured, interpolated, calibrated or analytic."""

    @property
    def source(self) -> str:
        """The source group."""
        return source_group(self.id)

    @property
    def legal(self) -> bool:
        """Whether no rule refuses the layout."""
        return not self.refused

    @property
    def predicted_fits(self) -> bool:
        """Legal, and more likely than not to run."""
        return self.legal and self.fit_probability >= HALF

    @property
    def timed(self) -> bool:
        """Whether the row counts in the metrics of the step time."""
        return self.status == "ok" and self.predicted_step_s is not None and self.measured_step_s is not None

    @property
    def sized(self) -> bool:
        """Whether the row counts in the metrics of memory."""
        return self.status == "ok" and self.predicted_memory_bytes is not None and self.measured_memory_bytes is not None

    @property
    def step_ratio(self) -> float:
        """Predicted over measured step time of a timed row."""
        assert self.predicted_step_s is not None
        assert self.measured_step_s is not None
        return self.predicted_step_s / self.measured_step_s

    @property
    def memory_ratio(self) -> float:
        """Predicted over measured memory of a sized row."""
        assert self.predicted_memory_bytes is not None
        assert self.measured_memory_bytes is not None
        return self.predicted_memory_bytes / self.measured_memory_bytes
