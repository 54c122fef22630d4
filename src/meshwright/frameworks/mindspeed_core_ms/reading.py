"""MindSpeed-Core-MS's YAML (r0.1.0, and the wrapper of its guide) as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.source import Source
from meshwright.domain.layout import Layout, NoRecompute, Overlap, Selective
from meshwright.errors import Message
from meshwright.frameworks.ascend.recompute_lists import LISTS, recompute_of_lists
from meshwright.frameworks.ascend.stages import (
    Split,
    lists_of,
    plain_split,
    recompute_of,
    shape_of,
    transposed,
    within_reason,
)
from meshwright.frameworks.compose import Values, data_parallel_of, world_of, zero_shards
from meshwright.frameworks.keys import told
from meshwright.frameworks.mindspeed_core_ms.writing import (
    CELLS,
    COMM,
    FLASH_SELECTS,
    PARALLEL,
    PLAIN_SELECTS,
    RING_ALONE,
    STEP,
    WRAPPER,
    own_split,
)
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.layout import ContextKind, Recompute

OPTIMIZER = ("training_config.use_distributed_optimizer", f"{WRAPPER}use_distributed_optimizer")
DDP = ("training_config.wrap_with_ddp", "train_config.ms_training_config.wrap_with_ddp")
LAYERS = ("parallel_config.num_layer_list", f"{WRAPPER}pipeline.layer_list")
"""Spellings of what no row of ``PARALLEL`` or ``STEP`` reads: r0.1.0's own first."""
LIST_SPELLINGS = {
    name: (f"parallel_config.recompute_config.{name}", f"parallel_config.{name}", f"train_config.recompute_config.{name}")
    for name in LISTS
}
_FIGURES = {
    "model_config.num_layers": "layers", "model_config.hidden_size": "hidden", "model_config.num_attention_heads": "heads",
    "model_config.kv_channels": "head_dim", "model_config.ffn_hidden_size": "ffn", "model_config.vocab_size": "vocabulary",
    "moe_config.moe_router_topk": "experts_per_token",
}


class Places(Struct, frozen=True, kw_only=True):
    """Stages and chunks, and the layers on them where the files tell."""

    stages: int
    chunks: int
    num_layers: int | None
    split: Split | None


def interpret(source: Source, given: Given, release: str, *, framework: str = "mindspeed-core-ms") -> Reading:
    """A YAML as MindSpeed-Core-MS r0.1.0 understands it; devices are needed beside it."""
    from meshwright.frameworks import framework as framework_named

    surface = framework_named(framework).surface
    assert surface is not None, "a framework that reads has a surface"
    values = Values(source=source, surface=surface(), release=release, strict=True)
    tp, pp = (told(PARALLEL, values, knob) for knob in ("tensor_parallel", "pipeline_parallel"))
    mb = told(STEP, values, "microbatch_sequences")
    vp, cp = (told(PARALLEL, values, knob) for knob in ("virtual_stages", "context_parallel"))
    m = told(STEP, values, "num_microbatches")
    places = _places(values, given, pp, vp if pp > 1 else 1)
    recompute = _recompute(values, places)
    world = world_of(values, given)
    dp = data_parallel_of(values, world, tp * cp * pp)
    shards, wrapped = _zero(values, (dp or 1) * cp)
    distributed = wrapped and shards["optimizer_shards"] > 1
    kind: ContextKind = told(PARALLEL, values, "context_kind") if cp > 1 and release != RING_ALONE else "ring"
    layout = None
    if dp is not None and not values.messages:
        layout = Layout(
            tensor_parallel=tp, sequence_parallel=told(PARALLEL, values, "sequence_parallel") and tp > 1, context_parallel=cp,
            context_kind=kind, pipeline_parallel=pp, virtual_stages=vp,
            expert_parallel=told(PARALLEL, values, "expert_parallel"), data_parallel=dp, **shards, offload=(),
            microbatch_sequences=mb, num_microbatches=m, recompute=recompute,
            schedule="interleaved" if vp > 1 else "1f1b", stage_layers=_said(places),
            attention="math" if _unfused(values) else None, compiled=None,
            overlap=Overlap(
                gradient_reduce=wrapped and values.bool("training_config.overlap_grad_reduce"),
                parameter_gather=distributed and values.bool("optimizer_config.overlap_param_gather"), tensor=False,
                point_to_point=told(PARALLEL, values, "overlap.point_to_point"), expert=False,
            ),
        )
    remarks = _remarks(values)
    return Reading(
        framework=framework, version=release, source=source, said=_said_of(values, world, dp, mb, m), layout=layout,
        messages=(*values.messages, *remarks),
    )


