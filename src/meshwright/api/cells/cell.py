"""One cell of an atlas as plain values: what is shown, kept in a file, and compared."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Literal

from msgspec import field

from meshwright.domain.label import recompute_word
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.search.first import First

Source = Literal["predicted", "measured"]
Grade = Literal["coarse", "refined"]
DEGREES = (
    "data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel", "virtual_stages", "expert_parallel",
    "expert_tensor_parallel", "microbatch_sequences", "num_microbatches", "zero_stage", "sequence_parallel", "recompute", "offload",
)
"""What a cell says of its layout; accumulation steps are ``num_microbatches``."""


class Cell(Value, frozen=True, kw_only=True):
    """A model on a number of devices: the best layout with its figures, or why there is none. Base units; None is not known."""

    series: str
    """The row of the atlas: the model, and what else tells the row from others."""
    model: str
    device: str
    devices: int
    devices_per_node: int
    source: Source
    grade: Grade | None = None
    """Of a prediction: the grid alone, or what ``plan`` lists first."""
    label: str | None = None
    """None where there is no layout."""
    layout: Mapping[str, Any] | None = None
    """``DEGREES`` by name."""
    step_s: float | None = None
    tokens_per_s_per_device: float | None = None
    mfu_ratio: float | None = None
    memory_peak_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_capacity_bytes: int | None = None
    missing_bytes: int | None = None
    """What one device lacks for the least demanding layout, where nothing fits."""
    fit_probability: float | None = None
    interval: Mapping[str, Any] | None = None
    """``level``, and low and high of ``step_s`` and ``mfu_ratio``."""
    linearity_ratio: float | None = None
    linearity_baseline_devices: int | None = None
    why: str = ""
    """Why there is no layout."""
    run: Mapping[str, Any] | None = None
    """Of a measured cell: ``id source framework``, how many runs ``ran`` and how many ``failed``."""
    batch: Mapping[str, int | None] = field(default_factory=dict)
    """``BATCH`` by name."""

    @property
    def place(self) -> tuple[str, str, int]:
        """Where the cell stands: row, device, column."""
        return self.series, self.device, self.devices

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)


BATCH = ("global_batch_sequences", "sequence_tokens", "samples")
"""What a cell says of its batch; of samples in packs: packs, the most tokens of one, and samples of a step (else None)."""
NAMES = tuple(each.name for each in fields(Cell))


def batch_of(case: Case) -> dict[str, int | None]:
    """What a cell says of the batch of its case."""
    batch = case.batch
    samples = None if batch.packing is None else round(batch.samples)
    return dict(zip(BATCH, (batch.global_batch_sequences, batch.sequence_tokens, samples), strict=True))


def degrees(layout: Layout) -> dict[str, Any]:
    """What a cell says of a layout."""
    view: dict[str, Any] = {name: getattr(layout, name) for name in DEGREES if name not in {"recompute", "offload"}}
    return view | {"recompute": recompute_word(layout.recompute), "offload": ",".join(layout.offload)}


def predicted(first: First, case: Case, *, series: str, grade: Grade) -> Cell:
    """The cell of a search."""
    own: dict[str, Any] = {
        "series": series, "model": case.model.name, "device": case.cluster.device.name, "devices": case.cluster.num_devices,
        "devices_per_node": case.cluster.devices_per_node, "memory_capacity_bytes": round(case.capacity_bytes),
        "batch": batch_of(case),
    }
    best, least = first.best, first.least
    if best is None:
        if least is None:
            assert first.refusal is not None, "there is a reason"
            return Cell(**own, source="predicted", grade=grade, why=first.refusal.words)
        return Cell(
            **own, source="predicted", grade=grade, memory_reserved_bytes=round(least.memory_reserved_bytes),
            missing_bytes=round(least.memory_reserved_bytes - case.capacity_bytes),
            why=f"memory of one device; the least demanding layout is {least.label}",
        )
    own["memory_capacity_bytes"] = round(best.memory_capacity_bytes)
    return Cell(
        **own, source="predicted", grade=grade, label=best.label, layout=degrees(best.layout), step_s=float(best.step_s),
        tokens_per_s_per_device=float(best.tokens_per_s_per_device), mfu_ratio=float(best.mfu_ratio),
        memory_peak_bytes=round(best.memory_peak_bytes), memory_reserved_bytes=round(best.memory_reserved_bytes),
        fit_probability=float(best.fit_probability), interval=_interval(best),
    )


def _interval(best: Estimate) -> dict[str, Any] | None:
    """Where the step lies, and the MFU with it: the work of a step is known."""
    if best.interval is None:
        return None
    low, high = (float(each) for each in best.interval.step_s)
    work = float(best.mfu_ratio * best.step_s)
    return {"level": best.interval.level, "step_s": [low, high], "mfu_ratio": [work / high, work / low]}
