"""nanotron's YAML as a layout: every degree stands there, and their product is the world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.source import Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap
from meshwright.frameworks.compose import Values
from meshwright.frameworks.keys import told
from meshwright.frameworks.nanotron.writing import KEYS
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.domain.layout import ContextKind

CONTEXT: dict[str, ContextKind] = {"llama3_ring_attention": "all-gather", "ring": "ring", "ring_flash_triton": "ring"}
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16"}
OPTIMIZERS = {"adamW": "adamw"}
NEEDED = (
    "parallelism.dp", "parallelism.tp", "parallelism.pp", "tokens.micro_batch_size", "tokens.batch_accumulation_per_replica",
)
"""Without one of these there is no layout, and no run."""
_MODEL = "model.model_config."
_FIGURES = {
    "num_hidden_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads", "intermediate_size": "ffn",
    "vocab_size": "vocabulary", "moe_config.num_experts": "experts", "moe_config.top_k": "experts_per_token",
    "moe_config.moe_intermediate_size": "expert_ffn",
}


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A configuration as nanotron understands it."""
    from meshwright.frameworks.nanotron import surface

    values = Values(source=source, surface=surface(), release=release, strict=True)
    for key in NEEDED:
        if not values.has(key):
            values.refuse("nanotron.missing", 'missing value for field "{key}"', key=key)
    layout = _layout(values)
    world = layout.world
    devices = given.num_devices or source.devices
    if devices is not None and devices != world:
        values.refuse(
            "nanotron.world", "TP*CP*DP*PP={tp}*{cp}*{dp}*{pp}={world} != WORLD_SIZE={devices}", tp=layout.tensor_parallel,
            cp=layout.context_parallel, dp=layout.data_parallel, pp=layout.pipeline_parallel, world=world, devices=devices,
        )
    known = all(values.has(key) for key in NEEDED)
    said = Said(
        devices=world if known else devices,
        global_batch_sequences=layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches if known else None,
        sequence_tokens=values.int("tokens.sequence_length"), precision=PRECISIONS.get(values.text("model.dtype", "bfloat16")),
        gradient_dtype=_gradients(values),
        optimizer=OPTIMIZERS.get(values.text("optimizer.optimizer_factory.name", "sgd")), task="pretrain", figures=_figures(values),
    )
    return Reading(
        framework="nanotron", version=release, source=source, said=said, layout=None if values.messages else layout,
        messages=tuple(values.messages),
    )


def _gradients(values: Values) -> str | None:
    """What gradients are accumulated in; without FP32 the model's own type, which has a name here where it is BF16."""
    if not values.has("optimizer.accumulate_grad_in_fp32"):
        return None
    if values.bool("optimizer.accumulate_grad_in_fp32"):
        return "fp32"
    return "bf16" if values.text("model.dtype", "bfloat16") == "bfloat16" else None


def _layout(values: Values) -> Layout:
    """The layout of typed values; what is missing counts as 1."""
    tp, dp, pp, cp = (
        told(KEYS, values, knob) for knob in ("tensor_parallel", "data_parallel", "pipeline_parallel", "context_parallel")
    )
    sequence = tp > 1 and values.text("parallelism.tp_mode", "ALL_REDUCE").upper() == "REDUCE_SCATTER"
    zero = dp if (values.int("optimizer.zero_stage") or 0) > 0 else 1
    attention = values.text(_MODEL + "_attn_implementation", "flash_attention_2")
    return Layout(
        tensor_parallel=tp, sequence_parallel=sequence, context_parallel=cp,
        context_kind=CONTEXT.get(attention, "ring") if cp > 1 else "ring", pipeline_parallel=pp, data_parallel=dp,
        expert_parallel=values.degree("parallelism.expert_parallel_size"), optimizer_shards=zero,
        microbatch_sequences=told(KEYS, values, "microbatch_sequences"), num_microbatches=told(KEYS, values, "num_microbatches"),
        recompute=Full() if values.bool("parallelism.recompute_layer") else NoRecompute(),
        schedule=told(KEYS, values, "schedule") if pp > 1 else "1f1b",
        overlap=Overlap(
            gradient_reduce=False, parameter_gather=False, point_to_point=False, expert=False,
            tensor=sequence and values.bool("parallelism.tp_linear_async_communication"),
        ),
    )


def _figures(values: Values) -> dict[str, object]:
    """The model's figures, as far as the file holds them."""
    figures: dict[str, object] = {
        name: number for key, name in _FIGURES.items() if (number := values.int(_MODEL + key)) is not None
    }
    heads = values.int(_MODEL + "num_key_value_heads") or values.int(_MODEL + "num_kv_heads") or figures.get("heads")
    if heads is not None:
        figures["key_value_heads"] = heads
    if values.has(_MODEL + "tie_word_embeddings"):
        figures["tied_embeddings"] = values.bool(_MODEL + "tie_word_embeddings")
    return figures
