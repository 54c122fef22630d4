"""DeepSpeed's JSON, and the launch script beside it, as a layout."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import Setting, Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap
from meshwright.errors import InputError, Message
from meshwright.frameworks.asking import whole
from meshwright.frameworks.compose import Values
from meshwright.frameworks.deepspeed.json_config import (
    batch_of,
    data_parallel_said,
    gradient_dtype_of,
    offload_of,
    optimizer_of,
    overlaps_of,
    precision_of,
    shards_of,
    stage_of,
    with_shards,
    without_auto,
)
from meshwright.frameworks.settings import Given, Reading, Said
from meshwright.readers.safe import parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.frameworks.base import File
    from meshwright.frameworks.deepspeed.json_config import BatchSaid

COMMENT = "json.comment"
LENGTHS = ("--block_size", "--max_seq_length", "--max_seq_len", "--model_max_length")
_FLAGS = {
    "train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
    "gradient_accumulation_steps": "--gradient_accumulation_steps",
    "zero_optimization.stage": "--zero_stage",
    "bf16.enabled": "--bf16",
    "fp16.enabled": "--fp16",
}
"""Key of the JSON -> flag of the Trainer (or of DeepSpeed-Chat) that says it where the JSON leaves it open."""


def open_config(files: Sequence[File]) -> Source:
    """Files as a source; DeepSpeed parses Hjson, so a comment that ends with its line is no fault of its files."""
    from meshwright.documents.opening import open_source

    source = open_source(files)
    texts = {file.path: file.text for file in files}
    remarks = (
        Message("deepspeed.hjson", "line {line} holds a // comment, which DeepSpeed's Hjson takes", remark.values, remark.path)
        if remark.id == COMMENT and _is_hjson(texts[remark.path]) else remark for remark in source.remarks
    )
    return replace(source, remarks=tuple(remarks))


def _is_hjson(text: str) -> bool:
    """Whether a text is JSON once its comments are cut at the ends of their lines."""
    token = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*')
    try:
        parse_json(token.sub(lambda found: found[0] if found[0].startswith('"') else "", text))
    except InputError:
        return False
    return True


def completed(source: Source) -> Source:
    """The source with what flags of the training script say in place of keys that the JSON leaves open or ``auto``."""
    settings = dict(source.settings)
    for key, flag in _FLAGS.items():
        said = settings.get(flag)
        if said is not None and source.value(key) in (None, "auto"):
            settings[key] = Setting(key=key, value=_plain(said.value), file=said.file, line=said.line)
    return replace(source, settings=settings)


def _plain(value: object) -> object:
    """The text of a flag as JSON would have it."""
    text = str(value).lower()
    if text in {"true", "false"}:
        return text == "true"
    number = whole(text)
    return value if number is None else number


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A configuration as DeepSpeed understands it: replicas follow from the devices, or from the three batch keys."""
    from meshwright.frameworks.deepspeed import surface

    values = Values(source=without_auto(completed(source)), surface=surface(), release=release)
    tp = max(1, values.int("tensor_parallel.autotp_size") or values.int("tensor_parallel.tp.tp_size") or 1)
    cp = values.degree("sequence_parallel_size")
    ep = values.degree("expert_parallel.autoep_size") if values.bool("expert_parallel.enabled") else 1
    etp = values.degree("expert_parallel.expert_tensor_parallel_size") if ep > 1 else 1
    devices = given.num_devices or source.devices or one_node(source)
    dp = _replicas(values, devices, tp * cp)
    batch = batch_of(values, dp)
    layout = None
    if dp is not None:
        _note_batch(values, source, batch, dp)
        layout = with_shards(Layout(
            tensor_parallel=tp, context_parallel=cp, context_kind="ulysses" if cp > 1 else "ring", data_parallel=dp,
            expert_parallel=ep, expert_tensor_parallel=etp,
            microbatch_sequences=batch.microbatch or 1, num_microbatches=batch.accumulation or 1,
            recompute=Full() if _recomputes(values) else NoRecompute(), offload=offload_of(values), overlap=overlap_of(values),
        ), shards_of(values, dp * cp))
    said = Said(
        devices=None if dp is None else dp * tp * cp, global_batch_sequences=batch.batch, sequence_tokens=_length(values),
        precision=precision_of(values), gradient_dtype=gradient_dtype_of(values), optimizer=optimizer_of(values),
    )
    return Reading(
        framework="deepspeed", version=release, source=without_auto(source), said=said,
        layout=None if values.messages else layout, messages=tuple(values.messages),
    )


def _note_batch(values: Values, source: Source, batch: BatchSaid, dp: int) -> None:
    """What the batch keys leave open, and who knows it."""
    found = {"train_micro_batch_size_per_gpu": batch.microbatch, "gradient_accumulation_steps": batch.accumulation}
    lacking = [key for key, value in found.items() if value is None]
    if not lacking:
        return
    if any(source.value(key) == "auto" for key in lacking):
        values.note(
            lacking[0], "import.batch-auto", '{keys}: "auto" is filled in by the training program: give its launch script '
            "(--per_device_train_batch_size, --gradient_accumulation_steps) as well", keys=" and ".join(lacking),
        )
        return
    values.note(
        lacking[0], "import.batch-keys", "{key} is neither said nor follows from the other batch keys (train_batch_size {batch}, "
        "{dp} data-parallel ranks)", key=" and ".join(lacking), batch=batch.batch or "is not said", dp=dp,
    )


def one_node(source: Source) -> int | None:
    """Devices of a launcher that is told of no other node."""
    from meshwright.documents.launch import LaunchDocument

    scripts = [document for document in source.documents if isinstance(document, LaunchDocument)]
    several = {"num-nodes", "nnodes", "hostfile", "H", "num-machines", "NNODES"}
    alone = scripts and not several & set(scripts[-1].shell.launch.launcher_options)
    return source.devices_per_node if alone and source.nodes is None else None


def _replicas(values: Values, devices: int | None, inner: int) -> int | None:
    """Data-parallel ranks; None (with a message) where neither devices nor batch keys determine them."""
    if devices is None:
        said = data_parallel_said(values)
        if said is None:
            values.refuse("import.devices", "the files do not say how many devices there are: give --devices, or --cluster")
        return said
    if devices % inner:
        values.refuse(
            "deepspeed.world", "world_size ({devices}) is not divisible by {inner} (tensor and sequence parallelism)",
            devices=devices, inner=inner,
        )
        return None
    return devices // inner


def _recomputes(values: Values) -> bool:
    """Whether the script is told to recompute; the JSON's section only says how the script's own calls do it."""
    return values.bool("--gradient_checkpointing") or values.bool("--activation_checkpointing")


def overlap_of(values: Values) -> Overlap:
    """Gradients and, in stage 3, parameters."""
    grad = overlaps_of(values)
    return Overlap(
        gradient_reduce=grad, parameter_gather=grad and stage_of(values) == 3, tensor=False, point_to_point=False, expert=False
    )


def _length(values: Values) -> int | None:
    """Tokens of a sequence, where a flag of the script says them."""
    key = values.first(LENGTHS)
    return values.int(key) if key else None
