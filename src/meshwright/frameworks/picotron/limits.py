"""What picotron refuses of a case and a layout, in its own words (commit 59714b1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import NoRecompute
from meshwright.domain.model import Mlp
from meshwright.frameworks.rules import Rule, limits, words_if

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned


def _model(plan: Planned) -> Values | None:
    model, kinds, attention = plan.case.model, plan.case.model.kinds, plan.attention
    reasons = [
        (model.is_moe, "it has experts"),
        (len(kinds) > 1, "its layers differ"),
        (attention.latent is not None, "its attention is latent"),
        (attention.window_tokens is not None, "its attention has a window"),
        (model.position != "rope", f"its positions are {model.position}"),
        (attention.query_bias or attention.key_value_bias or attention.output_bias, "its projections have biases"),
        (attention.query_key_norm != "none", "it normalises queries and keys"),
        (attention.head_dim * attention.num_heads != model.hidden, "its heads together are not as wide as its hidden size"),
        (model.tied_embeddings, "its embeddings are tied"),
        (isinstance(kinds[0].feed_forward, Mlp) and not kinds[0].feed_forward.gated, "its MLP is not gated"),
        (model.norm != "rms", f"its norm is {model.norm}"),
    ]
    return words_if("reason", reasons, between="; ")


def _knobs(plan: Planned) -> Values | None:
    layout, (even, rest) = plan.layout, divmod(plan.layers, plan.pp)
    own_split = (tuple(even + (stage < rest) for stage in range(plan.pp)),)  # PipelineParallel.distribute_layers
    has = [
        (plan.sp, "sequence parallelism"),
        (plan.vp > 1, "virtual stages"),
        (plan.ep * plan.etp > 1, "expert parallelism"),
        (plan.zero > 0, "ZeRO"),
        (not isinstance(layout.recompute, NoRecompute), "recomputation"),
        (layout.offload, "offload"),
        (plan.cp > 1 and plan.kind != "ring", f"{plan.kind} context parallelism"),
        (plan.schedule not in {"1f1b", "gpipe"}, f"the schedule {plan.schedule}"),
        (layout.stage_layers is not None and layout.stage_layers != own_split, "layers by stage"),
    ]
    return words_if("knobs", has)


def _width(plan: Planned) -> bool:
    block = plan.case.model.feed_forward
    return isinstance(block, Mlp) and block.width % plan.tp > 0


LIMITS = limits("picotron", (
    Rule("model", "picotron trains Llama only, which {model} is not: {reason}", _model, "never", "model"),
    Rule("task", "picotron pretrains only, not {task}", lambda plan: plan.task != "pretrain", "never", "training"),
    Rule("precision", "picotron computes in bf16 only, not {precision}", lambda plan: plan.precision != "bf16", "never",
         "training"),
    Rule("gradients", "picotron sums gradients in FP32 alone, not in {gradients}", lambda plan: plan.gradients != "fp32", "never",
         "training"),
    Rule("optimizer", "picotron has AdamW only, not {optimizer}", lambda plan: plan.optimizer != "adamw", "never", "training"),
    Rule("knobs", "picotron has no key for {knobs}", _knobs, "never"),
    Rule("layers", "Some ranks has no layers. There are too many ranks and not enough layers to distribute.",
         lambda plan: plan.layers < plan.pp, "start"),
    Rule("sequence", "seq_length must be divisible by cp_size for Context Parallelism", lambda plan: plan.sequence % plan.cp),
    Rule("heads", "num_attention_heads should be divisible by tp world size", lambda plan: plan.heads % plan.tp, "start"),
    Rule("key-value-heads", "num_key_value_heads should be divisible by  tp world size", lambda plan: plan.groups % plan.tp,
         "start"),
    Rule("width", "Hidden dimension must be divisible by the tensor parallel world size", _width, "start"),
    Rule("vocabulary", "{vocabulary} is not divisible by {tp}", lambda plan: plan.vocabulary % plan.tp, "start"),
))
