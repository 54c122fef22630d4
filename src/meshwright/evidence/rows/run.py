"""Rows of ``measured_runs.csv`` as cases and layouts, from their own columns; what a row leaves out is assumed here alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.catalog import calibration, recipes
from meshwright.domain.case import Case
from meshwright.domain.launch import Launch
from meshwright.domain.memory_reading import MemoryReading
from meshwright.domain.training import Batch, Lora, Training
from meshwright.evidence.rows.columns import DEGREES
from meshwright.evidence.rows.conventions import precision_name
from meshwright.evidence.rows.groups import group_key, source_group
from meshwright.evidence.rows.refused import ImpossibleError, UnreadableError
from meshwright.evidence.rows.row_layout import layout_of
from meshwright.evidence.rows.row_model import model_of
from meshwright.evidence.rows.row_placement import placed
from meshwright.evidence.rows.row_system import cluster_of, implementation_of
from meshwright.evidence.rows.table import step_times
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.evidence.rows.row import Row

GIVEN = ("gbs", "seq", "tp", "pp", "n_gpus")


class Run(Value, frozen=True, kw_only=True):
    """A row that can be predicted."""

    id: str
    row: Row
    case: Case
    layout: Layout
    step_s: float | None
    memory_bytes: float | None
    failed: bool
    reading: MemoryReading
    """What the figure of memory is."""

    @property
    def measured(self) -> bool:
        """Whether it has a step time or a memory."""
        return bool(self.step_s or self.memory_bytes)

    @property
    def device(self) -> str:
        """The catalogue's name of the device."""
        return self.case.cluster.device.name

    @property
    def family(self) -> str:
        """Family of the implementation: what measurements of the run calibrate."""
        return self.case.implementation.family

    @property
    def release(self) -> tuple[str, str]:
        """Framework and version, as published."""
        return self.row.framework, self.row.framework_version

    @property
    def precision(self) -> str:
        """The precision recipe."""
        return self.case.training.precision.name

    @property
    def untuned(self) -> bool:
        """Its source calls it untuned: its step time says how such runs are launched, not what a machine can do."""
        return self.row.said.tuning == "untuned"

    @property
    def source(self) -> str:
        """The source group."""
        return source_group(self.id)

    @property
    def group(self) -> tuple[str, ...]:
        """What all measurements of this configuration share."""
        return group_key(self.row)

    @property
    def mem_kind(self) -> str:
        """What the source calls the memory that it states: allocated peak, reserved peak, device total, unknown or blank."""
        return self.row.measured.memory_kind


def run(row: Row) -> Run:
    """A row as a case and a layout.

    Errors: ``UnreadableError`` where a needed column is blank or the model is no transformer; ``ImpossibleError`` where
            nothing can run it.
    """
    said = row.said
    if said.unreadable:
        raise UnreadableError(said.unreadable)
    blank = [key for key in GIVEN if row.cell(key) is None]
    if blank:
        raise UnreadableError("layout or batch is blank", ", ".join(blank))
    if any(isinstance(degree := row.cell(key), int) and degree < 1 for key in DEGREES):
        raise ImpossibleError("a degree is below 1")
    sequence_tokens = row.sequence_tokens or 1
    batch = Batch(
        global_batch_sequences=row.global_batch_sequences or 1, sequence_tokens=sequence_tokens,
        mean_square_document_tokens=said.document_tokens * sequence_tokens if said.document_tokens else None,
    )
    model = model_of(row)
    layout = layout_of(row, model.num_layers)
    if layout.world != row.num_devices or row.data_parallel not in (None, layout.data_parallel):
        raise ImpossibleError("degrees do not multiply to the devices")
    if layout.pipeline_parallel * layout.virtual_stages > model.num_layers:
        raise ImpossibleError("more chunks than layers")
    layout, implementation, cluster = placed(row, model, layout), implementation_of(row), cluster_of(row)
    recipe = recipes.precision(said.recipe or precision_name(row.precision or "bf16"), implementation.gradient_dtype)
    precision = replace(
        recipe, master_bytes=max(0.0, recipe.master_bytes - said.master_bytes_saved),
        gradient_bytes=recipe.gradient_bytes if said.gradient_bytes is None else said.gradient_bytes,
        weight_cast_bytes=said.weight_cast_bytes,
    )
    case = Case(
        model=model, cluster=cluster, batch=batch,
        training=Training(
            task=row.task, precision=precision, optimizer=recipes.optimizer(said.optimizer),
            lora=_adapters(row), balanced_routing=said.balanced,
        ),
        implementation=implementation, calibration=calibration("none", cluster.device), memory_ratio=1.0,
        launch=Launch(
            graphs="step" if said.graphs else "partial" if said.partial_graphs else None, deterministic=said.deterministic,
            attention_by_default=said.attention_by_default, plain_host=said.plain_host,
            offloaded_layers=said.offloaded_layers, offloaded_checkpoints=said.offloaded_checkpoints,
            offloaded_modules=said.offloaded_modules,
            slice_tokens=said.slice_tokens,
        ),
    )
    return measured(row, case, layout, MemoryReading(kind=said.memory_reading, stage=said.memory_stage))


def measured(row: Row, case: Case, layout: Layout, reading: MemoryReading) -> Run:
    """A run of a case under a layout, with what the row measured."""
    memory_gib = None if row.said.memory_unknown else row.measured.memory_gib
    return Run(
        id=row.id, row=row, case=case, layout=layout, step_s=_step_s(row), failed=row.status == "failed",
        memory_bytes=memory_gib * (1e9 if row.said.memory_in_gigabytes else 2**30) if memory_gib else None, reading=reading,
    )


def _adapters(row: Row) -> Lora | None:
    if row.task != "lora":
        return None
    plain = Lora()
    return Lora(rank=row.said.lora_rank or plain.rank, targets=row.said.lora_targets or plain.targets)


def _step_s(row: Row) -> float | None:
    return next(iter(step_times(row).values()), None)
