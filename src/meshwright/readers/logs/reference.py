"""What ``meshwright step`` and ``meshwright rehearse`` print and write: the reference step's own runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.domain.observed import RankMemory, RunLog, Sign, Step
from meshwright.readers.endings import ended
from meshwright.readers.formats import Format
from meshwright.readers.lines import Line, lines
from meshwright.readers.logs.draft import Draft
from meshwright.readers.needles import folded
from meshwright.readers.pairs import number, size
from meshwright.readers.safe import MAX_BYTES, parse_json
from meshwright.readers.signs import Signs, anchors
from meshwright.readers.source import Source
from meshwright.units import FACTORS

_RANKS = re.compile(r"^\s*([\d,]{1,9}) ranks? on (.{1,80}), torch (\S{1,40})\s*$")
_ROW = re.compile(
    r"^\s*(step, median|tokens/s|MFU \([^)]{1,60}\)|memory, fullest rank|exposed communication|loss)\s{2,}(\S.{0,80})$")
_STEPS = re.compile(r"^\s*step, ([\d,]{1,9}) steps?\s")
_TIME = re.compile(r"([\d.,]{1,16}) (us|ms|s)\b")
_NAMED = re.compile(r"^\s*(\S{1,80}): (.{1,200})$")
_SETTINGS = ("label", "model", "device", "torch", "flops_convention")
Document = Mapping[str, Any]


def _told(sample: bytes) -> bool:
    if b'"steps_s"' in sample and b'"flops_convention"' in sample:
        return True
    return (b'"rehearsals"' in sample and b'"runs_s"' in sample) or (b"step, median" in sample and b", torch " in sample)


def _read(source: Source) -> tuple[RunLog, ...]:
    if source.size_bytes > MAX_BYTES:
        return ()
    with source.open() as stream:
        text = stream.read(MAX_BYTES).decode("utf-8", "replace")
    if "step, median" in text:
        return tuple(_printed(source))
    document = parse_json(text, source.shown)
    found = list(_runs(source.shown, document, _line_of(text)))
    return tuple(replace(log, lines=text.count("\n")) for log in found)


def _line_of(text: str) -> Callable[[str, int], int]:
    """Where the so-manieth value of a list stands: its key's line, and below it where the list is written over lines."""

    def line(key: str, index: int) -> int:
        at = text.find(f'"{key}"')
        first = text.count("\n", 0, max(at, 0)) + 1
        return first + 1 + index if re.match(r'"\w+":\s*\[\s*\n', text[max(at, 0): at + 100]) else first
    return line


def _runs(file: str, document: Any, line: Callable[[str, int], int]) -> Iterator[RunLog]:
    if not isinstance(document, dict):
        return
    if isinstance(document.get("steps_s"), list):
        yield _step(file, document, line)
    rehearsals = document.get("rehearsals") if "rehearsals" in document else [document] if "entries" in document else []
    for each in rehearsals if isinstance(rehearsals, list) else []:
        entries = each.get("entries") if isinstance(each, dict) else None
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict):
                yield _trial(file, each, entry, line(f"label\": {json.dumps(entry.get('label'))}"[:-1], 0))


def _step(file: str, document: Document, line: Callable[[str, int], int]) -> RunLog:
    seconds, losses = _numbers(document.get("steps_s")), document.get("losses")
    world, tokens = _number(document.get("world")), _number(document.get("tokens"))
    late = losses[-len(seconds):] if isinstance(losses, list) and len(losses) >= len(seconds) else [None] * len(seconds)
    flops, peak = _number(document.get("flops_per_step")), _number(document.get("peak_flops_per_s"))
    steps = tuple(
        Step(
            number=index + 1, step_s=each, line=line("steps_s", index), tokens=round(tokens) if tokens else None,
            loss=_signed(loss), tokens_per_s_per_device=tokens / each / world if tokens and world and each else None,
            model_flops_per_s_per_device=flops / each / world if flops and world and each else None,
            mfu_ratio=flops / each / world / peak if flops and world and each and peak else None,
        ) for index, (each, loss) in enumerate(zip(seconds, late, strict=True))
    )
    ranks = [each for each in document.get("ranks") or [] if isinstance(each, dict)]
    exposed = _numbers([each.get("communication_exposed_s") for each in ranks])
    figures = {
        "flops_per_step": flops, "peak_flops_per_s_per_device": peak, "communication_exposed_s": max(exposed, default=None),
    }
    log = RunLog(
        file=file, format=FORMAT.name, steps=steps, world=int(world) if world else None,
        settings={name: str(document[name]) for name in _SETTINGS if name in document},
        memory=tuple(_memory(each, len(steps), line("ranks", 0)) for each in ranks if isinstance(each.get("rank"), int)),
        figures={name: value for name, value in figures.items() if value is not None},
    )
    return replace(log, ending=ended([log], exit_status=0))


