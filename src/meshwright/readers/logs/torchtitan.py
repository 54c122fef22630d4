"""torchtitan: one line a logged step, without its seconds; rates are of one device, memory is what is reserved at most."""

from __future__ import annotations

import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.config_dump import keep, take_json
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, by_clock, intervals
from meshwright.readers.pairs import number, size
from meshwright.units import TERA

_STEP = re.compile(r"\bstep:\s{0,10}(\d{1,12})\s{1,10}loss:\s{0,10}(\S{1,20})")
_FIELD = re.compile(r"\b(tps|tflops|mfu|memory):\s{0,10}([\d.,]{1,20}\S{0,20})")
_SHARE = re.compile(r"\(([\d.]{1,10})%\)")
_MESH = re.compile(r"Building device mesh with parallelism: ((?:\w{1,20}=\d{1,7},? ?){1,12})")
_OLD_MESH = re.compile(r"Building \d-D device mesh with \[([^\]]{1,200})\], \[([\d, ]{1,80})\]")
_STARTS = re.compile(r"Training starts at step|Trainer is initialized with")
_BATCH = re.compile(r"(local batch size|global batch size|sequence length|gradient accumulation steps|total steps) (\d{1,12})")
_PARAMETERS = re.compile(r"size: ([\d,]{1,24}) total parameters")
_PEAK = re.compile(r"Peak FLOPS used for computing MFU: ([\d.eE+]{1,20})")
_CONFIG = "Running with configs: {"
_CAPACITY = re.compile(r"CUDA capacity: .{1,80}? with ([\d.]{1,12}\s?GiB) memory")


def _take(draft: Draft, hit: Hit) -> None:
    text = hit.line.text
    if (at := text.find(_CONFIG)) >= 0:
        take_json(draft, hit, "torchtitan", at)
        return
    step = _STEP.search(text)
    if step is None:
        _about_the_run(draft, text)
        return
    fields = dict(_FIELD.findall(text))
    tflops, mfu, memory = number(fields.get("tflops")), number(fields.get("mfu")), fields.get("memory", "")
    share = _SHARE.search(memory)
    draft.step(
        int(step[1]), hit.line.number, at_s=at_s(text), loss=number(step[2]), tokens_per_s_per_device=number(fields.get("tps")),
        model_flops_per_s_per_device=None if tflops is None else tflops * TERA, mfu_ratio=None if mfu is None else mfu / 100,
        memory_bytes=size(memory),
    )
    if share is not None and (used := size(memory)) and (part := number(share[1])):
        draft.figure("device_memory_bytes", used / part * 100)
    if tflops and mfu:
        draft.figure("peak_flops_per_s_per_device", tflops * TERA / mfu * 100)


def _about_the_run(draft: Draft, text: str) -> None:
    degrees: dict[str, str] = {}
    if (mesh := _MESH.search(text)) is not None:
        degrees = dict(each.split("=") for each in mesh[1].replace(" ", "").rstrip(",").split(","))
    elif (old := _OLD_MESH.search(text)) is not None:
        names = [each.strip(" '\"") for each in old[1].split(",")]
        degrees = dict(zip(names, (each.strip() for each in old[2].split(",")), strict=False))
    for name, value in degrees.items():
        draft.setting(name, value)
    if degrees:
        ranks = 1
        for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp"):
            ranks *= int(degrees.get(name) or 1)
        draft.world = draft.world or ranks
    if _STARTS.search(text):
        for name, value in _BATCH.findall(text):
            draft.setting(name.replace(" ", "_"), value)
    if (found := _PARAMETERS.search(text)) is not None:
        draft.figure("parameters", number(found[1]))
    if (found := _PEAK.search(text)) is not None:
        draft.figures["peak_flops_per_s_per_device"] = number(found[1]) or 0.0
    if (found := _CAPACITY.search(text)) is not None:
        draft.figures["device_memory_bytes"] = size(found[1]) or 0.0


def _finish(draft: Draft) -> None:
    """Seconds of a step follow from its tokens and the rate where the log says the batch, from the clock otherwise."""
    length, batch = number(draft.settings.get("sequence_length")), number(draft.settings.get("global_batch_size"))
    draft.sequence_tokens = int(length) if length else None
    intervals(draft)
    if length and batch and draft.world:
        for said in draft.steps.values():
            said.setdefault("sequences", batch)
            said.setdefault("tokens", batch * length)
            if said.get("tokens_per_s_per_device"):
                said.setdefault("step_s", batch * length / said["tokens_per_s_per_device"] / draft.world)
    by_clock(draft)
    keep(draft)


DIALECT = Dialect(
    name="torchtitan_log", says="logs of torchtitan", framework="torchtitan", take=_take, finish=_finish,
    tells=re.compile(r"\bstep:\s{0,10}\d{1,12}\s{1,10}loss:\s{0,10}\S{1,20}.{0,200}\b(?:tps|memory):|\[titan\] .{0,60}INFO"),
    by=(b" step: ", b"[titan] "),
    seeks=(b" step: ", b"grad_norm:", b"memory:", b"Building device mesh", b"-D device mesh with", b"Training starts at step",
           b"Trainer is initialized with", b" total parameters", b"Peak FLOPS used", b"CUDA capacity: ",
           _CONFIG.encode()),
)
FORMAT = DIALECT.format
