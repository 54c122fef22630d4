"""MindFormers' callback, MindSpore's monitors and the loops of its model zoos."""

from __future__ import annotations

import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, intervals
from meshwright.readers.pairs import number
from meshwright.units import MILLI, TERA

_CALLBACK = re.compile(
    r"Epoch:\[\s{0,10}(\d{1,9})/\s{0,10}\d{1,9}\], step:\[\s{0,10}(\d{1,12})/\s{0,10}(\d{1,12})\], "
    r"loss: ?\[?([-\w.]{1,20}).{0,200}?per_step_time: (\d{1,12}(?:\.\d{1,6})?)ms")
_ZOO = re.compile(
    r"Epoch:? \[?(\d{1,9})/\d{1,9}\]?, Step:? \[?(\d{1,12})/(\d{1,12})\]?,.{0,200}?step time: ([\d.]{1,20}) ?ms", re.IGNORECASE)
_MONITOR = re.compile(r"epoch: (\d{1,9}) step: (\d{1,12}), loss is ([-\w.]{1,20})")
_TIMES = re.compile(r"(?:Train )?epoch time: ([\d.]{1,20}) ms, per step time: ([\d.]{1,20}) ms")
_FLOPS = re.compile(r"train_throughput_per_npu: ([\d.]{1,20})T")
_SAMPLES = re.compile(r"([\d.]{1,20}) samples/s/p")
_OVERFLOW = re.compile(r"overflow cond: (True|\[ ?True\])")
_SKIPPED = re.compile(r"is_skip: \[ ?True\]")
_BATCH = re.compile(r"global_batch_size: (\d{1,12})")


def _take(draft: Draft, hit: Hit) -> None:
    text, line = hit.line.text, hit.line.number
    if (found := _CALLBACK.search(text)) is not None:
        flops = _FLOPS.search(text)
        draft.step(
            _number(found[1], found[2], found[3]), line, at_s=at_s(text), loss=number(found[4]), step_s=_ms(found[5]),
            model_flops_per_s_per_device=(number(flops[1]) or 0.0) * TERA if flops else None,
            skipped=1 if _OVERFLOW.search(text) or _SKIPPED.search(text) else 0,
        )
    elif (found := _ZOO.search(text)) is not None:
        draft.step(_number(found[1], found[2], found[3]), line, at_s=at_s(text), step_s=_ms(found[4]))
    elif (found := _MONITOR.search(text)) is not None:
        draft.step(len(draft.steps) + 1, line, at_s=at_s(text), loss=number(found[3]))
    elif (found := _TIMES.search(text)) is not None:
        draft.state["epochs"] = draft.state.get("epochs", 0) + 1
        if draft.open is None:
            draft.step(draft.state["epochs"], line)
        draft.step(draft.open or 1, line, step_s=_ms(found[2]))
    if (found := _SAMPLES.search(text)) is not None:
        draft.figures["samples_per_s_per_device"] = number(found[1]) or 0.0
    if (found := _BATCH.search(text)) is not None:
        draft.setting("global_batch_size", found[1])


def _ms(text: str) -> float | None:
    value = number(text)
    return None if value is None else value * MILLI


def _number(epoch: str, step: str, steps: str) -> int:
    return (max(1, int(epoch)) - 1) * int(steps) + int(step)


DIALECT = Dialect(
    name="mindspore_log", says="logs of MindFormers, MindSpore and its model zoos", framework="mindformers", take=_take,
    finish=intervals, tells=re.compile(f"{_CALLBACK.pattern}|(?i:{_ZOO.pattern})|{_TIMES.pattern}|{_MONITOR.pattern}"),
    by=(b"per_step_time: ", b"step time: ", b"per step time: ", b", loss is "),
    seeks=(b"per_step_time: ", b", step time: ", b"per step time: ", b", loss is ", b"samples/s/p", b"global_batch_size: "),
)
FORMAT = DIALECT.format
