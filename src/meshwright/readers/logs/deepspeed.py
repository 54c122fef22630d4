"""DeepSpeed: timers of micro-steps and of steps, throughput lines, the pipeline engine's lines, and the flops profiler's page.

The same step is printed twice, as ``*_microstep`` and plain: plain ones count where there are any. A record whose optimizer took
next to nothing beside those of others is not the end of an accumulation, so it is no step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.config_dump import keep, take_json
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, intervals
from meshwright.readers.logs.flops_profiler import take_profile
from meshwright.readers.pairs import number, size
from meshwright.units import MILLI
from meshwright.words import plural

_TIMES = re.compile(r"time \(ms\) \|(.{0,4000})")
_PAIR = re.compile(r"([A-Za-z_0-9][\w\-]{0,60}): ([\d.]{1,20})")
_THROUGHPUT = re.compile(
    r"epoch=\d{1,9}/micro_step=(\d{1,12})/global_step=(\d{1,12}), RunningAvgSamplesPerSec=([\d.]{1,24})"
    r", CurrSamplesPerSec=([\d.]{1,24})"
    r"(?:, MemAllocated=([\d.]{1,20}) ?GB, MaxMemAllocated=([\d.]{1,20}) ?GB)?")
_OLD_THROUGHPUT = re.compile(r"\b(\d{1,12})/(\d{1,12}), (?:RunningAvg)?SamplesPerSec=([\d.]{1,24})")
_PIPELINE = re.compile(r"\bsteps: (\d{1,12}) loss: ([-\w.]{1,24}) iter time \(s\): ([\d.]{1,24}) samples/sec: ([\d.]{1,24})")
_SETTING = re.compile(r"config\.py:\d{1,6}:print\w*\]\s{1,8}([a-z_]\w{0,60}) (?:\.{2,} |\s?)\s{0,4}([^{\s].{0,300})$")
_MEMORY = re.compile(r"MA ([\d.]{1,20} [KMG]B)\s{1,8}Max_MA ([\d.]{1,20} [KMG]B)\s{1,8}CA ([\d.]{1,20} [KMG]B)")
_OVERFLOW = re.compile(r"OVERFLOW! Rank \d+ Skipping step")
_PHASES = (("forward", "fwd"), ("backward", "bwd"), ("step",))
BOUNDARY = 0.05
"""A step that takes less than this share of the longest one seen did not run an optimizer."""
PLAIN, MICRO, OPTIMIZER = "plain", "micro", "optimizer"


def _take(draft: Draft, hit: Hit) -> None:
    text, line = hit.line.text, hit.line.number
    if take_profile(draft, hit) or (text.rstrip().endswith("json = {") and take_json(draft, hit, "deepspeed")):
        return
    if (times := _TIMES.search(text)) is not None:
        _record(draft, {name: value * MILLI for name, said in _PAIR.findall(times[1]) if (value := number(said)) is not None}, hit)
    if (found := _THROUGHPUT.search(text)) is not None:
        memory = size(f"{found[6]} GB") if found[6] else None
        draft.state.setdefault("rates", {})[int(found[2])] = (line, number(found[4]), at_s(text), memory)
        draft.figures["samples_per_s"] = number(found[3]) or 0.0
    elif (found := _OLD_THROUGHPUT.search(text)) is not None:
        draft.figures["samples_per_s"] = number(found[3]) or 0.0
    if (found := _PIPELINE.search(text)) is not None:
        seconds, rate = number(found[3]), number(found[4])
        draft.step(int(found[1]), line, at_s=at_s(text), loss=number(found[2]), step_s=seconds,
                   sequences=seconds * rate if seconds and rate else None)
    if (found := _SETTING.search(text)) is not None:
        draft.setting(found[1], found[2].strip())
        if found[1] == "world_size":
            draft.world = draft.world or int(number(found[2]) or 0) or None
    if (found := _MEMORY.search(text)) is not None:
        draft.figures["max_allocated_bytes"] = max(draft.figures.get("max_allocated_bytes", 0.0), size(found[2]) or 0.0)


def _record(draft: Draft, timers: Mapping[str, float], hit: Hit) -> None:
    if not timers:
        return
    kind = OPTIMIZER if all(name.startswith("optimizer_") for name in timers) else (
        MICRO if any(name.endswith("_microstep") for name in timers) else PLAIN)
    if kind == PLAIN and not any(name in timers for names in _PHASES for name in names):
        return
    records = draft.state.setdefault("records", [])
    draft.figures["timer_records"] = draft.figures.get("timer_records", 0.0) + 1
    if len(records) < MOST_RECORDS:
        records.append((kind, dict(timers), hit.line.number, at_s(hit.line.text)))


MOST_RECORDS = 200_000


def _finish(draft: Draft) -> None:
    records: list[tuple[str, dict[str, float], int, float | None]] = draft.state.get("records", [])
    wanted = PLAIN if any(kind == PLAIN for kind, *_ in records) else MICRO
    longest = max((_phase(timers, "step") for kind, timers, *_ in records if kind == wanted), default=0.0)
    ends = longest > BOUNDARY * max((_phase(timers, "forward") for kind, timers, *_ in records if kind == wanted), default=0.0)
    optimizer: dict[str, float] = {}
    left = 0
    for kind, timers, line, when in records:
        if kind == OPTIMIZER:
            optimizer = timers
        if kind != wanted:
            continue
        if ends and _phase(timers, "step") < BOUNDARY * longest:
            left += 1
            continue
        draft.step(len(draft.steps) + 1, line, at_s=when, step_s=_whole(timers) if ends else None)
        for name, value in {**timers, **optimizer}.items():
            draft.timer(name, value, value, line)
        optimizer = {}
    if left:
        draft.note(f"{plural(left, 'micro-step')} without an optimizer step left out.")
    if draft.steps and records:
        draft.note("Seconds of a step are the sum of its forward, backward and step timers." if ends else
                   "No record shows an optimizer step: these are micro-steps.")
    _rates(draft)
    intervals(draft)
    keep(draft)


def _rates(draft: Draft) -> None:
    """Steps out of throughput lines, where nothing else says them."""
    batch = number(draft.settings.get("train_batch_size"))
    rates: Mapping[int, tuple[int, float | None, float | None, float | None]] = draft.state.get("rates", {})
    if draft.steps and min(draft.steps) == 1 and draft.state.get("records"):
        return
    for step, (line, rate, when, memory) in rates.items():
        draft.step(step, line, at_s=when, sequences=batch, step_s=batch / rate if batch and rate else None, memory_bytes=memory)


def _phase(timers: Mapping[str, float], phase: str) -> float:
    names = next(names for names in _PHASES if phase in names)
    return next((timers[full] for name in names for full in (name, f"{name}_microstep") if full in timers), 0.0)


def _whole(timers: Mapping[str, Any]) -> float | None:
    return sum(_phase(timers, phase) for phase in ("forward", "backward", "step")) or None


DIALECT = Dialect(
    name="deepspeed_log", says="logs of DeepSpeed and of its flops profiler", framework="deepspeed", take=_take, finish=_finish,
    tells=re.compile(
        r"time \(ms\) \| (?:forward|fwd|forward_microstep|fwd_microstep|optimizer_allgather|optimizer_gradients)\b: [\d.]"
        r"|SamplesPerSec=[\d.]|iter time \(s\): [\d.]+ samples/sec|- DeepSpeed Flops Profiler -|\[config\.py:\d+:print\w*\]"),
    by=(b"time (ms) | ", b"SamplesPerSec=", b"iter time (s): ", b"- DeepSpeed Flops Profiler -", b"[config.py:"),
    seeks=(b"time (ms) |", b"SamplesPerSec=", b"iter time (s): ", b"- DeepSpeed Flops Profiler -", b"[config.py:", b"  Max_MA "),
)
FORMAT = DIALECT.format
