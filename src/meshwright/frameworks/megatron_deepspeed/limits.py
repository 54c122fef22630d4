"""What Megatron-DeepSpeed refuses of a case and a layout, in its own words (commit 4efb479d)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Selective
from meshwright.domain.model import MixtureOfExperts, Mlp
from meshwright.frameworks import divisibility
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.rules import attention_of, rule, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.rules import Words

_WORDS: Words = {
    "heads": ("{heads} is not divisible by {tp}", "start"),
    "width": ("{width} is not divisible by {tp}", "start"),
    "batch": ("global batch size ({batch}) is not divisible by micro batch size ({mb}) times data parallel size ({dp}) "
              "times {gas} micro-batches", "start"),
}
LIMITS: list[Limit] = []
_rule = partial(rule, LIMITS)


@_rule("megatron-deepspeed.model", "Megatron-DeepSpeed cannot build {model}: it has no {reasons}", noticed="never", path="model")
def _model(case: Case, layout: Layout) -> Values | None:
    model, attention = case.model, attention_of(case)
    blocks = [kind.feed_forward for kind in model.kinds]
    dense = {block for block in blocks if isinstance(block, Mlp)}
    mixtures = {block for block in blocks if isinstance(block, MixtureOfExperts)}
    biases = {attention.query_bias, attention.key_value_bias, attention.output_bias, *(block.bias for block in dense)}
    absent = {
        "latent attention": attention.latent is not None,
        "windows": any(kind.attention.window_tokens for kind in model.kinds),
        "attention sinks": attention.sinks,
        "norms of queries and keys": attention.query_key_norm != "none",
        "attention and feed-forward in parallel": any(kind.parallel_block for kind in model.kinds),
        "more than two norms in a layer": any(kind.norms != 2 for kind in model.kinds),
        "biases in some of its linear layers": len(biases) > 1,
        "multi-token prediction": model.num_mtp_layers > 0,
        "shared experts": any(block.shared_width for block in mixtures),
        "dense layers beside expert layers": bool(dense) and bool(mixtures),
        "layers of several shapes": len(dense) > 1 or len(mixtures) > 1,
        "expert groups, biases of router or experts": any(
            block.num_groups > 1 or block.router_bias or block.correction_bias or block.expert_bias for block in mixtures
        ),
        "an embedding narrower than the model": model.embedding_width not in {None, model.hidden},
        "a norm without bias": model.norm not in {"rms", "layer"},
        "a norm of embeddings": model.embedding_norm,
    }
    found = [name for name, present in absent.items() if present]
    return values_if(found, model=model.name, reasons="; no ".join(found))


@_rule("megatron-deepspeed.precision", "Megatron-DeepSpeed computes in bf16 or fp16 here, not in {precision}", noticed="never",
       path="training")
def _precision(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.name not in {"bf16", "fp16"}, precision=case.training.precision.name)


@_rule("megatron-deepspeed.optimizer", "--optimizer takes adam or sgd, not {optimizer}", path="training")
def _optimizer(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.optimizer.name not in {"adamw", "sgd"}, optimizer=case.training.optimizer.name)


_rule("megatron-deepspeed.key-value-heads", "{heads} is not divisible by {tp}", noticed="start")(divisibility.key_value_heads)


@_rule("megatron-deepspeed.zero-pipeline", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism", noticed="start")
def _zero_pipeline(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.zero_stage >= 2 and layout.pipeline_parallel > 1)


@_rule("megatron-deepspeed.two-sequence-parallels", "sequence_parallel_size > 1 enables DeepSpeed's sequence parallel, "
                                                    "which is not "
       "compatible with Megatron-LM's sequence parallel. Please remove \"--sequence_parallel\" argument",
       noticed="start")
def _two_sequence_parallels(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.context_parallel > 1 and layout.sequence_parallel)


@_rule(
    "megatron-deepspeed.sequence-grid",
    "DeepSpeed's sequence parallel does not work with tensor parallel or pipeline parallel",
    noticed="start",
)
def _sequence_grid(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.context_parallel > 1 and layout.tensor_parallel * layout.pipeline_parallel > 1)


@_rule("megatron-deepspeed.expert-pipeline", "Pipe and/or Grad partitioning are not supported for MoE model", noticed="start")
def _expert_pipeline(case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.is_moe and layout.tensor_parallel > 1 and layout.pipeline_parallel > 1)


@_rule(
    "megatron-deepspeed.expert-data",
    "{ep} expert-parallel ranks are not a divisor of the {ranks} data-parallel ones",
    noticed="start",
)
def _expert_data(case: Case, layout: Layout) -> Values | None:
    ranks = layout.data_parallel * layout.context_parallel
    return values_if(layout.expert_parallel > 1 and ranks % layout.expert_parallel, ep=layout.expert_parallel, ranks=ranks)


@_rule("megatron-deepspeed.expert-tensor", "experts are cut over all tensor ranks or none: {etp} of {tp}", noticed="never")
def _expert_tensor(case: Case, layout: Layout) -> Values | None:
    etp, tp = layout.expert_tensor_parallel, layout.tensor_parallel
    return values_if(etp not in {1, tp}, etp=etp, tp=tp)


@_rule("megatron-deepspeed.expert-stage-3", "Native DeepSpeed MoE is not supported with ZeRO Stage 3. Use AutoEP or "
                                            "choose ZeRO stage 1/2.",
       noticed="start")
def _expert_stage_3(case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.is_moe and layout.zero_stage == 3)


@_rule("megatron-deepspeed.recompute", "Megatron-DeepSpeed recomputes whole layers or the attention core: {what}", noticed="never")
def _recompute(case: Case, layout: Layout) -> Values | None:
    recompute = layout.recompute
    if isinstance(recompute, Selective):
        return values_if(recompute.modules != ("core_attn",), what=f"not {', '.join(recompute.modules)}")
    some = isinstance(recompute, Full) and recompute.layers is not None
    return values_if(some, what="the pipeline engine does not apply the block method")


@_rule("megatron-deepspeed.knobs", "Megatron-DeepSpeed has no flag for {knobs}", noticed="never")
def _knobs(case: Case, layout: Layout) -> Values | None:
    has = [
        (layout.stage_layers is not None, "layers by stage"),
        (set(layout.offload) - {"optimizer"}, "offload of anything but the optimizer"),
    ]
    return words_if("knobs", has)


@_rule("megatron-deepspeed.offload", "the optimizer is offloaded only where ZeRO shards it", noticed="never")
def _offload(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.offload and layout.zero_stage == 0)


@_rule("megatron-deepspeed.offload-optimizer", "--cpu-optimizer is Adam: not {optimizer}", noticed="start")
def _offload_optimizer(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.offload and case.training.optimizer.name != "adamw", optimizer=case.training.optimizer.name)


def limits_of(features: Features) -> tuple[Limit, ...]:
    """Every rule."""
    return (*LIMITS, *arithmetic(features, skip=("key-value-heads",), words=_WORDS))
