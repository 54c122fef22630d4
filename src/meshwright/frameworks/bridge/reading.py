"""Megatron-Bridge's configuration as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.source import Source
from meshwright.domain.layout import AttentionKernel, ContextKind, Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.errors import InputError, Message
from meshwright.frameworks.bridge.called import call_of
from meshwright.frameworks.bridge.deciding import KEYS
from meshwright.frameworks.bridge.said import batch_of, blocks_in, layers_in, said_of
from meshwright.frameworks.bridge.upon import LAYOUT, PP, upon_recipe
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of, world_of
from meshwright.frameworks.keys import spellings, told
from meshwright.frameworks.megatron.hybrid import layers_of
from meshwright.frameworks.megatron.reading import KERNELS
from meshwright.frameworks.megatron.stages import unrolled
from meshwright.frameworks.settings import Given, Reading

if TYPE_CHECKING:
    from meshwright.estimate.split import Split

KINDS: dict[str, ContextKind] = {"p2p": "ring", "a2a": "ulysses", "all_gather": "all-gather", "allgather": "all-gather",
                                 "a2a+p2p": "hybrid"}
KERNEL = "model.attention_backend"
STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel")


def interpret(source: Source, given: Given, release: str) -> Reading:
    """What a run does: fields as the files set them, else as the recipe does that they start from, else Bridge's defaults."""
    from meshwright.frameworks.bridge import surface

    upon, call = upon_recipe(source, release), call_of(source, release)
    source = upon.source
    values = Values(source=source, surface=surface(), release=release, strict=True)
    silent = [key.removeprefix("model.") for knob in _DEGREES for key in spellings(KEYS, knob) if key not in source.settings]
    untold = upon.recipe is None and len(silent) == len(_DEGREES)
    if silent and upon.recipe is None:
        values.refuse(
            "bridge.recipe", "the files do not set {names}: the recipe decides, {instead}", names=", ".join(silent),
            instead="so the layout is not known" if untold else "and 1 is read here",
        )
    if upon.message is not None:
        values.messages.append(upon.message)
    tp, pp, cp = (told(KEYS, values, knob) for knob in _DEGREES)
    ep = told(KEYS, values, "expert_parallel")
    etp = values.int("model.expert_tensor_parallel_size") or (tp if ep > 1 and release != "main" else 1)
    mb = told(KEYS, values, "microbatch_sequences")
    world = world_of(values, given)
    dp = data_parallel_of(values, world, tp * pp * cp)
    microbatches = microbatches_of(values, batch_of(values, given), mb, dp)
    stages = None if upon.message is not None else _stages(values, pp, given)
    layout = None
    if not untold and dp is not None and microbatches is not None and stages is not None:
        chunks, split = stages
        shards = _shards(values, dp * cp)
        layout = Layout(
            tensor_parallel=tp, sequence_parallel=told(KEYS, values, "sequence_parallel"), context_parallel=cp,
            context_kind=_kind(values) if cp > 1 else "ring", pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep,
            expert_tensor_parallel=etp, data_parallel=dp, optimizer_shards=shards[0], gradient_shards=shards[1],
            parameter_shards=shards[2], microbatch_sequences=mb, num_microbatches=microbatches,
            recompute=_recompute(values, _largest(values, given, pp, chunks, split), blocks_in(values, given)),
            schedule="interleaved" if chunks > 1 else "1f1b", stage_layers=split,
            offload=("optimizer",) if values.bool("optimizer.optimizer_cpu_offload") else (), attention=_attention(values),
            overlap=_overlap(values, tp, chunks, ep, dp * cp, sharded=shards[0] > 1),
        )
    knobs = surface().knobs()
    said = said_of(values, given, call, model=upon.model, devices=world)
    return Reading(
        framework="bridge", version=release, source=source, said=said,
        layout=None if any(key in knobs for key in values.failed) else layout, messages=tuple(values.messages),
    )