def _spelt(values: Values, spellings: tuple[str, ...]) -> str:
    """The spelling of a thing that the files use; the framework's own where they use none."""
    return values.first(spellings) or spellings[0]


def _places(values: Values, given: Given, stages: int, chunks: int) -> Places:
    """The split: as listed, or as the framework splits."""
    layers = values.int("model_config.num_layers") or (given.model.num_layers if given.model else None)
    layers, stages, chunks = within_reason(values, layers, stages, chunks)
    key = _spelt(values, LAYERS)
    value = values.get(key)
    if value is None or stages == 1:
        split = own_split(layers, stages, chunks) if layers and layers >= stages * chunks else None
        return Places(stages=stages, chunks=chunks, num_layers=layers, split=split)
    lists = lists_of(value)
    if lists is None:
        values.note(key, "setting.list", "{key} is {value!r}: a list of counts by stage is expected", key=key, value=value)
        return Places(stages=stages, chunks=chunks, num_layers=layers, split=None)
    if key.startswith(WRAPPER) and shape_of(lists) is not None and chunks > 1:
        lists = transposed(lists)  # the wrapper's example is [stage][virtual stage]
    return Places(stages=stages, chunks=chunks, num_layers=layers or sum(map(sum, lists)), split=lists)


def _said(places: Places) -> Split | None:
    """The split as a layout says it."""
    if places.split is None or places.num_layers is None or sum(map(sum, places.split)) != places.num_layers:
        return places.split
    even = plain_split(places.num_layers, 0, places.stages, places.chunks)
    return None if places.split == even else places.split


def _recompute(values: Values, places: Places) -> Recompute:
    """Recomputation by stage, each list by what it recomputes; granularity, method and number where there is no list."""
    lists = {name: found for name in LISTS if (found := _list(values, name)) is not None}
    if set(lists) - {LISTS[0]} and places.split is not None:
        return _of_lists(values, lists, places.split)
    if LISTS[0] in lists:
        return recompute_of(lists[LISTS[0]], places.split)
    if any(values.has(spelling) for name in LISTS for spelling in LIST_SPELLINGS[name][:2]):
        return NoRecompute()  # a recompute_config switches granularity, method and number off
    if values.text("model_config.recompute_granularity") == "selective" and (selects := selected(values)):
        return Selective(modules=(selects,))
    number = values.int("model_config.recompute_num_layers")
    if values.text("model_config.recompute_granularity") == "full" and number and values.has("model_config.recompute_method"):
        method = values.text("model_config.recompute_method")
        counts = tuple((number,) * places.stages for _ in range(places.chunks))
        if method == "uniform" and places.split is not None:
            counts = places.split
        return recompute_of(counts, places.split)
    return NoRecompute()


def _list(values: Values, name: str) -> Split | None:
    """A recompute list under any of its spellings; None where there is none."""
    key = values.first(LIST_SPELLINGS[name])
    value = values.get(key) if key else None
    if key is None or value in (None, False, [], ""):
        return None
    lists = lists_of(value)
    if lists is None:
        values.note(key, "setting.list", "{key} is {value!r}: a list of counts by stage is expected", key=key, value=value)
    return lists


def _of_lists(values: Values, lists: Mapping[str, Split], split: Split) -> Recompute:
    """Counts of full, selective and communication recomputation, which stand behind each other."""
    for name, counts in lists.items():
        key = values.first(LIST_SPELLINGS[name]) or name
        if shape_of(counts) != shape_of(split):
            values.note(key, "mindspeed-core-ms.list-shape", "The shape of {key} {shape} must equal to pp_layout {layout}",
                        key=name, shape=shape_of(counts), layout=shape_of(split))
            return NoRecompute()
        if any(count < 0 for row in counts for count in row):
            values.note(key, "mindspeed-core-ms.recompute-negative", "recompute_num_array has element < 0")
            return NoRecompute()
    zeros = tuple((0,) * len(row) for row in split)
    full, select, comm = (lists.get(name, zeros) for name in LISTS)
    words = {COMM: comm} | ({module: select} if (module := selected(values)) else {})
    return recompute_of_lists(full, words, split, behind_full=True)


