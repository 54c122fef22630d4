"""What Megatron-LM refuses of models, batches and grids, in its own words.

Rules of ``parse`` are found by its argument checks, of ``start`` when groups and model are built, of ``step`` in the
first step, and ``never`` by nobody but us. Words are those of core 0.16, shortened only at the end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.model import Mlp
from meshwright.frameworks.megatron.model_arguments import inexpressible
from meshwright.frameworks.megatron.precision_arguments import OPTIMIZERS, PRECISIONS
from meshwright.frameworks.rules import attention_of, rule, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values

_FOREIGN = {"ascend": "mindspeed-llm", "cpu": "a framework that trains there"}
"""Families of devices that Megatron-LM does not run on, and what does."""
SHAPES: list[Limit] = []
"""The rules of this module."""
_rule = partial(rule, SHAPES)


# What Megatron-LM has no words for, because no argument leads there.


@_rule("megatron.model", "Megatron-LM cannot express {features}", noticed="never", path="model")
def _model(case: Case, layout: Layout) -> Values | None:
    features = inexpressible(case.model)
    return values_if(features, features="; nor ".join(features))


@_rule("megatron.task", "Megatron-LM trains all weights: for LoRA use bridge (Megatron-Bridge)", noticed="never", path="training")
def _task(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.task == "lora")


@_rule("megatron.device", "Megatron-LM does not run on {device}; use {instead}", noticed="never", path="cluster")
def _device(case: Case, layout: Layout) -> Values | None:
    device = case.cluster.device
    return values_if(device.family in _FOREIGN, device=device.name, instead=_FOREIGN.get(device.family))


@_rule("megatron.precision", "Megatron-LM has no precision {precision}; it has {known}", noticed="never", path="training")
def _precision(case: Case, layout: Layout) -> Values | None:
    name = case.training.precision.name
    return values_if(name not in PRECISIONS, precision=name, known=", ".join(PRECISIONS))


@_rule("megatron.optimizer", "Megatron-LM has no optimizer {optimizer}; it has {known}", noticed="never", path="training")
def _optimizer(case: Case, layout: Layout) -> Values | None:
    name = case.training.optimizer.name
    return values_if(name not in OPTIMIZERS, optimizer=name, known=", ".join(OPTIMIZERS))


@_rule("megatron.schedule", "Megatron-LM has the schedules 1f1b and interleaved (vp > 1), not {schedule}", noticed="never")
def _schedule(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.schedule not in {"1f1b", "interleaved"}, schedule=layout.schedule)


@_rule(
    "megatron.shards",
    "Megatron-LM cannot split state over {optimizer}, gradients over {gradient} and parameters over {parameter}"
    " of {ranks} ranks: one group size, and from parameters on the optimizer over all ranks",
    noticed="never",
)
def _shards(case: Case, layout: Layout) -> Values | None:
    ranks = layout.data_parallel * layout.context_parallel
    sizes = (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    inner = max(sizes[1:])
    right = {
        0: True, 1: True, 2: sizes[0] == inner,
        3: sizes[1] == sizes[2] and sizes[0] in {inner, ranks},
    }[layout.zero_stage]
    return values_if(
        not right or any(ranks % size for size in sizes), optimizer=sizes[0], gradient=sizes[1], parameter=sizes[2],
        ranks=ranks,
    )


@_rule(
    "megatron.microbatches",
    "{microbatches} micro-batches of {size} on {dp} ranks are no global batch of {batch}",
    noticed="never",
)
def _microbatches(case: Case, layout: Layout) -> Values | None:
    batch = case.batch.global_batch_sequences
    product = layout.num_microbatches * layout.microbatch_sequences * layout.data_parallel
    whole = batch % (layout.microbatch_sequences * layout.data_parallel) == 0
    return values_if(
        whole and product != batch, microbatches=layout.num_microbatches, size=layout.microbatch_sequences,
        dp=layout.data_parallel, batch=batch,
    )


# Grid and shapes.


@_rule("megatron.experts", "num_experts must be non None to use expert model parallelism")
def _experts(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.expert_parallel > 1 and not case.model.is_moe)


@_rule("megatron.expert-count", "Number of experts should be a multiple of expert model parallel_size.")
def _expert_count(case: Case, layout: Layout) -> Values | None:
    experts = case.model.experts
    return values_if(experts and experts.num_experts % layout.expert_parallel)


@_rule(
    "megatron.expert-grid",
    "world_size ({world}) is not divisible by expert_tensor_model_pipeline_parallel size ({size})",
    noticed="start",
)
def _expert_grid(case: Case, layout: Layout) -> Values | None:
    size = layout.expert_tensor_parallel * layout.expert_parallel * layout.pipeline_parallel
    return values_if(case.model.is_moe and layout.world % size, world=layout.world, size=size)


@_rule("megatron.heads", "num_attention_heads ({heads}) must be a multiple of tensor_model_parallel_size ({tp}).")
def _heads(case: Case, layout: Layout) -> Values | None:
    heads = attention_of(case).num_heads
    return values_if(heads % layout.tensor_parallel, heads=heads, tp=layout.tensor_parallel)


@_rule(
    "megatron.query-groups",
    "num_query_groups ({groups}) must be a multiple or divisor of tensor_model_parallel_size ({tp}).",
)
def _query_groups(case: Case, layout: Layout) -> Values | None:
    groups, tp = attention_of(case).num_key_value_heads, layout.tensor_parallel
    return values_if(not attention_of(case).latent and groups % tp and tp % groups, groups=groups, tp=tp)


@_rule("megatron.width", "{width} is not divisible by {ranks}", noticed="start")
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


@_rule("megatron.expert-bias", "Bias in Moe is only supported when ETP==1")
def _expert_bias(case: Case, layout: Layout) -> Values | None:
    experts = case.model.experts
    return values_if(experts and experts.expert_bias and layout.expert_tensor_parallel > 1)


@_rule(
    "megatron.batch",
    "global batch size ({batch}) is not divisible by micro batch size ({size}) times data parallel size ({dp})",
)
def _batch(case: Case, layout: Layout) -> Values | None:
    batch, size, dp = case.batch.global_batch_sequences, layout.microbatch_sequences, layout.data_parallel
    return values_if(batch % (size * dp), batch=batch, size=size, dp=dp)


@_rule("megatron.sequence", "seq-length should be a multiple of 2 * context-parallel-size if context-parallel-size > 1.")
def _sequence(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.context_parallel > 1 and case.batch.sequence_tokens % (2 * layout.context_parallel))


@_rule("megatron.sequence-parallel", "First dimension of the tensor should be divisible by tensor parallel size", noticed="step")
def _sequence_parallel(case: Case, layout: Layout) -> Values | None:
    local = case.batch.sequence_tokens // layout.context_parallel
    return values_if(layout.sequence_parallel and local % layout.tensor_parallel)


@_rule("megatron.positions", "max_position_embeddings ({rows}) must be greater than or equal to seq_length ({sequence}).")
def _positions(case: Case, layout: Layout) -> Values | None:
    rows, sequence = case.model.position_table, case.batch.sequence_tokens
    return values_if(0 < rows < sequence, rows=rows, sequence=sequence)


@_rule(
    "megatron.moe-sequence-parallel",
    "During training, performance may degrade if MoE and tensor parallelismare enabled without also enabling sequence parallelism.",
    noticed="step",
)
def _moe_sequence_parallel(case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.is_moe and layout.tensor_parallel > 1 and not layout.sequence_parallel)


@_rule("megatron.grouped-gemm", "Unsupported compute capability for GroupedGEMM kernels.")
def _grouped_gemm(case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.is_moe and case.cluster.device.family == "volta")
