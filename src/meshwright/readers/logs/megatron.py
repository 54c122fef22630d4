"""Megatron-LM and what descends from it: Megatron-Core, Megatron-Bridge and NeMo, Megatron-DeepSpeed, MindSpeed-LLM, Primus.

No long regular expression for a line: ``iteration N/M`` is found, and what follows, on its line or wrapped onto the next ones, is
pairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from meshwright.domain.observed import RankMemory
from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit, Line
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, intervals, sequence_by_rates, world_by_rates
from meshwright.readers.logs.megatron_timers import take_timers
from meshwright.readers.loose import amount
from meshwright.readers.pairs import count, first, number, pairs, size
from meshwright.units import GIGA, MIB, MILLI, TERA

_ITERATION = re.compile(r"\biteration\s{0,40}[=:]?\s{0,40}(\d{1,12})\s{0,20}/\s{0,20}\d{1,12}(?=\s*(?:\||$|\[|consumed))")
_MEMORY = re.compile(r"\[Rank (\d{1,7})\] \(after (\d{1,12}) iterations\) memory \(MB\) \|([^\[]{1,600})")
_STEP_TIME = re.compile(r"Step Time : ([\d.]{1,20})s(?: GPU utilization: ([\d.]{1,20})MODEL_TFLOP/s/GPU)?")
_SETTING = re.compile(r"^\s*(?:\[[^\]]{0,80}\]\s*:?\s*)*([A-Za-z_][\w\-]{0,80}) \.{2,} ?(.{0,2000})$")
_DUMP_ENDS = re.compile(r"end of arguments")
_SIZES = re.compile(r"using world size: (\d{1,9})((?:, [\w\- ]{1,60}: \d{1,9}){0,12})")
_PRIMUS_RANK = re.compile(r"\brank-\d{1,7}/(\d{1,7})\b")
_THEORY = re.compile(r"(weight and optimizer|activation|total)=([\d.]{1,20}) MB")
_BILLIONS = re.compile(r"(Total number of parameters|Number of parameters in most loaded shard) in billions: *([\d.]{1,20})")
_PADDED = re.compile(r"padded vocab \(size: \d{1,12}\).{0,80}\(new size: (\d{1,12})\)")
MOST_ARGUMENTS = 2000

MEMORY, DUMP, WORLD, STEP_TIME, THEORY, BILLIONS, TIMES, ACROSS, PADDED = (
    b"memory (MB) |", b"- arguments -", b"using world size:", b"Step Time : ", b"Theoretical memory footprints",
    b"of parameters in", b"time (ms)", b"across ranks (ms):", b"padded vocab",
)
ITERATIONS = (b"| consumed samples", b"consumed_samples", b"| elapsed time per iteration", b"train_step_timing")
_FIELDS = {
    "elapsed time per iteration ms", "global batch size", "number of skipped iterations", "throughput per gpu tflop/s/gpu",
    "lm loss", "learning rate", "loss scale", "grad norm", "number of nan iterations",
}
_LAST = "number of nan iterations"
"""With what a record mostly ends."""
MOST_WRAPPED = 12


def _take(draft: Draft, hit: Hit) -> None:
    text = hit.line.text
    for found in _MEMORY.finditer(text):
        _remember(draft, found, hit.line.number)
    at = _ITERATION.search(text)
    if at is not None:
        _step(draft, int(at[1]), hit.line.number, text, pairs(text[at.end():]))
        if _LAST not in text:
            for line in hit.following(MOST_WRAPPED, _continues):
                _figures(draft, int(at[1]), hit.line.number, pairs(line.text), None)
    elif not take_timers(draft, hit):
        _about_the_run(draft, hit)


def _continues(line: Line) -> bool:
    """Whether the line is more of a record that was wrapped."""
    return "|" in line.text and _ITERATION.search(line.text) is None and not _FIELDS.isdisjoint(pairs(line.text))


def _step(draft: Draft, number: int, line: int, text: str, fields: Mapping[str, str]) -> None:
    draft.state["timed"] = False
    world = _PRIMUS_RANK.search(text)
    if world is not None:
        draft.world = draft.world or int(world[1])
    _figures(draft, number, line, fields, at_s(text))
    if draft.pending:
        draft.late[number], draft.pending = draft.pending, {}


def _figures(draft: Draft, number_: int, line: int, fields: Mapping[str, str], when: float | None) -> None:
    """The pairs of an iteration: of current and average the first."""
    elapsed_ms = number(first(fields, "elapsed time per iteration ms", "elapsed time per iteration"))
    timing_s = number(first(fields, "train step timing in s"))
    flops = number(first(fields, "throughput per gpu tflop/s/gpu", "throughput per gpu", "lm tflops", "tflops"))
    memory = first(fields, "hip mem usage/free/total/usage ratio", "mem usage/free/total/usage ratio")
    consumed, batch = number(first(fields, "consumed tokens")), number(first(fields, "global batch size"))
    length = number(first(fields, "actual seqlen", "seq length", "sequence length"))
    draft.step(
        number_, line, at_s=when, step_s=elapsed_ms * MILLI if elapsed_ms else timing_s, sequences=batch,
        tokens=batch * length if batch and length else None,
        tokens_per_s_per_device=number(first(
            fields, "tokens per gpu tokens/s/gpu", "tokens/sec/gpu", "tokens per gpu per second tgs", "tokens per sec per gpu",
            "tokens/s/gpu", "tgs tokens/s/gpu")),
        model_flops_per_s_per_device=flops * TERA if flops else None,
        loss=number(first(fields, "lm loss", "loss", "reduced train loss")),
        skipped=number(first(fields, "number of skipped iterations")), memory_bytes=size(memory),
    )
    if length:
        draft.sequence_tokens = draft.sequence_tokens or int(length)
    if memory and len(sizes := memory.split("/")) > 2:
        draft.figure("device_memory_bytes", size(sizes[2]))
    if "ds tflops" in fields:
        draft.figures["deepspeed_flops_per_s_per_device"] = (number(fields["ds tflops"]) or 0.0) * TERA
    for said, name in (("seq load balancing loss", "load_balancing_loss"), ("load balancing loss", "load_balancing_loss"),
                       ("consumed tokens", "consumed_tokens")):
        if said in fields:
            draft.figures[name] = number(fields[said]) or consumed or 0.0


def _remember(draft: Draft, found: re.Match[str], line: int) -> None:
    said = pairs(found[3])
    sizes = {name: number(said.get(name)) for name in ("allocated", "max allocated", "reserved", "max reserved")}
    draft.remember(RankMemory(
        rank=int(found[1]), step=int(found[2]), line=line,
        **{f"{name.replace(' ', '_')}_bytes": None if value is None else amount(value * MIB) for name, value in sizes.items()},
    ))


def _about_the_run(draft: Draft, hit: Hit) -> None:
    """What a line says of the run as a whole: its arguments, its ranks, what memory it should take."""
    text = hit.line.text
    if "- arguments -" in text:
        for line in hit.following(MOST_ARGUMENTS):
            if _DUMP_ENDS.search(line.text):
                break
            if (found := _SETTING.match(line.text)) is not None:
                draft.setting(found[1], found[2].strip())
        _settled(draft)
        return
    if (found := _SIZES.search(text)) is not None:
        draft.world = draft.world or int(found[1])
        for each in found[2].split(", ")[1:]:
            name, _, value = each.partition(": ")
            draft.setting(name.strip().replace("-", "_").replace(" ", "_"), value.strip())
    if (found := _PADDED.search(text)) is not None:
        draft.setting("padded_vocab_size", found[1])
    if (found := _STEP_TIME.search(text)) is not None:
        draft.pending = {"step_s": number(found[1]) or 0.0}
        if found[2]:
            draft.pending["model_flops_per_s_per_device"] = (number(found[2]) or 0.0) * TERA
    for name, value in _THEORY.findall(text):
        draft.figure(f"theory_{name.replace(' ', '_')}_bytes", (number(value) or 0.0) * MIB)
    for name, value in _BILLIONS.findall(text):
        draft.figure("parameters" if name.startswith("Total") else "parameters_most_loaded_rank", (number(value) or 0.0) * GIGA)


def _settled(draft: Draft) -> None:
    """Ranks and the length of sequences, where the arguments say them."""
    for name in ("world_size",):
        value = count(draft.settings.get(name))
        draft.world = draft.world or (int(value) if value else None)
    for name in ("seq_length", "encoder_seq_length"):
        value = count(draft.settings.get(name))
        draft.sequence_tokens = draft.sequence_tokens or (int(value) if value else None)


def _finish(draft: Draft) -> None:
    for number_, said in draft.late.items():
        if number_ in draft.steps:
            draft.step(number_, 0, **said)
    intervals(draft)
    every = count(draft.settings.get("log_interval"))
    if every and draft.steps:
        first_one = min(draft.steps)
        draft.steps[first_one]["averaged"] = min(int(every), first_one) or 1
    world_by_rates(draft)
    sequence_by_rates(draft)


DIALECT = Dialect(
    name="megatron_log", says="logs of Megatron-LM, Megatron-Bridge, NeMo, Megatron-DeepSpeed, MindSpeed-LLM and Primus",
    framework="megatron", take=_take, finish=_finish,
    tells=re.compile(
        _ITERATION.pattern + r"|time \(ms\) \| (?:forward-compute|model-and-optimizer-setup|load-checkpoint|backward-)"
        r"|across ranks \(ms\):|\] \(after \d+ iterations\) memory \(MB\) \||Step Time : [\d.]+s GPU utilization"
        r"|Theoretical memory footprints"),
    by=(b"iteration ", b"iteration=", b"time (ms) | ", b"across ranks (ms):", b"memory (MB) |", b"Step Time : ",
        b"Theoretical memory"),
    seeks=(MEMORY, DUMP, WORLD, STEP_TIME, THEORY, BILLIONS, TIMES, ACROSS, PADDED, *ITERATIONS),
)
FORMAT = DIALECT.format
