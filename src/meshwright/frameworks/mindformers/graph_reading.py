"""MindFormers' graph-mode YAML as a layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from meshwright.documents.source import Source
from meshwright.domain.layout import Full, Layout, NoRecompute
from meshwright.errors import Message
from meshwright.frameworks.ascend.recompute_lists import recompute_of_lists
from meshwright.frameworks.ascend.stages import Split, lists_of, recompute_of, said_split, shape_of, within_reason
from meshwright.frameworks.compose import Values, zero_shards
from meshwright.frameworks.keys import told
from meshwright.frameworks.mindformers.graph_writing import CONTEXT, KEYS, OVERLAP, WORDS
from meshwright.frameworks.mindformers.models import figures_of
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.domain.layout import Recompute, Schedule

MODEL = "model.model_config"
OPTIMIZER = "parallel.parallel_optimizer_config"
FULL = "recompute_config.recompute"
PATTERNS: Mapping[str, Mapping[str, str]] = {
    "select_recompute": {
        r"(feed_forward|mlp)(\\\.(w1|activation_func|activation|activate|act|mul|silu|gelu))+": "mlp_act",
        r"(attention_norm|ffn_norm|input_layernorm|pre_mlp_layernorm)(\\\..*)?": "layernorm",
        r".*reshape": "",
    },
    "select_comm_recompute": {r".*norm.*": "comm", r".*reshape": ""},
}
"""Key -> form of an operator's pattern -> the module that it recomputes; empty: nothing of its own (a view)."""


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A YAML as MindFormers' graph trainer understands it: all degrees stand there, and their product is the world."""
    from meshwright.frameworks.mindformers import surface

    values = Values(source=source, surface=surface(), release=release, strict=True)
    dp, tp, pp, cp, ep = (
        told(KEYS, values, knob)
        for knob in ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    )
    if source.value("use_parallel") is False:
        dp = tp = pp = cp = ep = 1
    interleaved = values.bool("parallel.pipeline_config.pipeline_interleave")
    vp = values.degree(f"{MODEL}.pp_interleave_num") if interleaved and pp > 1 else 1
    schedule = _schedule(values, pp, vp)
    figures = figures_of(values, MODEL)
    layers = figures.get("layers") or (given.model.num_layers if given.model else None)
    mtp = figures.get("mtp_layers") or (given.model.num_mtp_layers if given.model else 0)
    layers, pp, vp = within_reason(values, layers, pp, vp)
    split = _split(values, layers, mtp if isinstance(mtp, int) else 0, pp, vp)
    remarks: list[Message] = []
    recompute = _recompute(values, split, remarks)
    _swap(values, remarks)
    world = dp * tp * pp * cp
    devices = given.num_devices or source.devices
    if devices is not None and devices != world:
        values.refuse(
            "mindformers.device-number",
            "The parallel config data_parallel * model_parallel * context_parallel * pipeline_stage should be equal to device_num, "
            "but get dp*mp*sp*pp = {dp}*{mp}*{cp}*{pp} = {world} != device_num({devices})",
            dp=dp, mp=tp, cp=cp, pp=pp, world=world, devices=devices,
        )
    copies = values.degree("micro_batch_interleave_num")
    mb = told(KEYS, values, "microbatch_sequences") * copies
    m = values.degree("parallel_config.micro_batch_num") if pp > 1 else values.degree("runner_config.gradient_accumulation_steps")
    if copies > 1:
        remarks.append(
            Message(
                "import.copies",
                "micro_batch_interleave_num {copies} runs halves of a micro-batch beside each other; counted as one micro-batch",
                {"copies": copies},
                source.settings["micro_batch_interleave_num"].place,
            )
        )
    layout = None
    if not values.messages:
        said = said_split(split, layers, mtp) if split and isinstance(layers, int) and isinstance(mtp, int) else split
        layout = Layout(
            tensor_parallel=tp, sequence_parallel=told(KEYS, values, "sequence_parallel") and tp > 1, context_parallel=cp,
            context_kind=told(CONTEXT, values, "context_kind") if cp > 1 else "ring",
            pipeline_parallel=pp, virtual_stages=vp, expert_parallel=ep, data_parallel=dp,
            **_shards(values, dp * cp), microbatch_sequences=mb, num_microbatches=m, recompute=recompute, schedule=schedule,
            stage_layers=said, offload=("optimizer",) if values.source.value("optimizer.swap") is True else (), overlap=OVERLAP,
            attention="math" if values.source.value(f"{MODEL}.use_flash_attention") is False else None, compiled=None,
        )
    return Reading(
        framework="mindformers", version=release, source=source, layout=layout, messages=(*values.messages, *remarks),
        said=Said(
            devices=world, global_batch_sequences=dp * mb * m, sequence_tokens=values.int(f"{MODEL}.seq_length"),
            precision={"bfloat16": "bf16", "float16": "fp16"}.get(values.text(f"{MODEL}.compute_dtype")),
            optimizer="adamw" if "adamw" in str(source.value("optimizer.type", "")).lower() else None,
            task="sft" if source.value("run_mode") == "finetune" else None, figures=figures,
        ),
    )


