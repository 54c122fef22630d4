"""What a run measured, as one value and one JSON document. No torch."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """One rank's own figures."""

    rank: int
    stage: int
    """Its place in the pipeline."""
    parameters: int
    """Elements of parameters that it keeps."""
    memory_bytes: Mapping[str, int | None]
    """Parameters, gradients, optimizer, activations (kept for the backward pass, at most); None: not measured."""
    memory_peak_bytes: int | None
    """The allocator's peak over the measured steps; None where there is no such allocator."""
    memory_reserved_bytes: int | None
    communication_s: float | None
    """Seconds of the profiled step with communication under way; None: not profiled."""
    communication_exposed_s: float | None
    """Those of them without any computation on this rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One run of a layout."""

    label: str
    model: str
    device: str
    torch: str
    world: int
    tokens: int
    """Tokens of a step."""
    steps_s: tuple[float, ...]
    """Every measured step, in order: the slowest rank's seconds."""
    losses: tuple[float, ...]
    """Mean loss of every step, warm-up steps first."""
    flops_per_step: float
    flops_convention: str
    peak_flops_per_s: float | None
    ranks: tuple[RankReport, ...]

    @property
    def step_s(self) -> float:
        """The median step."""
        return median(self.steps_s)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second at the median step."""
        return self.tokens / self.step_s

    @property
    def mfu_ratio(self) -> float | None:
        """Model FLOPs per second and device over the device's dense peak, by the convention that is named."""
        if not self.peak_flops_per_s:
            return None
        return self.flops_per_step / self.step_s / self.world / self.peak_flops_per_s

    def document(self) -> dict[str, Any]:
        """The report as JSON, with what follows from it."""
        ordered = sorted(self.steps_s)
        spread = {
            "min_s": ordered[0], "median_s": self.step_s, "p90_s": ordered[-(-9 * len(ordered) // 10) - 1], "max_s": ordered[-1],
            "mean_s": sum(ordered) / len(ordered),
        }
        flops = self.flops_per_step / self.step_s / self.world
        return asdict(self) | {
            "step_s": self.step_s, "step": spread, "tokens_per_s": self.tokens_per_s,
            "model_flops_per_s_per_device": flops, "mfu_ratio": self.mfu_ratio,
        }

    def save(self, path: Path) -> None:
        """Write the document whole or not at all."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(self.document(), indent=1) + "\n")
        temporary.replace(path)
