"""What Megatron-DeepSpeed refuses of a case and a layout, in its own words (commit 4efb479d)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Selective
from meshwright.domain.model import MixtureOfExperts, Mlp
from meshwright.frameworks import divisibility
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned
    from meshwright.frameworks.rules import Words

_WORDS: Words = {
    "heads": ("{heads} is not divisible by {tp}", "start"),
    "width": ("{width} is not divisible by {tp}", "start"),
    "batch": ("global batch size ({batch}) is not divisible by micro batch size ({mb}) times data parallel size ({dp}) "
              "times {gas} micro-batches", "start"),
}


def _model(plan: Planned) -> Values | None:
    model, attention = plan.case.model, plan.attention
    blocks = [kind.feed_forward for kind in model.kinds]
    dense = {block for block in blocks if isinstance(block, Mlp)}
    mixtures = {block for block in blocks if isinstance(block, MixtureOfExperts)}
    biases = {attention.query_bias, attention.key_value_bias, attention.output_bias, *(block.bias for block in dense)}
    absent = [
        (attention.latent is not None, "latent attention"),
        (any(each.window_tokens for each in model.attentions), "windows"),
        (attention.sinks, "attention sinks"),
        (attention.query_key_norm != "none", "norms of queries and keys"),
        (any(kind.parallel_block for kind in model.kinds), "attention and feed-forward in parallel"),
        (any(kind.norms != 2 for kind in model.kinds), "more than two norms in a layer"),
        (len(biases) > 1, "biases in some of its linear layers"),
        (model.num_mtp_layers > 0, "multi-token prediction"),
        (any(block.shared_width for block in mixtures), "shared experts"),
        (dense and mixtures, "dense layers beside expert layers"),
        (len(dense) > 1 or len(mixtures) > 1, "layers of several shapes"),
        (any(block.num_groups > 1 or block.router_bias or block.correction_bias or block.expert_bias for block in mixtures),
         "expert groups, biases of router or experts"),
        (model.embedding_width not in {None, model.hidden}, "embedding narrower than the model"),
        (model.norm not in {"rms", "layer"}, "norm without bias"),
        (model.embedding_norm, "norm of embeddings"),
    ]
    return words_if("reasons", absent, between="; no ")


def _recompute(plan: Planned) -> Values | None:
    recompute = plan.layout.recompute
    if isinstance(recompute, Selective):
        return values_if(recompute.modules != ("core_attn",), what=f"not {', '.join(recompute.modules)}")
    some = isinstance(recompute, Full) and recompute.layers is not None
    return values_if(some, what="the pipeline engine does not apply the block method")


def _knobs(plan: Planned) -> Values | None:
    has = [
        (plan.layout.stage_layers is not None, "layers by stage"),
        (set(plan.layout.offload) - {"optimizer"}, "offload of anything but the optimizer"),
    ]
    return words_if("knobs", has)


_RULES = (
    Rule("model", "Megatron-DeepSpeed cannot build {model}: it has no {reasons}", _model, "never", "model"),
    Rule("precision", "Megatron-DeepSpeed computes in bf16 or fp16 here, not in {precision}",
         lambda plan: plan.precision not in {"bf16", "fp16"}, "never", "training"),
    Rule("optimizer", "--optimizer takes adam or sgd, not {optimizer}", lambda plan: plan.optimizer not in {"adamw", "sgd"},
         path="training"),
    Rule("key-value-heads", "{heads} is not divisible by {tp}", divisibility.key_value_heads, "start"),
    Rule("zero-pipeline", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
         lambda plan: plan.zero >= 2 and plan.pp > 1, "start"),
    Rule("two-sequence-parallels", "sequence_parallel_size > 1 enables DeepSpeed's sequence parallel, which is not compatible with "
         "Megatron-LM's sequence parallel. Please remove \"--sequence_parallel\" argument", lambda plan: plan.cp > 1 and plan.sp,
         "start"),
    Rule("sequence-grid", "DeepSpeed's sequence parallel does not work with tensor parallel or pipeline parallel",
         lambda plan: plan.cp > 1 and plan.tp * plan.pp > 1, "start"),
    Rule("expert-pipeline", "Pipe and/or Grad partitioning are not supported for MoE model",
         lambda plan: plan.moe and plan.tp > 1 and plan.pp > 1, "start"),
    Rule("expert-data", "{ep} expert-parallel ranks are not a divisor of the {ranks} data-parallel ones",
         lambda plan: plan.ranks % plan.ep, "start"),
    Rule("expert-tensor", "experts are cut over all tensor ranks or none: {etp} of {tp}", lambda plan: plan.etp not in {1, plan.tp},
         "never"),
    Rule("expert-stage-3", "Native DeepSpeed MoE is not supported with ZeRO Stage 3. Use AutoEP or choose ZeRO stage 1/2.",
         lambda plan: plan.moe and plan.zero == 3, "start"),
    Rule("recompute", "Megatron-DeepSpeed recomputes whole layers or the attention core: {what}", _recompute, "never"),
    Rule("knobs", "Megatron-DeepSpeed has no flag for {knobs}", _knobs, "never"),
    Rule("offload", "the optimizer is offloaded only where ZeRO shards it", lambda plan: plan.layout.offload and plan.zero == 0,
         "never"),
    Rule("offload-optimizer", "--cpu-optimizer is Adam: not {optimizer}",
         lambda plan: plan.layout.offload and plan.optimizer != "adamw", "start"),
)


def limits_of(features: Features) -> tuple[Limit, ...]:
    """Every rule."""
    own = limits("megatron-deepspeed", _RULES)
    return (*own, *arithmetic(features, skip=("key-value-heads",), words=_WORDS))
