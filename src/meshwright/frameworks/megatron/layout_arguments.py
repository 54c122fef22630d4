"""A layout as Megatron-LM flags: degrees, stages, recomputation, sharding, overlap and offload.

``decide`` gives them as values; ``reading`` is its inverse.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from msgspec.structs import replace

from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.megatron.flags import Version, parse_version
from meshwright.frameworks.megatron.hybrid import letters_of_a_layer
from meshwright.frameworks.megatron.pipeline import is_even, pipeline_arguments, split_of
from meshwright.frameworks.megatron.precision_arguments import MOMENTS, is_distributed, is_precision_aware
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values

CONTEXT_TYPES = {"ring": "p2p", "all-gather": "all_gather", "ulysses": "a2a", "hybrid": "a2a+p2p"}
"""Transformer Engine's names; ``allgather``, as the help text of the flag has it, is refused in the first step."""
UNSPOKEN = (
    "context: the kind of context parallelism where there is none (cp1)",
    "overlap: that of point-to-point messages without virtual stages, and of collectives over one rank",
    "stage_layers: an even split is not written",
    "etp and ep: of a model without experts",
)


def _moe(plan: Planned) -> bool:
    return plan.moe


def _hybrid_sizes(plan: Planned) -> tuple[int, int]:
    inner = hybrid_inner(plan.case, plan.layout)
    return inner, plan.cp // inner


DEGREES = (
    Says("--tensor-model-parallel-size", "tensor_parallel"),
    Says("--sequence-parallel", "sequence_parallel", when=lambda plan: plan.tp > 1),
    Says("--context-parallel-size", "context_parallel"),
    Says("--cp-comm-type", "context_kind", CONTEXT_TYPES, when=lambda plan: plan.cp > 1),
    Says("--hierarchical-context-parallel-sizes", _hybrid_sizes, when=lambda plan: plan.cp > 1 and plan.kind == "hybrid"),
    # The expert grid is explicit, because its tensor degree would else be that of the dense layers.
    Says("--expert-model-parallel-size", "expert_parallel", when=_moe),
    Says("--expert-tensor-parallel-size", "expert_tensor_parallel", when=_moe),
    Says("--micro-batch-size", "microbatch_sequences"),
    Says("--pipeline-model-parallel-size", "pipeline_parallel"),
)
OVERLAPS = (
    Says("--overlap-grad-reduce", "overlap.gradient_reduce", default=False, when=lambda plan: plan.ranks > 1),
    Says("--overlap-param-gather", "overlap.parameter_gather", default=False, when=lambda plan: plan.zero > 0 and plan.ranks > 1),
    Says("--tp-comm-overlap", "overlap.tensor", when=lambda plan: plan.tp > 1),
    Says("--overlap-moe-expert-parallel-comm", "overlap.expert", when=lambda plan: plan.ep > 1),
)
"""Communication beside compute, where there is any."""


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The flags that express a layout: True for a switch, a tuple for several words; what is off is absent."""
    version, plan = parse_version(release), Planned(case, layout, release)
    values = {
        **decided(DEGREES, plan), **pipeline_arguments(case, layout, version), **_recompute(case, layout, version),
        **_sharding(case, layout, version), **decided(OVERLAPS, plan), **_offload(case, layout),
    }
    return {flag: value for flag, value in values.items() if value is not None and value is not False}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as Megatron-LM's flags can say it: what would change nothing has its plain value."""
    tp, ranks = layout.tensor_parallel, layout.data_parallel * layout.context_parallel
    virtual, overlap = layout.virtual_stages > 1, layout.overlap
    sharded = layout.zero_stage > 0
    return replace(
        layout,
        sequence_parallel=layout.sequence_parallel and tp > 1,
        context_kind=layout.context_kind if layout.context_parallel > 1 else "ring",
        expert_parallel=layout.expert_parallel if case.model.is_moe else 1,
        expert_tensor_parallel=layout.expert_tensor_parallel if case.model.is_moe else 1,
        schedule="interleaved" if virtual else "1f1b",
        stage_layers=None if layout.pipeline_parallel == 1 or is_even(split_of(case, layout)) else split_of(case, layout),
        recompute=_normal_recompute(case, layout),
        overlap=Overlap(
            gradient_reduce=overlap.gradient_reduce and ranks > 1,
            parameter_gather=overlap.parameter_gather and sharded and ranks > 1,
            tensor=overlap.tensor and tp > 1,
            point_to_point=overlap.point_to_point or not virtual,
            expert=overlap.expert and layout.expert_parallel > 1,
        ),
    )


