"""SAPP's ``--init`` file (YAML): a pipeline that was run dry, what it recomputed, its times and its peaks.

Source of its keys: mindspore-ai/toolkits e0486ee, ``pipeline_balance/cfgs/init_demo*.yaml``, ``utils/config.py``,
``utils/stage.py``. Memories in MB, times in any one unit. SAPP knows one chunk a stage; here ``interleave_num``,
``micro_batch_num`` and ``less_memory`` of ``pipeline_config`` describe dry runs with virtual stages, with a list for each chunk
(and one of those for each round).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import field

from meshwright.domain.dry_runs import DryRuns, StagePeak
from meshwright.errors import InputError, Message
from meshwright.readers.fields import Fields
from meshwright.readers.limits import MAX_LAYERS
from meshwright.readers.safe import require_mapping
from meshwright.readers.safe_yaml import load_yaml
from meshwright.readers.sapp.amounts import amount, known_keys, number_fault, whole
from meshwright.readers.sapp.lists import MAX_ROWS, RECOMPUTE_KEYS, layer_rows, offset_rows, treated_rows
from meshwright.readers.sapp.treatments import ORDER
from meshwright.text import shown
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_STAGES = 4096
_TOP = ("pipeline_config", "time_config", "profiling_config", "recompute_config", "memory_usage", "backward_coef", "model_type")
_PIPELINE = ("pipeline_num", "num_layer", "offset", "interleave_num", "micro_batch_num", "less_memory")
_TIMES = ("head", "body", "tail")
_COEFFICIENTS = {"full": "full", "select": "selective", "both": "both", "comm": "communication"}
Stages = list[tuple[tuple[int, ...], ...]]
"""Layers of each stage by treatment and chunk, ``[treatment][chunk]``."""


class InitFile(Value, frozen=True, kw_only=True):
    """A pipeline of alike layers that was run dry."""

    stages: int
    layers: int
    head_time: float | None = None
    """Forward times; None where the file leaves them to profiles."""
    body_time: float | None = None
    tail_time: float | None = None
    coefficients: Mapping[str, float] = field(default_factory=dict)
    """What recomputation adds to the backward by treatment, where the file says it."""
    runs: DryRuns
    source: str = ""
    remarks: tuple[Message, ...] = ()


def read_init_file(path: Path | str) -> InitFile:
    """The dry runs of a file; every fault of it at once."""
    return init_file_from(load_yaml(path), where=str(path))


def init_file_from(document: object, *, where: str) -> InitFile:
    """The dry runs that a document in SAPP's form describes."""
    top = Fields(require_mapping(document, where), where)
    known_keys(top, _TOP)
    remarks: list[Message] = []
    pipeline = _section(top, "pipeline_config", _PIPELINE)
    stages = pipeline.size("pipeline_num", minimum=2, maximum=MAX_STAGES)
    layers = pipeline.size("num_layer", maximum=MAX_LAYERS)
    chunks = pipeline.size("interleave_num", default=1, maximum=MAX_ROWS)
    microbatches = pipeline.size("micro_batch_num") if chunks > 1 else pipeline.optional_size("micro_batch_num")
    thrifty = pipeline.flag("less_memory", default=False)
    times = _times(top, remarks)
    coefficients = _coefficients(top)
    rounds = [] if top.faults else _rounds(top, pipeline, stages, chunks, layers, remarks)
    peaks = _peaks(top, stages, rounds) if rounds else []
    if top.faults:
        raise InputError(top.faults)
    head, body, tail = times or (None, None, None)
    runs = _occurring(DryRuns(
        stages=stages, chunks=chunks, treatments=ORDER, peaks=tuple(peaks), microbatches=microbatches, source=where,
        schedule="1f1b" if chunks == 1 else "interleaved-less-memory" if thrifty else "interleaved",
    ))
    return InitFile(stages=stages, layers=layers, head_time=head, body_time=body, tail_time=tail, coefficients=coefficients,
                    runs=runs, source=where, remarks=tuple(remarks))


def _section(top: Fields, name: str, keys: tuple[str, ...], hints: dict[str, str] | None = None) -> Fields:
    if not top.has(name):
        top.fault(name, "config.missing", "is missing")
    section = top.inner(name)
    known_keys(section, keys, hints)
    return section


def _times(top: Fields, remarks: list[Message]) -> tuple[float, float, float] | None:
    """Forward times of head, body and tail, or None where they stand in profiles."""
    if not top.has("time_config"):
        if top.has("profiling_config"):
            text = "profiles (trace_view.json) are not read; give time_config with head, body and tail"
            remarks.append(Message("sapp.profiles", text, {}, f"{top.path}: profiling_config"))
        else:
            text = "is not there: memories can be told, a balance needs it"
            remarks.append(Message("sapp.no_times", text, {}, f"{top.path}: time_config"))
        return None
    hints = {f"{name}_time": f"; SAPP reads {name} and ignores {name}_time without a word" for name in _TIMES}
    section = _section(top, "time_config", _TIMES, hints)
    head, body, tail = (amount(section, name, above=name == "body") for name in _TIMES)
    return head, body, tail


def _coefficients(top: Fields) -> dict[str, float]:
    if not top.has("backward_coef"):
        return {}
    section = _section(top, "backward_coef", tuple(_COEFFICIENTS))
    return {ours: amount(section, theirs) for theirs, ours in _COEFFICIENTS.items() if section.has(theirs)}


