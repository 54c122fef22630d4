"""The keys of NeMo-RL's Megatron back end that express a layout, and the layout as those keys have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute, Overlap, Selective
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.megatron import MEGATRON as MEGATRON_LM
from meshwright.frameworks.megatron.pipeline import is_even, split_of
from meshwright.frameworks.nemo_rl.keys import MEGATRON, micro_batches
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

CORE = "main"
"""The Megatron-Core of its Megatron-Bridge is a commit between releases."""
UNSPOKEN = (
    "overlap of point-to-point messages: there is one chunk on a stage, and nothing to choose",
    "overlap of gradients and parameters over one rank",
    "stage_layers: an even split is not written",
    "etp and ep: of a model without experts",
)
DDP, OPTIMIZER = f"{MEGATRON}.distributed_data_parallel_config", f"{MEGATRON}.optimizer"
KEYS = (
    Says(f"{MEGATRON}.tensor_model_parallel_size", "tensor_parallel"),
    Says(f"{MEGATRON}.sequence_parallel", "sequence_parallel"),
    Says(f"{MEGATRON}.pipeline_model_parallel_size", "pipeline_parallel"),
    Says(f"{MEGATRON}.context_parallel_size", "context_parallel"),
    Says(f"{MEGATRON}.expert_model_parallel_size", "expert_parallel"),
    Says(f"{MEGATRON}.expert_tensor_parallel_size", "expert_tensor_parallel"),
    Says(f"{OPTIMIZER}.use_distributed_optimizer", lambda plan: plan.zero == 1),
    Says(f"{DDP}.overlap_grad_reduce", lambda plan: plan.ranks > 1 and plan.layout.overlap.gradient_reduce),
    Says(f"{DDP}.overlap_param_gather", lambda plan: plan.ranks > 1 and plan.zero == 1 and plan.layout.overlap.parameter_gather),
    Says(f"{OPTIMIZER}.optimizer_cpu_offload", lambda plan: bool(plan.layout.offload)),
    Says(f"{OPTIMIZER}.optimizer_offload_fraction", lambda plan: 1.0 if plan.layout.offload else 0.0),
    Says(f"{OPTIMIZER}.overlap_cpu_optimizer_d2h_h2d", lambda plan: bool(plan.layout.offload)),
)
ENDS = tuple(f"{MEGATRON}.num_layers_in_{end}_pipeline_stage" for end in ("first", "last"))
CHECKPOINTING, GRANULARITY, MODULES = (
    f"{MEGATRON}.{name}" for name in ("activation_checkpointing", "recompute_granularity", "recompute_modules")
)
NEEDED = (
    *(row.key for row in KEYS if isinstance(row.what, str)), f"{OPTIMIZER}.use_distributed_optimizer", f"{DDP}.overlap_grad_reduce",
    f"{DDP}.overlap_param_gather", CHECKPOINTING,
)
"""Keys that decide a layout and that the back end reads without a default."""


def packs(case: Case, layout: Layout) -> bool:
    """Whether samples lie behind each other: as planned, and always where context parallelism cuts them."""
    return case.batch.packing is not None or layout.context_parallel > 1


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout, which says nothing by default; layers of the ends where they are not as all others."""
    return {
        **decided(KEYS, Planned(case, layout, release)), **_stages(case, layout), **_recompute(layout),
        **micro_batches(case, layout, packs=packs(case, layout)),
    }


def _stages(case: Case, layout: Layout) -> dict[str, object]:
    """Layers of the first and the last stage, where they differ from the others."""
    split = split_of(case, layout)
    if layout.pipeline_parallel == 1 or is_even(split):
        return {}
    # Both counts leave nothing between them on two stages.
    return {ENDS[0]: split[0][0], **({ENDS[1]: split[0][-1]} if layout.pipeline_parallel > 2 else {})}


def _recompute(layout: Layout) -> dict[str, object]:
    """What is computed again in the backward pass."""
    match layout.recompute:
        case Selective(modules=modules):
            return {CHECKPOINTING: True, GRANULARITY: "selective", MODULES: list(modules)}
        case Full(layers=layers) if layers != 0:
            return {CHECKPOINTING: True, GRANULARITY: "full"}
    return {CHECKPOINTING: False, GRANULARITY: "full"}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as the back end has it: what its keys do not say takes the only value that there is."""
    plain = MEGATRON_LM.at(CORE).normal(case, layout)
    ranks = layout.data_parallel * layout.context_parallel
    recompute = NoRecompute() if layout.recompute == Full(layers=0) else plain.recompute
    return replace(
        plain, sequence_parallel=layout.sequence_parallel, recompute=recompute,
        overlap=Overlap(
            gradient_reduce=plain.overlap.gradient_reduce and ranks > 1,
            parameter_gather=plain.overlap.parameter_gather and ranks > 1 and layout.zero_stage == 1,
            tensor=False, point_to_point=True, expert=False,
        ),
    )