def _normal_recompute(case: Case, layout: Layout) -> Recompute:
    """Nothing where no layer is recomputed, all layers where all are, one count where one is enough."""
    if not isinstance(layout.recompute, Full) or layout.recompute.layers is None:
        return layout.recompute
    count = block_layers(layout.recompute.layers, case, layout)
    largest = max(map(max, split_of(case, layout)))
    return NoRecompute() if count == 0 else Full(layers=None if count is None or count > largest else count)


def hybrid_inner(case: Case, layout: Layout) -> int:
    """Ranks of the inner all-to-all of hybrid context parallelism: those in a scale-up domain, within the heads."""
    attention = case.model.attention
    heads = attention.num_heads if attention.latent else attention.num_key_value_heads
    local = max(1, case.cluster.scale_up_devices // layout.tensor_parallel)
    return gcd(layout.context_parallel, local, max(1, heads // layout.tensor_parallel))


def _recompute(case: Case, layout: Layout, version: Version) -> Values:
    """What is recomputed in the backward pass. Before core 0.12 selective means the attention core and has no list."""
    match layout.recompute:
        case Selective(modules=modules):
            listed = version.minor >= 12 or modules != ("core_attn",)
            return {
                "--recompute-granularity": "selective",
                "--recompute-modules": (modules if len(modules) > 1 else modules[0]) if listed and modules else None,
            }
        case Full(layers=layers) if layers != 0:
            count = block_layers(layers, case, layout)
            return {} if count == 0 else {
                "--recompute-granularity": "full",
                "--recompute-method": "uniform" if count is None else "block",
                "--recompute-num-layers": 1 if count is None else count * (letters_of_a_layer(case.model) or 1),
            }
        case _:
            return {}


def block_layers(layers: int | tuple[tuple[int, ...], ...] | None, case: Case, layout: Layout) -> int | None:
    """Layers to recompute in each chunk of each stage; None: all. Megatron-LM has one count for all of them.

    Holds:   a tuple that differs from the split has one count (``megatron.recompute``).
    """
    if not isinstance(layers, tuple):
        return layers
    if layers == split_of(case, layout):
        return None
    return max(count for chunk in layers for count in chunk)


def _sharding(case: Case, layout: Layout, version: Version) -> Values:
    """The distributed optimizer or Megatron-FSDP, and in how many groups."""
    ranks, stage = layout.data_parallel * layout.context_parallel, layout.zero_stage
    inner = layout.gradient_shards if stage >= 2 else layout.optimizer_shards
    values: dict[str, object] = {
        "--use-distributed-optimizer": is_distributed(case, layout),
        "--num-distributed-optimizer-instances": ranks // inner if stage > 0 and inner < ranks else None,
    }
    if stage >= 2:
        renamed = version.minor >= 14
        values |= {
            "--use-megatron-fsdp" if renamed else "--use-custom-fsdp": True,
            "--data-parallel-sharding-strategy": "optim_grads_params" if stage == 3 else "optim_grads",
            "--outer-dp-sharding-strategy": "optim" if layout.optimizer_shards > layout.gradient_shards else None,
            "--ckpt-format": "fsdp_dtensor" if renamed else None,
            "--no-gradient-accumulation-fusion": True,
            "--init-model-with-meta-device": stage == 3 and renamed,
        }
    return values


def _offload(case: Case, layout: Layout) -> Values:
    """Optimizer state in host memory, and the optimizer whose state has types of its own, which it needs."""
    training = case.training
    offload = "optimizer" in layout.offload
    adam = training.optimizer.name in MOMENTS
    return {
        "--use-precision-aware-optimizer": adam and is_precision_aware(case, layout),
        "--optimizer-cpu-offload": adam and offload,
        "--optimizer-offload-fraction": 1.0 if adam and offload else None,
        "--overlap-cpu-optimizer-d2h-h2d": adam and offload,
    }
