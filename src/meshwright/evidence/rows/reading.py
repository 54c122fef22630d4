"""Rows of a table as runs: those that can be predicted, those that nothing can run, and those that say too little."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from meshwright.errors import InputError
from meshwright.evidence.rows.refused import ImpossibleError, UnreadableError
from meshwright.evidence.rows.run import Run, measured, run
from meshwright.evidence.rows.table import REMEMBERED, Skipped
from meshwright.perf.parameters import active_parameters
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.evidence.rows.row import Row
    from meshwright.evidence.rows.table import Configuration, Table


MAX_CHUNKS = 512
MAX_PARAMETERS = 10**16
"""A hundred times more than any model, and still a number that every formula can count with."""
MEMORY_SLACK = 1.1
"""A driver reports a little less than the whole memory."""
LEAST_FLOPS = 4.0
"""Per token and parameter: forward and the gradients of activations, which even frozen weights need; attention is left out."""
MIXED = "a figure that no device reaches: mixed units?"
OUR_FAULT = ("yaml.", "json.", "file.", "sheet.", "document.")
"""Faults of the shipped data, which are no row's."""
KINDS = {"cluster.ragged": "devices are no whole nodes"}


class Refused(Value, frozen=True, kw_only=True):
    """Why a row is no run."""

    kind: str
    """The reason without its values: what is counted."""
    reason: str
    impossible: bool = False
    """Nothing can run its degrees: the row is predicted not to fit. Else it says too little, or contradicts itself."""


class RowsRead(Value, frozen=True, kw_only=True):
    """What became of the rows of a table; every row is in one of the three."""

    runs: tuple[Run, ...]
    impossible: tuple[tuple[Row, str], ...]
    """Rows whose degrees no framework can run, and why: predicted not to fit."""
    skipped: tuple[Skipped, ...]
    """Those of the table, then those that name an unknown device or precision or leave too much blank."""

    @property
    def refused(self) -> tuple[Skipped, ...]:
        """The impossible rows as rows that are left out."""
        return tuple(Skipped(id=row.id, line=row.line, reason=why, kind=why, row=row) for row, why in self.impossible)


def read_runs(table: Table) -> RowsRead:
    """Every row of a table as a run, in the order of the file."""
    runs: list[Run] = []
    impossible: list[tuple[Row, str]] = []
    skipped = list(table.skipped)
    for row in table.rows:
        found = read_row(row)
        if isinstance(found, Run):
            runs.append(found)
        elif found.impossible:
            impossible.append((row, found.reason))
        else:
            skipped.append(Skipped(id=row.id, line=row.line, reason=found.reason, kind=found.kind, row=row))
    return RowsRead(runs=tuple(runs), impossible=tuple(impossible), skipped=tuple(skipped))


def read_row(row: Row) -> Run | Refused:
    """A row as a run, or why it is none; the figures of a flagged row are as its source tells them.

    Errors: ``InputError`` where the fault lies in the shipped data: it must not empty an index or a validation.
    """
    return _with_results(_outcome(row), row)


def read_run(row: Row, configuration: Configuration) -> Run | Refused:
    """``read_row`` of a row whose configuration others share: what it says is made a case once."""
    return _with_results(_shared_outcome(configuration), row)


@lru_cache(maxsize=REMEMBERED)
def _shared_outcome(configuration: Configuration) -> Run | Refused:
    return _outcome(configuration.row)


def _outcome(row: Row) -> Run | Refused:
    """What can be made of a row, whatever it measured."""
    try:
        _check_shape(row)
        return run(row)
    except ImpossibleError as why:
        return Refused(kind=str(why), reason=str(why), impossible=True)
    except UnreadableError as why:
        return Refused(kind=str(why), reason=why.detail)
    except InputError as error:
        first = error.messages[0]
        if first.id.startswith(OUR_FAULT):
            raise
        kind = KINDS.get(first.id, "no such model or cluster")
        kind = f"unknown {first.values['noun']}" if first.id == "catalog.unknown" else kind
        return Refused(kind=kind, reason=str(first))


def _with_results(found: Run | Refused, row: Row) -> Run | Refused:
    """The run with what the row measured, where a device can reach that."""
    if isinstance(found, Refused):
        return found
    each = measured(row, found.case, found.layout, found.reading)
    try:
        if not row.flag:
            _check_units(each)
    except UnreadableError as why:
        return Refused(kind=str(why), reason=why.detail)
    return each


def _check_shape(row: Row) -> None:
    """Refuse shapes that contradict themselves, and pipelines so long that a row would take minutes."""
    layers, first = row.shape.num_layers or 0, row.shape.num_dense_layers or 0
    if layers and first > layers:
        raise UnreadableError("cells contradict each other", f"n_dense_layers {first} of n_layers {layers}")
    if row.shape.num_experts and not row.shape.experts_per_token:
        raise UnreadableError("architecture is blank", "top_k, though n_experts is given")
    chunks = max(1, row.pipeline_parallel or 1) * max(1, row.virtual_stages or 1)
    if MAX_CHUNKS < chunks <= layers:
        raise UnreadableError("the pipeline is too long to simulate", f"{chunks} chunks, {MAX_CHUNKS} is the limit")
    if (size := _at_most(row)) > MAX_PARAMETERS:
        raise UnreadableError("no model is so large", f"up to {float(size):.3g} parameters")


def _at_most(row: Row) -> int:
    """More parameters than the columns can mean: every layer with all experts and the widest attention, tables of both ends."""
    shape = row.shape
    hidden, heads = shape.hidden or 1, shape.num_heads or 1
    attention = 4 * hidden * max(hidden, heads * int(shape.head_dim or 0))
    experts = (shape.num_experts or 0) + (shape.num_shared_experts or 0) + 1
    feed_forward = 3 * hidden * experts * max(shape.ffn_width or 4 * hidden, shape.expert_width or 0)
    ends = hidden * (2 * (shape.vocabulary or 1) + (row.sequence_tokens or 1))
    return (shape.num_layers or 1) * (attention + feed_forward) + ends


def _check_units(each: Run) -> None:
    """Refuse figures that no device reaches: a unit must be wrong."""
    device, precision = each.case.cluster.device, each.case.training.precision
    if each.memory_bytes and each.memory_bytes > MEMORY_SLACK * device.memory_bytes:
        have = device.memory_bytes / 2**30
        raise UnreadableError(MIXED, f"mem_gb {each.row.word('mem_gb')}, but {device.name} has {have:.0f}")
    if each.step_s:
        dtypes = (precision.gemm_dtype, precision.base_dtype)
        peak = max((device.peak_flops_per_s[dtype] for dtype in dtypes if device.supports(dtype)), default=0.0)
        flops = LEAST_FLOPS * _active_parameters(each.case.model) * each.case.batch.tokens
        times = flops / each.step_s / each.layout.world / peak if peak else 0.0
        if times > 1.0:
            raise UnreadableError(MIXED, f"a step of {each.step_s:.3g} s is {times:.3g} times as fast as {device.name} computes")


@lru_cache(maxsize=1024)
def _active_parameters(model: Model) -> float:
    return float(active_parameters(model))