def _schedule(values: Values, pp: int, vp: int) -> Schedule:
    """The schedule; those that a layout has no word for make the files undetermined."""
    key = "parallel.pipeline_config.pipeline_scheduler"
    name = values.text(key, "1f1b") or "1f1b"
    if pp > 1 and name not in {"1f1b", "gpipe"}:
        values.note(key, "import.schedule", "no layout has the schedule {name}", name=name)
    if vp > 1:
        return "interleaved"
    return "gpipe" if name == "gpipe" and pp > 1 else "1f1b"


def _split(values: Values, layers: object, mtp: int, stages: int, chunks: int) -> Split | None:
    """The average plus the offsets; the framework broadcasts one row to all chunks.

    Legacy models (DeepSeek-V3 of r1.5) count multi-token-prediction layers among those that are split.
    """
    if not isinstance(layers, int) or layers < 1:
        return None
    average = layers // (stages * chunks)
    even = tuple((average,) * stages for _ in range(chunks))
    key = f"{MODEL}.offset"
    value = values.get(key)
    if value in (None, 0) or stages * chunks == 1:
        if stages * chunks > 1 and layers % (stages * chunks):
            values.refuse(
                "mindformers.offset-sum",
                "The sum of `offset` ({total}) should equal to remainder of `num_layers` ({layers}) % (pp "
                "({pp}) * pp_interleave_num ({vpp})) = {rest}",
                total=0, layers=layers, pp=stages, vpp=chunks, rest=layers % (stages * chunks),
            )
        return even if stages * chunks > 1 else ((layers,),)
    lists = lists_of(value)
    shape = shape_of(lists) if lists else None
    if lists is None or shape is None:
        values.note(key, "setting.list", "{key} is {value!r}: a list of counts by stage is expected", key=key, value=value)
        return None
    if shape[1] != stages:
        values.note(
            key,
            "mindformers.offset-shape",
            "offset.shape[-1] should equal to `pp` ({pp}), but got ({shape}). `offset`: {offset}",
            pp=stages,
            shape=shape[1],
            offset=value,
        )
        return None
    if shape[0] == 1:
        lists *= chunks
    if len(lists) != chunks:
        values.note(key, "mindformers.offset-chunks",
                    "offset.shape[-2] should equal to `pp_interleave_num` ({vpp}), but got ({shape}). `offset`: {offset}",
                    vpp=chunks, shape=shape[0], offset=value)
        return None
    if mtp and sum(map(sum, lists)) == (layers + mtp) % (stages * chunks) != layers % (stages * chunks):
        average = (layers + mtp) // (stages * chunks)
        *first, last = tuple(tuple(average + extra for extra in row) for row in lists)
        return (*first, (*last[:-1], last[-1] - mtp))
    split = tuple(tuple(average + extra for extra in row) for row in lists)
    total, rest = sum(map(sum, lists)) // (chunks if shape[0] == 1 else 1), layers % (stages * chunks)
    if total != rest or sum(map(sum, split)) != layers:
        values.note(
            key, "mindformers.offset-sum",
            "The sum of `offset` ({total}) should equal to remainder of `num_layers` ({layers}) % (pp "
            "({pp}) * pp_interleave_num ({vpp})) = {rest}",
            total=total, layers=layers, pp=stages, vpp=chunks, rest=rest,
        )
    return split


def _recompute(values: Values, split: Split | None, remarks: list[Message]) -> Recompute:
    """The layers that ``recompute``, ``select_recompute`` and ``select_comm_recompute`` reach, by what they recompute."""
    value = values.get(FULL)
    if split is None:
        lists = None if isinstance(value, bool) else lists_of(value)
        return Full() if value is True else recompute_of(lists, None) if lists is not None else NoRecompute()
    full = _list(values, FULL, value, split)
    words: dict[str, Split] = {}
    for key in WORDS:
        if values.source.value(f"recompute_config.{key}_exclude") not in (None, False, [], (), {}):
            remarks.append(_remark(values, f"recompute_config.{key}_exclude", "{key} takes operators out of recomputation again: "
                                   "an estimate counts them as recomputed"))
        for module, counts in _named(values, key, split, remarks):
            words[module] = _least(words[module], counts) if module in words else counts
    return recompute_of_lists(full, words, split, behind_full=False)