def _unfused(values: Values) -> bool:
    """Whether the files switch flash attention off."""
    return values.has("model_config.use_flash_attention") and not values.bool("model_config.use_flash_attention")


def selected(values: Values) -> str:
    """The module that selective recomputation recomputes; empty where it has no effect."""
    if not values.bool("model_config.use_flash_attention"):
        return PLAIN_SELECTS
    return FLASH_SELECTS if values.text("model_config.hidden_act", "gelu") in CELLS else ""


def _zero(values: Values, ranks: int) -> tuple[dict[str, int], bool]:
    """Shard groups, and whether the DDP wrapper is on; the distributed optimizer acts only inside it."""
    wrapped = values.bool(_spelt(values, DDP)) or _spelt(values, OPTIMIZER).startswith(WRAPPER)
    distributed = wrapped and values.bool(_spelt(values, OPTIMIZER))
    level = values.text("parallel_config.zero_level")
    if wrapped and level == "z3" and not distributed:
        values.note("parallel_config.zero_level", "mindspeed-core-ms.zero3-optimizer",
                    "For zero3 with DDP, use_distributed_optimizer must be on. Please check the configuration.")
    unwrapped = {"z1": 1, "z2": 2, "z3": 3}.get(level, 0)
    stage = unwrapped if not wrapped else 3 if level == "z3" else int(distributed)
    return dict(zero_shards(stage, ranks)), wrapped


def _remarks(values: Values) -> list[Message]:
    """What stands in the files and has no effect."""
    key = values.first(LIST_SPELLINGS["select_recompute"])
    lists = lists_of(values.get(key)) if key else None
    if key is None or not lists or not any(map(any, lists)) or selected(values):
        return []
    noted = Values(source=values.source, surface=values.surface, release=values.release)
    noted.note(
        key, "import.select", "{key} recomputes nothing: with flash attention it takes the MLP's activation, and {act} is no Cell",
        key=key, act=values.text("model_config.hidden_act", "gelu"),
    )
    return list(noted.messages)


def _gradient_dtype(values: Values, precision: str | None) -> str | None:
    """The type in which gradients are summed: BF16's always in FP32, FP16's in two bytes (``bf16``) unless told otherwise.

    Source: training/training.py get_model ("Using bf16 with ddp, automatically set 'accumulate_allreduce_grads_in_fp32=True'.").
    """
    if precision == "fp16" and not values.bool("training_config.accumulate_allreduce_grads_in_fp32"):
        return "bf16"
    return None if precision is None else "fp32"


def _said_of(values: Values, world: int | None, dp: int | None, mb: int, m: int) -> Said:
    """Batch, sequence, precision and figures as the files say them."""
    figures: dict[str, object] = {name: found for key, name in _FIGURES.items() if (found := values.int(key)) is not None}
    if values.bool("model_config.group_query_attention"):
        figures["key_value_heads"] = values.int("model_config.num_query_groups", 32)
    experts = values.int("moe_config.num_experts") or values.int("model_config.num_experts")
    if experts and experts > 1:
        figures["experts"] = experts
    else:
        figures.pop("experts_per_token", None)
    if values.has("model_config.untie_embeddings_and_output_weights"):
        figures["tied_embeddings"] = not values.bool("model_config.untie_embeddings_and_output_weights")
    compute = values.text("model_config.compute_dtype")
    precision = (
        "bf16" if values.bool("training_config.bf16") or compute == "bfloat16"
        else "fp16" if values.bool("training_config.fp16") or compute == "float16" else None
    )
    batch = (
        dp * mb * m if dp and (values.has("dataset_config.micro_batch_num") or values.has("dataset_config.batch_size")) else None
    )
    return Said(
        devices=world, global_batch_sequences=batch, sequence_tokens=values.int("model_config.seq_length"), precision=precision,
        gradient_dtype=_gradient_dtype(values, precision),
        optimizer="adamw" if "adam" in values.text("optimizer_config.optimizer_type").lower() else None,
        task="lora" if values.bool("lora_config.use_lora") else None, figures=figures,
    )