def _attention(values: Values) -> AttentionKernel | None:
    """The attention kernel that a member of ``AttnBackend`` names; a text of an override is none of them."""
    enumeration, _, member = str(values.source.value(KERNEL)).rpartition(".")
    return KERNELS.get(member) if enumeration == "AttnBackend" else None


def _kind(values: Values) -> ContextKind:
    """The kind of context parallelism; a list names one for each layer, of which the first is read."""
    word = values.source.value("model.cp_comm_type")
    if isinstance(word, (list, tuple)) and word:
        word = word[0]
    return KINDS.get(str(word), "ring")


def _stages(values: Values, pp: int, given: Given) -> tuple[int, Split | None] | None:
    """Chunks of a stage, and layers by chunk and stage (None: even); None where that cannot be told."""
    chunks = values.int("model.virtual_pipeline_model_parallel_size") or 1
    piped = "|" in values.text("model.hybrid_layer_pattern").partition("/")[0]
    counts = _segments(values, given) if piped else _cells(values)
    if piped and counts is None:
        return None
    if counts is not None:
        if len(counts) % pp:
            values.messages.append(_undivided(values, len(counts), pp, piped=piped))
            return None
        split = tuple(tuple(counts[start : start + pp]) for start in range(0, len(counts), pp))
        return len(split), split if len(set(counts)) > 1 and pp > 1 else None
    blocks = blocks_in(values, given)
    first, last = (None if (count := values.int(f"model.num_layers_in_{end}_pipeline_stage")) is None else count // blocks
                   for end in ("first", "last"))
    embedding, loss = (values.bool(f"model.account_for_{part}_in_pipeline_split") for part in ("embedding", "loss"))
    layers = layers_in(values, given)
    if pp == 1 or (first is None and last is None and not embedding and not loss):
        return (chunks if pp > 1 else 1), None
    if layers is None:
        values.refuse("import.layers", "the files name only the layers of the ends: give --model")
        return None
    told = [count for count in (first, last) if count is not None]
    middle, rest = pp - len(told), layers + embedding + loss - sum(told)
    if rest < 0 or middle < 0 or (middle and rest % middle) or (not middle and rest):
        values.refuse("bridge.ends", "number of layers at middle stage: {rest} must be divisible by the middle pipeline model "
                      "parallel size {middle}", rest=rest, middle=middle)
        return None
    by_stage = [*([] if first is None else [first]), *[rest // middle if middle else 0] * middle, *([] if last is None else [last])]
    grid = [[count // chunks for count in by_stage] for _ in range(chunks)]
    grid[0][0] -= embedding
    grid[-1][-1] -= loss
    return chunks, tuple(map(tuple, grid)) if len({count for chunk in grid for count in chunk}) > 1 else None


def _undivided(values: Values, cells: int, stages: int, *, piped: bool) -> Message:
    """That stages do not divide the places of a layout, in the words of Megatron-Core, with whose layout it is."""
    setting = values.source.setting("model.hybrid_layer_pattern" if piped else LAYOUT)
    degree = values.source.setting(PP)
    whose = f": the layout is that of {setting.file}" if setting is not None and setting.key not in values.source.settings else ""
    words = "pipeline_model_parallel_layout must be divisible by pipeline_model_parallel_size (len(layout)={cells}, " \
        "pipeline_model_parallel_size={stages}){whose}" if not piped else "The number of pipe-delimited segments ({cells}) in " \
        "hybrid_layer_pattern must be evenly divisible by pipeline_model_parallel_size ({stages}).{whose}"
    place = degree.place if degree is not None else setting.place if setting is not None else ""
    return Message("bridge.layout-string", words, {"cells": cells, "stages": stages, "whose": whose}, path=place)


def _segments(values: Values, given: Given) -> list[int] | None:
    """Layers of each stage of a hybrid's pattern; None where one ends inside a layer."""
    text = values.text("model.hybrid_layer_pattern")
    counts = layers_of([len(cell) for cell in text.partition("/")[0].split("|")], given.model, text)
    if counts is None:
        values.refuse("bridge.hybrid-cut", "a stage of the pattern ends inside a layer of {model}, between its mixer and its "
                      "feed-forward block", model=given.model.name if given.model else "")
    return None if counts is None else list(counts)


def _cells(values: Values) -> list[int] | None:
    """Decoder layers of each cell of a layout: a string, or lists of names; None where there is none, or no readable one."""
    value = values.get(LAYOUT)
    if isinstance(value, str):
        try:
            return [cell.count("t") for cell in unrolled(value)]
        except InputError as error:
            values.note(LAYOUT, "bridge.layout-text", "{text}", text=str(error))
            return None
    if isinstance(value, (list, tuple)):
        cells = [cell if isinstance(cell, (list, tuple)) else [cell] for cell in value]
        return [sum(name in ("decoder", "t") for name in cell) for cell in cells]
    return None


def _largest(values: Values, given: Given, pp: int, chunks: int, split: Split | None) -> int | None:
    """Layers of the largest chunk; None where the files and the model do not say."""
    layers = layers_in(values, given)
    return max(map(max, split)) if split else layers // (pp * chunks) if layers else None


def _recompute(values: Values, largest: int | None, blocks: int) -> Recompute:
    """What is computed again in the backward pass: of every chunk the first layers, all where their count exceeds the largest."""
    granularity = values.text("model.recompute_granularity")
    if granularity == "selective":
        return Selective(modules=values.words("model.recompute_modules") or ("core_attn",))
    if granularity == "full":
        count = values.int("model.recompute_num_layers") if values.text("model.recompute_method") == "block" else None
        count = None if count is None else -(-count // blocks)
        return Full(layers=None if count is None or (largest is not None and count > largest) else count)
    return NoRecompute()


def _shards(values: Values, ranks: int) -> tuple[int, int, int]:
    """Ranks that optimizer state, gradients and parameters are split over."""
    instances = values.degree("ddp.num_distributed_optimizer_instances")
    if ranks % instances:
        values.note("ddp.num_distributed_optimizer_instances",
                    "bridge.instances", "{ranks} ranks do not divide into {instances} groups",
                    ranks=ranks, instances=instances)
        instances = 1
    if values.bool("ddp.use_megatron_fsdp") or values.bool("dist.use_megatron_fsdp"):
        stage = STAGES.get(values.text("ddp.data_parallel_sharding_strategy", "no_shard"), 0)
    elif values.bool("dist.use_torch_fsdp2"):
        stage = 3
    else:
        stage = int(values.bool("ddp.use_distributed_optimizer") or values.bool("optimizer.use_distributed_optimizer"))
    inner = ranks // instances
    outer = ranks if stage >= 2 and values.text("ddp.outer_dp_sharding_strategy", "no_shard") == "optim" else inner
    return (outer if stage else 1), (inner if stage >= 2 else 1), (inner if stage == 3 else 1)


def _overlap(values: Values, tp: int, chunks: int, ep: int, ranks: int, *, sharded: bool) -> Overlap:
    """Overlaps; where ``comm_overlap`` is set it decides, and switches on what it is not told."""
    there = {**values.source.beneath, **values.source.settings}
    decides = any(key.startswith("comm_overlap.") and setting.value is not None for key, setting in there.items())

    def on(name: str, *otherwise: str, default: bool) -> bool:
        told = values.get(f"comm_overlap.{name}") if decides else None
        if isinstance(told, bool):
            return told
        return default if decides else any(values.bool(key) for key in otherwise)

    several = ranks > 1
    return Overlap(
        gradient_reduce=several and on("overlap_grad_reduce", "ddp.overlap_grad_reduce", default=True),
        parameter_gather=several and sharded and on("overlap_param_gather", "ddp.overlap_param_gather", default=True),
        tensor=tp > 1 and on("tp_comm_overlap", "model.tp_comm_overlap", default=False),
        point_to_point=chunks == 1 or on("overlap_p2p_comm", "model.overlap_p2p_comm", default=True),
        expert=ep > 1 and on("overlap_moe_expert_parallel_comm", "model.overlap_moe_expert_parallel_comm", default=False),
    )
