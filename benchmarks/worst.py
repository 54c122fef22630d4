"""The rows farthest off, each with what its own figures and its nearest neighbours in the corpus say about why."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from meshwright.evidence.rows.groups import cell_key
from meshwright.evidence.rows.run import run
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.evidence.rows.run import Run
    from meshwright.evidence.score.scored import Scored

KNOBS = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "mbs", "zero", "recompute", "sp")
"""What may differ between neighbours; ``dp`` follows from the others."""
EDGE = 0.85
"""Share of the device's memory from which allocators begin to retry (``plan.certainty``)."""
UNLIKE = 1.3
"""Re-measurements further apart than this are noise that no model can predict."""
MAX_KNOBS = 2
WITHIN = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """A row, and why it is where it is."""

    scored: Scored
    reasons: tuple[str, ...]


def worst(rows: Sequence[Scored], count: int) -> list[Worst]:
    """The timed rows with the largest factor between predicted and measured, explained."""
    timed = sorted((row for row in rows if row.timed), key=lambda row: (-abs(log(row.step_ratio)), row.id))
    cells: dict[tuple[str, ...], list[Scored]] = defaultdict(list)
    for row in rows:
        if row.timed:
            cells[cell_key(row.row)].append(row)
    return [Worst(scored=row, reasons=tuple(_reasons(row, cells[cell_key(row.row)]))) for row in timed[:count]]


def settings(row: Scored) -> str:
    """A row in one line."""
    said, cells = row.row, row.row.word
    names = {"tp": "tp", "cp": "cp", "pp": "pp", "vpp": "vp", "ep": "ep", "dp": "dp", "mbs": "mb"}
    always = ("tp", "pp", "dp", "mbs")
    words = [f"{word}{cells(knob)}" for knob, word in names.items() if cells(knob) not in ("", "1") or knob in always]
    words += [f"zero{said.zero}"] if said.zero else []
    words += [said.recompute] if said.recompute not in ("", "none") else []
    return f"{said.model}, {said.num_devices} x {row.device}, {said.precision}: {' '.join(words)}"


def _reasons(row: Scored, cell: Sequence[Scored]) -> list[str]:
    """What the measurement itself shows, what its regime is known for, and how its nearest neighbour ran."""
    known = run(row.row)
    found = [_measured_again(row, cell), _regime(row, known), _neighbour(row, cell)]
    return [words for words in found if words] or ["unexplained: nothing else of this cell was measured"]


def _measured_again(row: Scored, cell: Sequence[Scored]) -> str:
    """The same settings measured twice with two results."""
    same = [other for other in cell if other.id != row.id and not _different(row, other)]
    for other in sorted(same, key=lambda each: -abs(log(_times(row, each)))):
        if abs(log(_times(row, other))) > log(UNLIKE):
            return f"`{other.id}` has the same settings and took {_factor(1.0 / _times(row, other))}: noise"
    return ""


def _regime(row: Scored, known: Run) -> str:
    """What runs of this kind are known for, judged by the row's degrees, memory and MFU."""
    layout, cluster = known.layout, known.case.cluster
    tp, pp, low = layout.tensor_parallel, layout.pipeline_parallel, row.step_ratio < 1.0
    nodes = layout.world > cluster.devices_per_node
    full = (row.measured_memory_bytes or 0.0) > EDGE * cluster.device.memory_bytes
    if full and low:
        share = (row.measured_memory_bytes or 0.0) / cluster.device.memory_bytes
        return f"{percent(share, 0)} of the device's memory: the allocator retries, and throughput collapses"
    if low and pp > 1 and layout.zero_stage == 0 and layout.data_parallel > 1 and row.row.framework == "nanotron":
        return "ZeRO-0 beside PP: nanotron reduces gradients of every micro-batch"
    if tp > cluster.scale_up_devices:
        return "TP across nodes: the latency of every collective, and its spread, is the step"
    if low and tp > 1 and pp > 1 and nodes:
        return "TP beside PP across nodes: a floor per micro-batch that no bandwidth explains"
    if known.case.model.is_moe:
        if layout.expert_parallel * layout.expert_tensor_parallel > cluster.scale_up_devices:
            return "experts across nodes: the row does not name dispatcher and overlap"
        return "mixture of experts: releases of one recipe differ by 30-60 %"
    if layout.world // cluster.devices_per_node >= 32:
        return "32 nodes and more: rows of this cluster that differ only in ZeRO 0 and 1 differ by up to 67 %"
    if (row.mfu or 1.0) < 0.10:
        return f"MFU of {percent(row.mfu)}: launch- and latency-bound"
    if row.row.precision.startswith(("fp8", "nvfp4")):
        return "low-precision kernels of this release"
    if pp > 1 and layout.virtual_stages == 1 and low is False:
        return "the source may leave out virtual stages"
    return ""


def _neighbour(row: Scored, cell: Sequence[Scored]) -> str:
    """The measured row of the cell that differs in fewest settings: what the change did, and what it was predicted to do."""
    others = [(each, _different(row, each)) for each in cell if each.id != row.id]
    others = [(each, knobs) for each, knobs in others if knobs and len(knobs) <= MAX_KNOBS]
    if not others:
        return ""
    other, knobs = min(
        others, key=lambda pair: (len(pair[1]), _steps(row, pair[0], pair[1]), abs(log(pair[0].step_ratio)), pair[0].id)
    )
    words = " and ".join(f"{knob} {other.row.word(knob) or '1'} for {row.row.word(knob) or '1'}" for knob in knobs)
    said = (other.predicted_step_s or 1.0) / (row.predicted_step_s or 1.0)
    itself = ", and is itself predicted within 25 %" if abs(log(other.step_ratio)) <= log(WITHIN) else ""
    return f"`{other.id}` with {words} took {_factor(1.0 / _times(row, other))}, predicted {_factor(said)}{itself}"


def _different(row: Scored, other: Scored) -> tuple[str, ...]:
    knobs = [knob for knob in KNOBS if (row.row.word(knob) or "1") != (other.row.word(knob) or "1")]
    return tuple(knob for knob in knobs if knob != "dp" or len(knobs) == 1)


def _steps(row: Scored, other: Scored, knobs: Sequence[str]) -> float:
    """How many doublings the settings lie apart."""
    total = 0.0
    for knob in knobs:
        try:
            total += abs(log(float(row.row.word(knob) or 1) / float(other.row.word(knob) or 1)))
        except (ValueError, ZeroDivisionError):
            total += 1.0
    return total


def _times(row: Scored, other: Scored) -> float:
    """How many times as long a row took as another."""
    return (row.measured_step_s or 1.0) / (other.measured_step_s or 1.0)


def _factor(value: float) -> str:
    return f"{value:.2f} times as long" if value < 10 else f"{value:.0f} times as long"