def _memory(rank: Document, step: int, line: int) -> RankMemory:
    kinds = rank.get("memory_bytes")
    kept = _numbers(list(kinds.values())) if isinstance(kinds, dict) else []
    return RankMemory(
        rank=int(rank["rank"]), step=step, line=line, allocated_bytes=sum(kept) if kept else None,
        max_allocated_bytes=_number(rank.get("memory_peak_bytes")), max_reserved_bytes=_number(rank.get("memory_reserved_bytes")),
    )


def _trial(file: str, rehearsal: Document, entry: Document, line: int) -> RunLog:
    """One layout that was run, or was not: its cause is classified as any log's words are."""
    seconds = _numbers(entry.get("runs_s"))
    sequences, length = _number(rehearsal.get("global_batch_sequences")), _number(rehearsal.get("sequence_tokens"))
    signs = _signs(file, str(entry["cause"]), line) if entry.get("cause") and not seconds else ()
    names = {"predicted_step_s": entry.get("predicted_s"), "max_allocated_bytes": entry.get("memory_peak_measured_bytes")}
    log = RunLog(
        file=file, format=FORMAT.name, signs=signs, world=int(_number(rehearsal.get("ranks")) or 0) or None,
        sequence_tokens=int(length) if length else None,
        steps=tuple(
            Step(number=index, step_s=each, line=line, sequences=int(sequences) if sequences else None)
            for index, each in enumerate(seconds, start=1)
        ),
        settings={name: str(said) for name, said in (("label", entry.get("label")), ("model", rehearsal.get("model"))) if said},
        figures={name: float(value) for name, value in names.items() if _number(value) is not None and value is not None},
        notes=("Each step is the median of one run of the layout.",) if seconds else (),
    )
    return replace(log, ending=ended([log], exit_status=0 if seconds else None if signs else 1))


def _signs(file: str, cause: str, line: int) -> tuple[Sign, ...]:
    signs = Signs(file)
    said = folded(cause.encode())
    signs.take(Line(line, cause), [index for index, each in enumerate(anchors()) if folded(each) in said])
    return signs.found


def _printed(source: Source) -> Iterator[RunLog]:
    """Tables on the terminal: figures of three digits, the median alone."""
    draft, name = Draft(), ("", "")
    for line in lines(source):
        if (ranks := _RANKS.match(line.text)) is not None:
            if draft.steps:
                yield _table(draft, source)
            draft = Draft(world=int(number(ranks[1]) or 0) or None)
            draft.settings.update({"model": name[0], "label": name[1], "device": ranks[2], "torch": ranks[3]})
        elif draft.world and (row := _ROW.match(line.text)) is not None:
            _said(draft, row[1], row[2], line.number)
        elif draft.world and draft.steps and (many := _STEPS.match(line.text)) is not None:
            draft.step(1, line.number, averaged=number(many[1]))
        elif (named := _NAMED.match(line.text)) is not None:
            name = (named[1], named[2])
    if draft.steps:
        yield _table(draft, source)


def _table(draft: Draft, source: Source) -> RunLog:
    draft.note("Read from the printed table: the median step, in three digits.")
    return draft.finished(file=source.shown, format=FORMAT.name, framework="", signs=(), lines=0)


def _said(draft: Draft, name: str, text: str, line: int) -> None:
    time = _TIME.match(text)
    seconds = (number(time[1]) or 0.0) * FACTORS[time[2]] if time else None
    if name == "step, median":
        draft.step(1, line, step_s=seconds)
    elif name == "tokens/s" and draft.world:
        rate = number(text)
        draft.step(1, line, tokens_per_s_per_device=rate / draft.world if rate else None)
    elif name.startswith("MFU"):
        ratio = number(text)
        draft.step(1, line, mfu_ratio=None if ratio is None else ratio / 100)
    elif name.startswith("memory"):
        draft.step(1, line, memory_bytes=size(text))
    elif name.startswith("exposed"):
        draft.figure("communication_exposed_s", seconds)
    else:
        draft.step(1, line, loss=number(text.rsplit(" to ", maxsplit=1)[-1]))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf") else None


def _signed(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf") else None


def _numbers(values: object) -> list[float]:
    found = [_number(each) for each in values] if isinstance(values, Sequence) else []
    return [each for each in found if each is not None]


FORMAT = Format(
    name="reference_log", says="what meshwright step and meshwright rehearse print or write", told=_told, read=_read,
)
