"""What nanotron refuses of a case and a layout, in its own words (commit 2411b02, release 0.4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.domain.model import MixtureOfExperts, Mlp
from meshwright.estimate.split import cost_split
from meshwright.frameworks.nanotron.writing import is_qwen
from meshwright.frameworks.rules import attention_of, rule, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values

LIMITS: list[Limit] = []
_rule = partial(rule, LIMITS)


@_rule("nanotron.model", "nanotron trains Llama and Qwen2, which {model} is not: {reason}", noticed="never", path="model")
def _model(case: Case, layout: Layout) -> Values | None:
    model, kinds = case.model, case.model.kinds
    attention, block = kinds[0].attention, kinds[0].feed_forward
    reasons = [
        (len(kinds) > 1, "its layers differ"),
        (attention.latent is not None, "its attention is latent"),
        (attention.window_tokens is not None, "its attention has a window"),
        (attention.sinks, "its attention has sinks"),
        (model.position != "rope" or model.rotary_ratio != 1.0, "its positions are not rotary over whole heads"),
        (attention.query_bias != attention.key_value_bias or attention.output_bias, "other projections than query, key and "
            "value have biases"),
        (attention.query_key_norm != "none", "it normalises queries and keys"),
        (attention.head_dim * attention.num_heads != model.hidden, "its heads together are not as wide as its hidden size"),
        (not block.gated, "its feed-forward block is not gated"),
        (isinstance(block, Mlp) and block.bias, "its feed-forward block has biases"),
        (isinstance(block, MixtureOfExperts) and _odd_mixture(block), "its router or shared expert differ from those of Qwen2-MoE"),
        (model.norm != "rms" or kinds[0].norms != 2, "its norms are not two RMS norms in a layer"),
        (model.head_bias or model.embedding_norm or not model.final_norm, "its embedding or output layer differ"),
        (model.num_mtp_layers > 0, "it predicts several tokens"),
    ]
    return words_if("reason", reasons, between="; ", model=model.name)


def _odd_mixture(block: MixtureOfExperts) -> bool:
    """Whether a mixture is none that ``Qwen2MoELayer`` builds: softmax router without bias or groups, a gate on what is shared."""
    shared = block.shared_width > 0 and not block.shared_gate
    return shared or block.router_bias or block.correction_bias or block.expert_bias or block.num_groups > 1


@_rule("nanotron.task", "nanotron pretrains here, it does not run {task}", noticed="never", path="training")
def _task(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.task != "pretrain", task=case.training.task)


@_rule("nanotron.precision", "nanotron computes in bf16, not {precision}", noticed="never", path="training")
def _precision(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.name != "bf16", precision=case.training.precision.name)


@_rule("nanotron.optimizer", "Optimizer {optimizer} is not supported", noticed="start", path="training")
def _optimizer(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.optimizer.name != "adamw", optimizer=case.training.optimizer.name)


@_rule("nanotron.knobs", "nanotron has no key for {knobs}", noticed="never")
def _knobs(case: Case, layout: Layout) -> Values | None:
    split = cost_split(case.model, layout.pipeline_parallel)
    has = [
        (layout.virtual_stages > 1, "virtual stages"),
        (layout.expert_tensor_parallel > 1, "expert tensor parallelism"),
        (layout.zero_stage > 1, f"ZeRO-{layout.zero_stage} (zero_stage {layout.zero_stage} is ZeRO-1)"),
        (layout.zero_stage == 1 and layout.optimizer_shards != layout.data_parallel, "shard groups other than all "
            "data-parallel ranks"),
        (not isinstance(layout.recompute, NoRecompute) and layout.recompute != Full(), "recomputation of parts or of some layers"),
        (bool(layout.offload), "offload"),
        (layout.context_parallel > 1 and layout.context_kind not in {"ring", "all-gather"}, f"{layout.context_kind} context "
            f"parallelism"),
        (layout.schedule not in {"1f1b", "gpipe"}, f"the schedule {layout.schedule}"),
        (layout.stage_layers is not None and layout.stage_layers != split, "layers by stage"),
    ]
    return words_if("knobs", has)


@_rule("nanotron.expert-parallel", "expert_parallel_size {ep}: the ranks are arranged by it, but the world is TP*CP*DP*PP "
       "without it",
       noticed="start")
def _expert_parallel(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.expert_parallel > 1, ep=layout.expert_parallel)


@_rule(
    "nanotron.experts", "tp {tp} does not cut the experts of {model}, and their gradients are not summed over it", noticed="never"
)
def _experts(case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.is_moe and layout.tensor_parallel > 1, tp=layout.tensor_parallel, model=case.model.name)


@_rule("nanotron.heads", "num_attention_heads ({heads}) must be divisible by tp ({tp})")
def _heads(case: Case, layout: Layout) -> Values | None:
    heads, tp = attention_of(case).num_heads, layout.tensor_parallel
    return values_if(heads % tp, heads=heads, tp=tp)


@_rule("nanotron.key-value-heads", "num_key_value_heads ({heads}) must be >= tp ({tp})")
def _key_value_heads(case: Case, layout: Layout) -> Values | None:
    heads, tp = attention_of(case).num_key_value_heads, layout.tensor_parallel
    return values_if(heads < tp, heads=heads, tp=tp)


@_rule(
    "nanotron.key-value-heads-divide", "Number of key/value heads ({heads}) must be divisible by TP size ({tp}).", noticed="start"
)
def _key_value_heads_divide(case: Case, layout: Layout) -> Values | None:
    heads, tp = attention_of(case).num_key_value_heads, layout.tensor_parallel
    return values_if(heads >= tp and heads % tp, heads=heads, tp=tp)


@_rule("nanotron.width", "assert in_features % self.world_size == 0 ({width} over tp {tp})", noticed="start")
def _width(case: Case, layout: Layout) -> Values | None:
    block, tp = case.model.kinds[0].feed_forward, layout.tensor_parallel
    width = block.width if isinstance(block, Mlp) else block.shared_width
    odd = next((each for each in (width, case.model.hidden) if each % tp), None)
    return values_if(odd is not None, width=odd, tp=tp)


@_rule("nanotron.async", "async_communication is not supported for ALL_REDUCE mode", noticed="start")
def _async(case: Case, layout: Layout) -> Values | None:
    overlapped = layout.overlap.tensor and layout.tensor_parallel > 1 and not layout.sequence_parallel
    return values_if(overlapped and is_qwen(case, layout))


@_rule(
    "nanotron.sequence", "Sequence length {sequence} must be divisible by {parts} when using llama3 ring attention", noticed="step"
)
def _sequence(case: Case, layout: Layout) -> Values | None:
    parts = 2 * layout.context_parallel
    sequence = case.batch.sequence_tokens
    return values_if(layout.context_parallel > 1 and sequence % parts, sequence=sequence, parts=parts)


@_rule(
    "nanotron.sequence-parallel",
    "Expected the {sequence} tokens of a rank to be divisible by tp ({tp}) under REDUCE_SCATTER",
    noticed="step",
)
def _sequence_parallel(case: Case, layout: Layout) -> Values | None:
    tokens, tp = case.batch.sequence_tokens * layout.microbatch_sequences // layout.context_parallel, layout.tensor_parallel
    return values_if(tokens % tp, sequence=tokens, tp=tp)


@_rule("nanotron.context-without-ddp", "Context parallel size > 1 is not supported yet without DDP", noticed="step")
def _context_without_ddp(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.context_parallel > 1 and not _is_ddp(layout))


@_rule(
    "nanotron.microbatches",
    "Number of microbatches ({microbatches}) must be at least PP_SIZE-1={warmup} when using the "
    "OneForwardOneBackwardPipelineEngine",
    noticed="step",
)
def _microbatches(case: Case, layout: Layout) -> Values | None:
    warmup = layout.pipeline_parallel - 1
    broken = layout.schedule == "1f1b" and layout.num_microbatches < warmup
    return values_if(broken, microbatches=layout.num_microbatches, warmup=warmup)


@_rule("nanotron.blocks", "stages {stages} of {pp} get no block: by their cost, all blocks are placed before", noticed="start")
def _blocks(case: Case, layout: Layout) -> Values | None:
    empty = [stage for stage, (blocks, _) in enumerate(blocks_by_stage(case, layout)) if not blocks]
    return values_if(empty, stages=", ".join(map(str, empty)), pp=layout.pipeline_parallel)


@_rule(
    "nanotron.parameters",
    "Can't use DDP because model in PP={stage} has no gradient. Consider increasing the number of layers of your model, or put a "
    "smaller PP size.",
    noticed="start",
)
def _parameters(case: Case, layout: Layout) -> Values | None:
    bare = [stage for stage, (blocks, able) in enumerate(blocks_by_stage(case, layout)) if blocks and not able]
    return values_if(bare and _is_ddp(layout), stage=bare[0] if bare else 0)


def _is_ddp(layout: Layout) -> bool:
    """Whether the model is wrapped in DistributedDataParallel (``DistributedTrainer._init_model``, gradients kept in FP32)."""
    return layout.data_parallel > 1 or (layout.context_parallel > 1 and layout.zero_stage == 0)


def blocks_by_stage(case: Case, layout: Layout) -> list[tuple[int, int]]:
    """Blocks of each stage, and how many of them have parameters.

    A block goes to the present rank, which ends with the block whose cumulative cost passes its share of the whole
    (``models/base.py: build_model``). Costs: layers and output layer; embedding, norm, cast and loss cost nothing, and the
    last two have no parameters.
    """
    model, stages = case.model, layout.pipeline_parallel
    attention, block = attention_of(case), model.kinds[0].feed_forward
    width = block.width if isinstance(block, Mlp) else block.expert_width  # intermediate_size
    head_dim = model.hidden // attention.num_heads
    layer = 4 * attention.num_heads * head_dim * model.hidden + 3 * width * model.hidden
    costs = [0, *[layer] * model.num_layers, 0, model.vocabulary * model.hidden]
    able = len(costs)
    costs += [0] if is_qwen(case, layout) else [0, 0]
    total, passed, rank = sum(costs), 0, 0
    found = [[0, 0] for _ in range(stages)]
    for index, cost in enumerate(costs):
        passed += cost
        found[rank][0] += 1
        found[rank][1] += index < able
        if passed * stages > total * (rank + 1):
            rank += 1
    return [(blocks, parameters) for blocks, parameters in found]


@_rule("nanotron.layers", "pp {pp} exceeds the {layers} layers", noticed="start")
def _layers(case: Case, layout: Layout) -> Values | None:
    layers = case.model.num_layers
    return values_if(layers < layout.pipeline_parallel, pp=layout.pipeline_parallel, layers=layers)
