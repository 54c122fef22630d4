"""A published run in the product's units: what ran, in which layout, how fast, in how much memory, and who says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.catalog import device as device_named
from meshwright.catalog.device_sheet import device_names
from meshwright.domain.label import label
from meshwright.domain.layout import Overlap
from meshwright.estimate import model_flops
from meshwright.evidence.rows.conventions import precision_name
from meshwright.evidence.rows.published_run import Published
from meshwright.evidence.rows.reading import read_row
from meshwright.evidence.rows.run import Run
from meshwright.perf.parameters import active_parameters, total_parameters
from meshwright.units import GIB, GIGA

if TYPE_CHECKING:
    from meshwright.evidence.rows.row import Row

def published(row: Row) -> Published:
    """A row in the product's units; figures that the source leaves out are derived where others of the row define them."""
    read = read_row(row)
    known = read if isinstance(read, Run) else None
    sheet = known.case.cluster.device.name if known else device_names().find(row.device)
    shape, measured = row.shape, row.measured
    tokens_per_s, step_s = speed(row)
    parameters = shape.parameters_billions * GIGA if shape.parameters_billions else None
    if parameters is None and known:
        parameters = float(total_parameters(known.case.model))
    active = float(active_parameters(known.case.model)) if known and shape.num_experts else parameters
    layout = known.layout if known else None
    return Published(
        id=row.id, source=row.source, framework=row.framework, framework_version=row.framework_version,
        family=row.said.family or row.framework.lower(), model=row.model,
        parameters=_count(parameters), active_parameters=_count(active), is_moe=bool(shape.num_experts),
        layers=shape.num_layers, hidden=shape.hidden, device=sheet or row.device,
        device_family=device_named(sheet).family if sheet else "",
        devices=row.num_devices, devices_per_node=row.devices_per_node, task=row.task,
        precision=precision_name(row.precision), sequence_tokens=row.sequence_tokens,
        global_batch_sequences=row.global_batch_sequences,
        label=label(replace(layout, stage_layers=None, overlap=Overlap())) if layout else _words(row),
        data_parallel=layout.data_parallel if layout else row.data_parallel,
        num_microbatches=layout.num_microbatches if layout else None, recompute=row.recompute,
        tokens_per_s_per_device=_round(tokens_per_s), step_s=_round(step_s),
        mfu_ratio=_round(_mfu(known, step_s)), memory_bytes=round(measured.memory_gib * GIB) if measured.memory_gib else None,
        memory_kind=measured.memory_kind,
    )


def speed(row: Row) -> tuple[float | None, float | None]:
    """(tokens/s/device, seconds per step), each from the other where only one is published."""
    rate, step_s, devices = row.measured.tokens_per_s_per_device, row.measured.step_s, row.num_devices
    if devices and row.sequence_tokens and row.global_batch_sequences:
        tokens = row.sequence_tokens * row.global_batch_sequences
        if step_s:
            return tokens / step_s / devices, step_s
        if rate:
            return rate, tokens / rate / devices
    return rate, step_s


def _mfu(known: Run | None, step_s: float | None) -> float | None:
    """Causal model FLOPs of the step over the peak of the devices in that time."""
    if known is None or not step_s:
        return None
    case = known.case
    peak = case.cluster.device.peak_flops_per_s.get(case.training.precision.gemm_dtype)
    return model_flops(case, "causal") / step_s / known.layout.world / peak if peak else None


def _words(row: Row) -> str:
    """Degrees of a row that makes no case, in the label's words."""
    found = {
        "tp": row.tensor_parallel, "cp": row.context_parallel, "pp": row.pipeline_parallel, "vp": row.virtual_stages,
        "ep": row.expert_parallel, "etp": row.expert_tensor_parallel, "dp": row.data_parallel, "mb": row.microbatch_sequences,
    }
    words = [f"{word}{degree}" for word, degree in found.items() if degree and (degree > 1 or word in {"tp", "pp", "dp", "mb"})]
    words += ["sp"] if row.sequence_parallel and (found["tp"] or 1) > 1 else []
    return " ".join([*words, f"zero{row.zero_stage}"] if row.zero and words else words)


def _count(value: float | None) -> int | None:
    return None if value is None else int(float(f"{value:.6g}"))


def _round(value: float | None) -> float | None:
    """Six significant figures: more than anyone measures, and the index stays small."""
    return None if value is None else float(f"{value:.6g}")
