"""What Megatron-LM refuses, in its own words: each rule once, with the moment at which the framework notices.

Rules of ``parse`` are found by its argument checks, of ``start`` when groups and model are built, of ``step`` in the
first step, and ``never`` by nobody but us. Words are those of core 0.16, shortened only at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Selective
from meshwright.domain.model import Mlp
from meshwright.frameworks.base import Limit, Noticed, Values
from meshwright.frameworks.megatron.layout_arguments import (
    CONTEXT_TYPES,
    MOMENTS,
    OPTIMIZERS,
    PRECISIONS,
    hybrid_inner,
)
from meshwright.frameworks.megatron.model_arguments import inexpressible
from meshwright.frameworks.megatron.pipeline import split_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Attention

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What selective recomputation can name."""
_FOREIGN = {"ascend": "mindspeed-llm", "cpu": "nothing that trains there"}
"""Families of devices that Megatron-LM does not run on, and what does."""
_RULES: list[Limit] = []


def _rule(
    id: str, words: str, *, noticed: Noticed = "parse"  # noqa: A002
) -> Callable[[Callable[[Case, Layout], Values | None]], Callable[[Case, Layout], Values | None]]:
    """A decorator that adds a rule; the function gives the values of the message where the rule is broken."""

    def add(broken: Callable[[Case, Layout], Values | None]) -> Callable[[Case, Layout], Values | None]:
        _RULES.append(Limit(id=f"megatron.{id}", words=words, noticed=noticed, broken=broken))
        return broken

    return add


def _if(broken: object, **values: object) -> Values | None:
    """The values where the condition holds."""
    return values if broken else None


def _attention(case: Case) -> Attention:
    """Attention of the first layer; all layers are alike but for the window."""
    return case.model.kinds[0].attention


# What Megatron-LM has no words for, because no argument leads there.


@_rule("model", "Megatron-LM cannot express {features}", noticed="never")
def _model(case: Case, layout: Layout) -> Values | None:
    features = inexpressible(case.model)
    return _if(features, features="; nor ".join(features))


@_rule("task", "Megatron-LM trains all weights: for LoRA use bridge (Megatron-Bridge)", noticed="never")
def _task(case: Case, layout: Layout) -> Values | None:
    return _if(case.training.task == "lora")


@_rule("device", "Megatron-LM does not run on {device}; use {instead}", noticed="never")
def _device(case: Case, layout: Layout) -> Values | None:
    device = case.cluster.device
    return _if(device.family in _FOREIGN, device=device.name, instead=_FOREIGN.get(device.family))


@_rule("precision", "Megatron-LM has no precision {precision}; it has {known}", noticed="never")
def _precision(case: Case, layout: Layout) -> Values | None:
    name = case.training.precision.name
    return _if(name not in PRECISIONS, precision=name, known=", ".join(PRECISIONS))


@_rule("optimizer", "Megatron-LM has no optimizer {optimizer}; it has {known}", noticed="never")
def _optimizer(case: Case, layout: Layout) -> Values | None:
    name = case.training.optimizer.name
    return _if(name not in OPTIMIZERS, optimizer=name, known=", ".join(OPTIMIZERS))


@_rule("schedule", "Megatron-LM has the schedules 1f1b and interleaved (vp > 1), not {schedule}", noticed="never")
def _schedule(case: Case, layout: Layout) -> Values | None:
    return _if(layout.schedule not in {"1f1b", "interleaved"}, schedule=layout.schedule)


@_rule("shards", "Megatron-LM cannot split state over {optimizer}, gradients over {gradient} and parameters over "
       "{parameter} of {ranks} ranks: one group size, and from parameters on the optimizer over all ranks",
       noticed="never")  # fmt: skip
