"""Measured peaks of pipeline stages, from dry runs or from runs: what each stage held and what it needed."""

from __future__ import annotations

from meshwright.value import Value


class StagePeak(Value, frozen=True, kw_only=True):
    """The peak memory of one stage in one round (a run of the whole pipeline with one split of the layers)."""

    stage: int
    counts: tuple[tuple[int, ...], ...]
    """Layers of the stage by treatment and chunk, ``[treatment][chunk]``."""
    peak_mb: float
    round: int = 0

    @property
    def layers(self) -> int:
        """Layers of the stage."""
        return sum(map(sum, self.counts))


class DryRuns(Value, frozen=True, kw_only=True):
    """Peaks of stages of pipelines that differ in where layers stand and how they are recomputed, and in nothing else."""

    stages: int
    chunks: int = 1
    treatments: tuple[str, ...] = ("none",)
    """Treatments that occur; the first keeps everything."""
    peaks: tuple[StagePeak, ...]
    microbatches: int | None = None
    """Of a step; None: as many as any stage holds at once."""
    schedule: str = "1f1b"
    """A name of ``perf.schedules.ORDERS``."""
    source: str = ""

    @property
    def rounds(self) -> int:
        """Runs of the whole pipeline."""
        return 1 + max((peak.round for peak in self.peaks), default=-1)