def _rounds(top: Fields, pipeline: Fields, stages: int, chunks: int, layers: int, remarks: list[Message]) -> list[Stages]:
    """What every stage of every round holds."""
    offset = pipeline.data.get("offset")
    rounds = len(offset) if isinstance(offset, list) and _depth(offset) > (1 if chunks == 1 else 2) else 1
    if rounds * chunks > MAX_ROWS:
        pipeline.fault("offset", "sapp.many", "{count} lists; {limit} is the limit", count=rounds * chunks, limit=MAX_ROWS)
        return []
    recompute = _section(top, "recompute_config", RECOMPUTE_KEYS)
    for fields in (pipeline, recompute) if chunks > 1 else ():
        fields.data = {key: _flat(value) for key, value in fields.data.items()}
    of = "round" if chunks == 1 else "list"
    offsets = offset_rows(pipeline, rows=rounds * chunks, stages=stages, of=of)
    table = layer_rows(pipeline, layers, offsets, of=of, chunks=chunks) if offsets else None
    treated = treated_rows(recompute, table, of=of) if table else None
    if table is None or treated is None:
        return []
    grouped = [treated[place * chunks : (place + 1) * chunks] for place in range(rounds)]
    for place, group in enumerate(grouped):
        held = sum(sum(cell) for row in group for cell in row)
        if held != layers:
            values = {"round": place + 1, "held": held, "layers": layers}
            text = "round {round} places {held} layers, num_layer is {layers}"
            remarks.append(Message("sapp.layer_sum", text, values, f"{pipeline.path}.offset"))
    return [[tuple(zip(*(row[stage] for row in group), strict=True)) for stage in range(stages)] for group in grouped]


def _depth(value: object) -> int:
    """How deep lists stand in lists."""
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _flat(value: object) -> object:
    """Lists by chunk of all rounds in one row."""
    return [row for rows in value for row in rows] if isinstance(value, list) and _depth(value) > 2 and all(
        isinstance(rows, list) for rows in value) else value


def _peaks(top: Fields, stages: int, rounds: list[Stages]) -> list[StagePeak]:
    """Head and tail belong to the first round, as in SAPP; middle stages to the round of their list."""
    usage = _section(top, "memory_usage", ("head_memory", "tail_memory", "body_memories"))
    found = [
        _peak(0, 0, amount(usage, "head_memory", above=True), rounds),
        _peak(stages - 1, 0, amount(usage, "tail_memory", above=True), rounds),
    ]
    if stages == 2 and not usage.has("body_memories"):
        return found
    body = _section(usage, "body_memories", ("stage_id", "memories"))
    numbers, memories = (_nested(body, name, len(rounds)) for name in ("stage_id", "memories"))
    if numbers is None or memories is None:
        return found
    for place, (row, sizes) in enumerate(zip(numbers, memories, strict=True)):
        if len(row) != len(sizes):
            body.fault("memories", "sapp.lengths", "has {sizes} entries for {stages} stages (round {round})",
                       sizes=len(sizes), stages=len(row), round=place + 1)
            continue
        for stage, size in zip(row, sizes, strict=True):
            peak = _measured(body, stage, size, place, stages, rounds)
            if peak is not None:
                found.append(peak)
    seen: set[tuple[int, int]] = set()
    for peak in found:
        if (peak.round, peak.stage) in seen:
            text = "stage {stage} stands twice in round {round} (head_memory and tail_memory are its first and last)"
            body.fault("stage_id", "sapp.stage_twice", text, stage=peak.stage, round=peak.round + 1)
        seen.add((peak.round, peak.stage))
    return found


def _nested(body: Fields, name: str, rounds: int) -> list[list[object]] | None:
    """A list, or a list for each round."""
    value = body.data.get(name)
    if not isinstance(value, list):
        body.fault(name, "sapp.list", "is missing" if value is None else "is not a list")
        return None
    nested = any(isinstance(item, list) for item in value)
    listed = value if nested or rounds > 1 else [value]
    if len(listed) != rounds or not all(isinstance(item, list) for item in listed):
        body.fault(name, "sapp.rounds", "must hold {rounds} lists, one for each round of offset", rounds=rounds)
        return None
    return listed


def _measured(body: Fields, stage: object, size: object, place: int, stages: int, rounds: list[Stages]) -> StagePeak | None:
    if not isinstance(stage, int) or not whole(stage) or not 0 <= stage < stages:
        body.fault("stage_id", "sapp.stage", "{value} is no stage of 0..{last}", value=shown(stage), last=stages - 1)
        return None
    problem = number_fault(size)
    if problem or not isinstance(size, (int, float)) or size <= 0:
        body.fault("memories", "sapp.memory", "{value} {problem}", value=shown(size), problem=problem or "is not above 0")
        return None
    return _peak(stage, place, float(size), rounds)


def _peak(stage: int, place: int, size: float, rounds: list[Stages]) -> StagePeak:
    return StagePeak(stage=stage, round=place, peak_mb=size, counts=rounds[place][stage])


def _occurring(runs: DryRuns) -> DryRuns:
    """Only treatments that some measured stage has; ``none`` always."""
    kept = [place for place, name in enumerate(runs.treatments)
            if place == 0 or any(sum(peak.counts[place]) for peak in runs.peaks)]
    peaks = tuple(replace(peak, counts=tuple(peak.counts[place] for place in kept)) for peak in runs.peaks)
    return replace(runs, treatments=tuple(runs.treatments[place] for place in kept), peaks=peaks)