def _shards(case: Case, layout: Layout) -> Values | None:
    ranks = layout.data_parallel * layout.context_parallel
    sizes = (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    inner = max(sizes[1:])
    right = {
        0: True, 1: True, 2: sizes[0] == inner,
        3: sizes[1] == sizes[2] and sizes[0] in {inner, ranks},
    }[layout.zero_stage]  # fmt: skip
    return _if(
        not right or any(ranks % size for size in sizes), optimizer=sizes[0], gradient=sizes[1], parameter=sizes[2],
        ranks=ranks,
    )  # fmt: skip


@_rule("microbatches", "{microbatches} micro-batches of {size} on {dp} ranks are no global batch of {batch}",
       noticed="never")  # fmt: skip
def _microbatches(case: Case, layout: Layout) -> Values | None:
    batch = case.batch.global_batch_sequences
    product = layout.num_microbatches * layout.microbatch_sequences * layout.data_parallel
    whole = batch % (layout.microbatch_sequences * layout.data_parallel) == 0
    return _if(
        whole and product != batch, microbatches=layout.num_microbatches, size=layout.microbatch_sequences,
        dp=layout.data_parallel, batch=batch,
    )  # fmt: skip


# Grid and shapes.


@_rule("experts", "num_experts must be non None to use expert model parallelism")
def _experts(case: Case, layout: Layout) -> Values | None:
    return _if(layout.expert_parallel > 1 and not case.model.is_moe)


@_rule("expert-count", "Number of experts should be a multiple of expert model parallel_size.")
def _expert_count(case: Case, layout: Layout) -> Values | None:
    experts = case.model.experts
    return _if(experts and experts.num_experts % layout.expert_parallel)


@_rule("expert-grid", "world_size ({world}) is not divisible by expert_tensor_model_pipeline_parallel size ({size})",
       noticed="start")  # fmt: skip
def _expert_grid(case: Case, layout: Layout) -> Values | None:
    size = layout.expert_tensor_parallel * layout.expert_parallel * layout.pipeline_parallel
    return _if(case.model.is_moe and layout.world % size, world=layout.world, size=size)


@_rule("heads", "num_attention_heads ({heads}) must be a multiple of tensor_model_parallel_size ({tp}).")
def _heads(case: Case, layout: Layout) -> Values | None:
    heads = _attention(case).num_heads
    return _if(heads % layout.tensor_parallel, heads=heads, tp=layout.tensor_parallel)


@_rule("query-groups", "num_query_groups ({groups}) must be a multiple or divisor of tensor_model_parallel_size ({tp}).")
def _query_groups(case: Case, layout: Layout) -> Values | None:
    groups, tp = _attention(case).num_key_value_heads, layout.tensor_parallel
    return _if(not _attention(case).latent and groups % tp and tp % groups, groups=groups, tp=tp)


@_rule("width", "{width} is not divisible by {ranks}", noticed="start")
def _width(case: Case, layout: Layout) -> Values | None:
    cuts = []
    for kind in case.model.kinds:
        block = kind.feed_forward
        if isinstance(block, Mlp):
            cuts.append((block.width, layout.tensor_parallel))
        else:
            cuts.append((block.expert_width, layout.expert_tensor_parallel))
            cuts.append((block.shared_width, layout.tensor_parallel))
    wrong = next(((width, ranks) for width, ranks in cuts if width % ranks), None)
    return None if wrong is None else {"width": wrong[0], "ranks": wrong[1]}


@_rule("expert-bias", "Bias in Moe is only supported when ETP==1")
def _expert_bias(case: Case, layout: Layout) -> Values | None:
    experts = case.model.experts
    return _if(experts and experts.expert_bias and layout.expert_tensor_parallel > 1)


@_rule("batch", "global batch size ({batch}) is not divisible by micro batch size ({size}) times data parallel size "
       "({dp})")  # fmt: skip
def _batch(case: Case, layout: Layout) -> Values | None:
    batch, size, dp = case.batch.global_batch_sequences, layout.microbatch_sequences, layout.data_parallel
    return _if(batch % (size * dp), batch=batch, size=size, dp=dp)


@_rule("sequence", "seq-length should be a multiple of 2 * context-parallel-size if context-parallel-size > 1.")
def _sequence(case: Case, layout: Layout) -> Values | None:
    return _if(layout.context_parallel > 1 and case.batch.sequence_tokens % (2 * layout.context_parallel))


@_rule("sequence-parallel", "First dimension of the tensor should be divisible by tensor parallel size", noticed="step")
def _sequence_parallel(case: Case, layout: Layout) -> Values | None:
    local = case.batch.sequence_tokens // layout.context_parallel
    return _if(layout.sequence_parallel and local % layout.tensor_parallel)


@_rule("positions", "max_position_embeddings ({rows}) must be greater than or equal to seq_length ({sequence}).")
def _positions(case: Case, layout: Layout) -> Values | None:
    rows, sequence = case.model.position_table, case.batch.sequence_tokens
    return _if(0 < rows < sequence, rows=rows, sequence=sequence)


@_rule("moe-sequence-parallel", "During training, performance may degrade if MoE and tensor parallelismare enabled "
       "without also enabling sequence parallelism.", noticed="step")  # fmt: skip
def _moe_sequence_parallel(case: Case, layout: Layout) -> Values | None:
    return _if(case.model.is_moe and layout.tensor_parallel > 1 and not layout.sequence_parallel)


@_rule("grouped-gemm", "Unsupported compute capability for GroupedGEMM kernels.")
def _grouped_gemm(case: Case, layout: Layout) -> Values | None:
    return _if(case.model.is_moe and case.cluster.device.family == "volta")


# Context parallelism: Transformer Engine decides in the first step.


@_rule("context-kind", "{kind} context parallelism is unknown to Megatron-LM", noticed="never")
def _context_kind(case: Case, layout: Layout) -> Values | None:
    return _if(layout.context_kind not in CONTEXT_TYPES, kind=layout.context_kind)


@_rule("context-heads", "Context parallelism over heads needs query and key-value heads per tensor rank ({heads}, "
       "{groups}) that {ranks} divides", noticed="step")  # fmt: skip
def _context_heads(case: Case, layout: Layout) -> Values | None:
    attention, tp, kind = _attention(case), layout.tensor_parallel, layout.context_kind
    if layout.context_parallel == 1 or kind not in {"ulysses", "hybrid"}:
        return None
    groups = attention.num_heads if attention.latent else attention.num_key_value_heads
    ranks = layout.context_parallel if kind == "ulysses" else hybrid_inner(case, layout)
    heads, groups = attention.num_heads // tp, max(1, groups // tp)
    return _if(heads % ranks or groups % ranks, heads=heads, groups=groups, ranks=ranks)


@_rule("context-hybrid", "hybrid context parallelism needs an inner group of 2 ranks or more that is not all {cp}",
       noticed="step")  # fmt: skip
def _context_hybrid(case: Case, layout: Layout) -> Values | None:
    cp = layout.context_parallel
    hybrid = cp > 1 and layout.context_kind == "hybrid"
    return _if(hybrid and hybrid_inner(case, layout) in {1, cp}, cp=cp)


@_rule("context-window", "Context parallelism with windows or sinks needs context={kinds}, not {kind}", noticed="step")
def _context_window(case: Case, layout: Layout) -> Values | None:
    windows = any(kind.attention.window_tokens for kind in case.model.kinds)
    sinks = _attention(case).sinks
    able = ("ulysses",) if sinks else ("ulysses", "all-gather")
    wrong = layout.context_parallel > 1 and (windows or sinks) and layout.context_kind not in able
    return _if(wrong, kinds=" or ".join(able), kind=layout.context_kind)


# Pipeline.


@_rule("stage-layers", "Number of decoder layers {placed} must match num_layers {layers}, on {chunks} x {stages} places")
def _stage_layers(case: Case, layout: Layout) -> Values | None:
    split = split_of(layout, case.model.num_layers)
    shape = (len(split), {len(chunk) for chunk in split})
    placed = sum(map(sum, split))
    return _if(
        placed != case.model.num_layers or shape != (layout.virtual_stages, {layout.pipeline_parallel}),
        placed=placed, layers=case.model.num_layers, chunks=layout.virtual_stages, stages=layout.pipeline_parallel,
    )  # fmt: skip


@_rule("interleaved", "When interleaved schedule is used, pipeline-model-parallel size should be greater than 1")
def _interleaved(case: Case, layout: Layout) -> Values | None:
    return _if(layout.virtual_stages > 1 and layout.pipeline_parallel == 1)


@_rule("interleaved-p2p", "When interleaved schedule is used and p2p communication overlap is disabled, "
       "pipeline-model-parallel size should be greater than 2")  # fmt: skip
def _interleaved_p2p(case: Case, layout: Layout) -> Values | None:
    return _if(layout.virtual_stages > 1 and layout.pipeline_parallel == 2 and not layout.overlap.point_to_point)


@_rule("interleaved-batch", "The remainder of M (the total micro-batches) divided by N (number of contiguous "
       "micro-batches in a virtual pipeline stage) should be 0, or larger than or equal to the pipeline-parallel "
       "size, but it is {rest} (M={microbatches}, N={stages}).", noticed="step")  # fmt: skip
def _interleaved_batch(case: Case, layout: Layout) -> Values | None:
    rest = layout.num_microbatches % layout.pipeline_parallel
    return _if(
        layout.virtual_stages > 1 and rest, rest=rest, microbatches=layout.num_microbatches,
        stages=layout.pipeline_parallel,
    )  # fmt: skip


# Recomputation.


@_rule("recompute-modules", "Invalid choices for recompute_modules: {wrong}. Allowed modules are: {known}")
def _recompute_modules(case: Case, layout: Layout) -> Values | None:
    named = layout.recompute.modules if isinstance(layout.recompute, Selective) else MODULES
    wrong = [module for module in named if module not in MODULES] or ([] if named else ["(none)"])
    return _if(wrong, wrong=", ".join(wrong), known=", ".join(MODULES))


@_rule("recompute-mla", "mla_up_proj in recompute_modules is only supported with multi_latent_attention.")
def _recompute_mla(case: Case, layout: Layout) -> Values | None:
    return _if("mla_up_proj" in _modules(layout) and not _attention(case).latent)


@_rule("recompute-experts", "moe_act in recompute_modules is only supported with moe_grouped_gemm.")
def _recompute_experts(case: Case, layout: Layout) -> Values | None:
    return _if("moe_act" in _modules(layout) and not case.model.is_moe)


@_rule("recompute-delayed", "Delayed scaling does not support moe_act and layernorm recompute for fp8.")
def _recompute_delayed(case: Case, layout: Layout) -> Values | None:
    return _if(case.training.precision.name == "fp8-delayed" and {"moe_act", "layernorm"} & set(_modules(layout)))


def _modules(layout: Layout) -> tuple[str, ...]:
    """Modules of selective recomputation; none for any other kind."""
    return layout.recompute.modules if isinstance(layout.recompute, Selective) else ()


# Sharding, overlap, optimizer.


@_rule("fsdp-pipeline", "[Megatron-FSDP] Data Parallel ranks in the mesh do not match the ranks in the DP group "
       "(pipeline parallelism has no place in its mesh)", noticed="start")  # fmt: skip
def _fsdp_pipeline(case: Case, layout: Layout) -> Values | None:
    return _if(layout.zero_stage >= 2 and layout.pipeline_parallel > 1)


@_rule("expert-shards", "Expert data parallel size should be divisible by partial DistOpt shard factor "
       "({replicas} % {instances})", noticed="start")  # fmt: skip
def _expert_shards(case: Case, layout: Layout) -> Values | None:
    ranks = layout.data_parallel * layout.context_parallel
    inner = layout.gradient_shards if layout.zero_stage >= 2 else layout.optimizer_shards
    instances, replicas = ranks // inner, layout.expert_data_parallel
    sharded = case.model.is_moe and layout.zero_stage > 0
    return _if(sharded and replicas % instances, replicas=replicas, instances=instances)


@_rule("parameter-overlap", "Must use --overlap-param-gather with --overlap-grad-reduce")
def _parameter_overlap(case: Case, layout: Layout) -> Values | None:
    several = layout.zero_stage > 0 and layout.data_parallel * layout.context_parallel > 1
    return _if(several and layout.overlap.parameter_gather and not layout.overlap.gradient_reduce)


@_rule("tensor-overlap", "Tensor parallel communication/GEMM overlap can happen only when sequence parallelism is "
       "enabled")  # fmt: skip
def _tensor_overlap(case: Case, layout: Layout) -> Values | None:
    return _if(layout.overlap.tensor and layout.tensor_parallel > 1 and not layout.sequence_parallel)


@_rule("expert-overlap-recompute", "disable full recomputation when enabling overlap_moe_expert_parallel_comm")
def _expert_overlap_recompute(case: Case, layout: Layout) -> Values | None:
    whole = isinstance(layout.recompute, Full) and layout.recompute.layers != 0
    return _if(_expert_overlap(layout) and (whole or "moe" in _modules(layout)))


@_rule("expert-overlap-pipeline", "If enabling EP A2A overlap, virtual_pipeline_model_parallel_size must be specified "
       "when pipeline_model_parallel_size > 1")  # fmt: skip
def _expert_overlap_pipeline(case: Case, layout: Layout) -> Values | None:
    return _if(_expert_overlap(layout) and layout.pipeline_parallel > 1 and layout.virtual_stages == 1)


@_rule("expert-overlap-mtp", "MTP layernum only supports 1, with pipeline parallelism, when enabling "
       "overlap_moe_expert_parallel_comm.")  # fmt: skip
def _expert_overlap_mtp(case: Case, layout: Layout) -> Values | None:
    extra = case.model.num_mtp_layers
    return _if(_expert_overlap(layout) and (extra > 1 or (extra and layout.pipeline_parallel == 1)))


def _expert_overlap(layout: Layout) -> bool:
    """Whether the expert all-to-all runs beside compute."""
    return layout.overlap.expert and layout.expert_parallel > 1


@_rule("precision-aware", "--use-precision-aware-optimizer only supported with distributed optimizer", noticed="start")
def _precision_aware(case: Case, layout: Layout) -> Values | None:
    training = case.training
    needed = "optimizer" in layout.offload or training.precision.master_bytes == 2
    return _if((needed or MOMENTS.get(training.optimizer.name)) and layout.zero_stage == 0)


@_rule("offload-adam", "--use-precision-aware-optimizer only supported with adam", noticed="start")
def _offload_adam(case: Case, layout: Layout) -> Values | None:
    return _if(layout.offload and case.training.optimizer.name not in MOMENTS)


@_rule("muon", "Muon optimizer does not support distributed optimizer, overlap grad reduce or overlap param gather "
       "for now.")  # fmt: skip
def _muon(case: Case, layout: Layout) -> Values | None:
    overlaps = layout.overlap.gradient_reduce and layout.data_parallel * layout.context_parallel > 1
    return _if(case.training.optimizer.name == "muon" and (layout.zero_stage > 0 or overlaps))


LIMITS: tuple[Limit, ...] = tuple(_RULES)
"""Every rule, in the order in which they are reported."""