def _named(values: Values, key: str, split: Split, remarks: list[Message]) -> Iterator[tuple[str, Split]]:
    """Modules that a key recomputes, each with its layers: those of its default patterns, or of the patterns that it names."""
    name = f"recompute_config.{key}"
    value = values.source.value(name)
    patterns: dict[str, object]
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value):
        patterns = dict.fromkeys(value, True)  # names alone: every layer
    elif isinstance(value, Mapping):
        patterns = {str(pattern): layers for pattern, layers in value.items()}
    else:
        patterns = {place.removeprefix(f"{name}."): setting.value for place, setting in values.source.settings.items()
                    if place.startswith(f"{name}.")}
    if not patterns:
        if value not in (None, False, {}, [], ()):
            yield WORDS[key], _list(values, name, value, split)
            if key == "select_recompute" and values.source.value(f"{MODEL}.use_flash_attention") is False:
                remarks.append(_remark(values, name, "without flash attention {key} recomputes the attention core of every layer, "
                                       "which an estimate counts as kept"))
        return
    for pattern, layers in patterns.items():
        known = [module for form, module in PATTERNS[key].items() if re.fullmatch(form, pattern)]
        place = f"{name}.{pattern}" if f"{name}.{pattern}" in values.source.settings else name
        if known and known[0]:
            yield known[0], _list(values, place, layers, split)
        elif not known and layers not in (False, [], ()):
            remarks.append(_remark(values, place, "{key} names an operator that no layout has a word for: an estimate counts what "
                                   "it recomputes as kept"))


def _remark(values: Values, key: str, words: str) -> Message:
    return Message("import.select", words, {"key": key}, values.source.settings[key].place)


def _list(values: Values, key: str, value: object, split: Split) -> Split:
    """Counts by chunk and stage of one value: all layers, none, counts by stage (dealt to the chunks in turn), or by both."""
    if value is True:
        return split
    nothing = tuple((0,) * len(row) for row in split)
    if value in (None, False, [], ()):
        return nothing
    counts = _counts(value, split) if isinstance(value, (list, tuple)) else None
    if counts is None:
        values.note(key, "mindformers.recompute-list", "Illegal input list for select_recompute: {value}", value=value)
    return counts or nothing


def _least(one: Split, other: Split) -> Split:
    """Layers that two patterns of one thing both reach."""
    return tuple(tuple(map(min, *rows)) for rows in zip(one, other, strict=True))


def _counts(value: list[object] | tuple[object, ...], split: Split) -> Split | None:
    """Counts ``[chunk][stage]`` as ``LayerSetting`` reads a list; truth values are all or none."""
    stages = len(split[0])
    if all(isinstance(item, (bool, int)) for item in value):
        if len(value) > stages:
            return None
        result = [[0] * stages for _ in split]
        for stage, item in enumerate(value):
            whole = sum(row[stage] for row in split)
            left = (whole if item else 0) if isinstance(item, bool) else min(cast("int", item), whole)
            while left > 0:
                for chunk, row in enumerate(split):
                    if left and result[chunk][stage] < row[stage]:
                        result[chunk][stage] += 1
                        left -= 1
        return tuple(map(tuple, result))
    if len(value) != len(split):
        return None
    rows = []
    for item, row in zip(value, split, strict=True):
        if isinstance(item, bool):
            rows.append(row if item else (0,) * stages)
            continue
        if not isinstance(item, (list, tuple)) or len(item) != stages or not all(isinstance(each, (bool, int)) for each in item):
            return None
        rows.append(
            tuple(
                (full if each else 0) if isinstance(each, bool) else min(each, full) for each, full in zip(item, row, strict=True)
            )
        )
    return tuple(rows)


def _swap(values: Values, remarks: list[Message]) -> None:
    """Activations that are swapped to the host, which no layout has a word for."""
    if values.source.value("swap_config.swap") is True:
        remarks.append(
            Message(
                "import.unmapped",
                "{key} has no word in a layout: an estimate counts {what} as kept",
                {"key": "swap_config.swap", "what": "swapped activations"},
                values.source.settings["swap_config.swap"].place,
            )
        )


def _shards(values: Values, ranks: int) -> dict[str, int]:
    """The parallel optimizer: its level is the ZeRO stage."""
    if not values.bool("parallel.enable_parallel_optimizer"):
        return dict(zero_shards(0, 1))
    size = values.int(f"{OPTIMIZER}.optimizer_weight_shard_size", -1) or -1
    level = values.text(f"{OPTIMIZER}.optimizer_level")
    stage = {"level1": 1, "level2": 2, "level3": 3}.get(level, 2 if values.bool(f"{OPTIMIZER}.gradient_accumulation_shard") else 1)
    return dict(zero_shards(stage, size if 1 < size <= ranks else ranks))
