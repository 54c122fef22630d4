"""What nanotron refuses of a case and a layout, in its own words (commit 2411b02, release 0.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.domain.model import MixtureOfExperts, Mlp
from meshwright.estimate.split import cost_split
from meshwright.frameworks.nanotron.writing import is_qwen
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned


def _model(plan: Planned) -> Values | None:
    model, kinds, attention = plan.case.model, plan.case.model.kinds, plan.attention
    block = kinds[0].feed_forward
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
    return words_if("reason", reasons, between="; ")


def _odd_mixture(block: MixtureOfExperts) -> bool:
    """Whether a mixture is none that ``Qwen2MoELayer`` builds: softmax router without bias or groups, a gate on what is shared."""
    shared = block.shared_width > 0 and not block.shared_gate
    return shared or block.router_bias or block.correction_bias or block.expert_bias or block.num_groups > 1


def _knobs(plan: Planned) -> Values | None:
    layout, split = plan.layout, cost_split(plan.case.model, plan.pp)
    has = [
        (plan.vp > 1, "virtual stages"),
        (plan.etp > 1, "expert tensor parallelism"),
        (plan.zero > 1, f"ZeRO-{plan.zero} (zero_stage {plan.zero} is ZeRO-1)"),
        (plan.zero == 1 and layout.optimizer_shards != plan.dp, "shard groups other than all data-parallel ranks"),
        (not isinstance(layout.recompute, NoRecompute) and layout.recompute != Full(), "recomputation of parts or of some layers"),
        (layout.offload, "offload"),
        (plan.cp > 1 and plan.kind not in {"ring", "all-gather"}, f"{plan.kind} context parallelism"),
        (plan.schedule not in {"1f1b", "gpipe"}, f"the schedule {plan.schedule}"),
        (layout.stage_layers is not None and layout.stage_layers != split, "layers by stage"),
    ]
    return words_if("knobs", has)


def _width(plan: Planned) -> Values | None:
    block = plan.case.model.feed_forward
    width = block.width if isinstance(block, Mlp) else block.shared_width
    odd = next((each for each in (width, plan.case.model.hidden) if each % plan.tp), None)
    return values_if(odd is not None, width=odd)


def _async(plan: Planned) -> bool:
    return plan.layout.overlap.tensor and plan.tp > 1 and not plan.sp and is_qwen(plan.case, plan.layout)


def _sequence(plan: Planned) -> Values | None:
    return values_if(plan.cp > 1 and plan.sequence % (2 * plan.cp), parts=2 * plan.cp)


def _sequence_parallel(plan: Planned) -> Values | None:
    tokens = plan.sequence * plan.mb // plan.cp
    return values_if(tokens % plan.tp, sequence=tokens)


def _microbatches(plan: Planned) -> Values | None:
    return values_if(plan.schedule == "1f1b" and plan.microbatches < plan.pp - 1, warmup=plan.pp - 1)


def _blocks(plan: Planned) -> Values | None:
    empty = [stage for stage, (blocks, _) in enumerate(blocks_by_stage(plan.case, plan.layout)) if not blocks]
    return values_if(empty, stages=", ".join(map(str, empty)))


def _parameters(plan: Planned) -> Values | None:
    bare = [stage for stage, (blocks, able) in enumerate(blocks_by_stage(plan.case, plan.layout)) if blocks and not able]
    return values_if(bare and _is_ddp(plan), stage=bare[0] if bare else 0)


def _is_ddp(plan: Planned) -> bool:
    """Whether the model is wrapped in DistributedDataParallel (``DistributedTrainer._init_model``, gradients kept in FP32)."""
    return plan.dp > 1 or (plan.cp > 1 and plan.zero == 0)


def blocks_by_stage(case: Case, layout: Layout) -> list[tuple[int, int]]:
    """Blocks of each stage, and how many of them have parameters.

    A block goes to the present rank, which ends with the block whose cumulative cost passes its share of the whole
    (``models/base.py: build_model``). Costs: layers and output layer; embedding, norm, cast and loss cost nothing, and the
    last two have no parameters.
    """
    model, stages, attention = case.model, layout.pipeline_parallel, case.model.attention
    block = model.feed_forward
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


LIMITS = limits("nanotron", (
    Rule("model", "nanotron trains Llama and Qwen2, which {model} is not: {reason}", _model, "never", "model"),
    Rule("task", "nanotron pretrains here, it does not run {task}", lambda plan: plan.task != "pretrain", "never", "training"),
    Rule("precision", "nanotron computes in bf16, not {precision}", lambda plan: plan.precision != "bf16", "never", "training"),
    Rule("optimizer", "Optimizer {optimizer} is not supported", lambda plan: plan.optimizer != "adamw", "start", "training"),
    Rule("knobs", "nanotron has no key for {knobs}", _knobs, "never"),
    Rule("expert-parallel", "expert_parallel_size {ep}: the ranks are arranged by it, but the world is TP*CP*DP*PP without it",
         lambda plan: plan.ep > 1, "start"),
    Rule("experts", "tp {tp} does not cut the experts of {model}, and their gradients are not summed over it",
         lambda plan: plan.moe and plan.tp > 1, "never"),
    Rule("heads", "num_attention_heads ({heads}) must be divisible by tp ({tp})", lambda plan: plan.heads % plan.tp),
    Rule("key-value-heads", "num_key_value_heads ({heads}) must be >= tp ({tp})",
         lambda plan: values_if(plan.groups < plan.tp, heads=plan.groups)),
    Rule("key-value-heads-divide", "Number of key/value heads ({heads}) must be divisible by TP size ({tp}).",
         lambda plan: values_if(plan.groups >= plan.tp and plan.groups % plan.tp, heads=plan.groups), "start"),
    Rule("width", "assert in_features % self.world_size == 0 ({width} over tp {tp})", _width, "start"),
    Rule("async", "async_communication is not supported for ALL_REDUCE mode", _async, "start"),
    Rule("sequence", "Sequence length {sequence} must be divisible by {parts} when using llama3 ring attention", _sequence, "step"),
    Rule("sequence-parallel", "Expected the {sequence} tokens of a rank to be divisible by tp ({tp}) under REDUCE_SCATTER",
         _sequence_parallel, "step"),
    Rule("context-without-ddp", "Context parallel size > 1 is not supported yet without DDP",
         lambda plan: plan.cp > 1 and not _is_ddp(plan), "step"),
    Rule("microbatches", "Number of microbatches ({microbatches}) must be at least PP_SIZE-1={warmup} when using the "
         "OneForwardOneBackwardPipelineEngine", _microbatches, "step"),
    Rule("blocks", "stages {stages} of {pp} get no block: by their cost, all blocks are placed before", _blocks, "start"),
    Rule("parameters", "Can't use DDP because model in PP={stage} has no gradient. Consider increasing the number of layers of "
         "your model, or put a smaller PP size.", _parameters, "start"),
    Rule("layers", "pp {pp} exceeds the {layers} layers", lambda plan: plan.layers < plan.pp, "start"),
))
