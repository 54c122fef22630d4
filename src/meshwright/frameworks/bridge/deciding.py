"""The fields of Megatron-Bridge's ``ConfigContainer`` that express a layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Selective
from meshwright.frameworks.bridge.automatic import blocks_of, is_automatic
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.megatron.hybrid import is_hybrid, pattern
from meshwright.frameworks.megatron.layout_arguments import CONTEXT_TYPES, block_layers, hybrid_inner
from meshwright.frameworks.megatron.pipeline import is_even, layout_string, split_of
from meshwright.frameworks.megatron.precision_arguments import is_distributed
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
UNSPOKEN = ("context kind where there is one context-parallel rank", "overlap of what is not there")


KEYS = (
    Says("model.tensor_model_parallel_size", "tensor_parallel"),
    Says("model.sequence_parallel", "sequence_parallel"),
    Says("model.pipeline_model_parallel_size", "pipeline_parallel"),
    Says("model.context_parallel_size", "context_parallel"),
    Says("model.expert_model_parallel_size", "expert_parallel"),
    Says("model.expert_tensor_parallel_size", "expert_tensor_parallel"),
    Says("train.micro_batch_size", "microbatch_sequences"),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The fields that express a layout, under Bridge's own names; what is off is absent."""
    values = decided(KEYS, Planned(case, layout, release))
    staged = _context(case, layout) | _stages(case, layout, release)
    return values | staged | _recompute(case, layout, release) | _shards(case, layout) | _overlap(layout) | _offload(case)


def _offload(case: Case) -> dict[str, object]:
    """What waits on the host of activations."""
    values: dict[str, object] = {}
    if layers := case.launch.offloaded_layers:
        values |= {"model.cpu_offloading": True, "model.cpu_offloading_num_layers": layers}
    if modules := case.launch.offloaded_modules:
        values |= {"model.fine_grained_activation_offloading": True, "model.offload_modules": list(modules)}
    return values


def _context(case: Case, layout: Layout) -> dict[str, object]:
    """The kind of context parallelism."""
    if layout.context_parallel == 1:
        return {}
    values: dict[str, object] = {"model.cp_comm_type": CONTEXT_TYPES[layout.context_kind]}
    if layout.context_kind == "hybrid":
        inner = hybrid_inner(case, layout)
        values["model.hierarchical_context_parallel_sizes"] = [inner, layout.context_parallel // inner]
    return values


def _stages(case: Case, layout: Layout, release: str) -> dict[str, object]:
    """Virtual stages, and the layout string where stages differ; of a hybrid its pattern, or the ends where it has no stages."""
    values: dict[str, object] = {}
    if layout.virtual_stages > 1:
        values["model.virtual_pipeline_model_parallel_size"] = layout.virtual_stages
        values["model.microbatch_group_size_per_vp_stage"] = layout.pipeline_parallel
    split, blocks = split_of(case, layout), blocks_of(case.model, release)
    if is_hybrid(case.model) and layout.pipeline_parallel > 1 and not is_automatic(case.model, release):
        if release == "main":
            values["model.hybrid_layer_pattern"] = pattern(case.model, split).partition("/")[0]
        elif not is_even(split):
            values["model.num_layers_in_first_pipeline_stage"] = split[0][0] * blocks
            values["model.num_layers_in_last_pipeline_stage"] = split[-1][-1] * blocks if layout.pipeline_parallel > 2 else None
    elif layout.pipeline_parallel > 1 and not is_even(split):
        values["model.pipeline_model_parallel_layout"] = layout_string(split, case.model.mtp_passes)
    return values


def _recompute(case: Case, layout: Layout, release: str) -> dict[str, object]:
    """What is computed again in the backward pass."""
    match layout.recompute:
        case Selective(modules=modules):
            return {"model.recompute_granularity": "selective", "model.recompute_modules": list(modules)}
        case Full(layers=layers) if layers != 0:
            count = block_layers(layers, case, layout)
            if count != 0:
                return {
                    "model.recompute_granularity": "full",
                    "model.recompute_method": "uniform" if count is None else "block",
                    "model.recompute_num_layers": 1 if count is None else count * blocks_of(case.model, release),
                }
    return {}


def _shards(case: Case, layout: Layout) -> dict[str, object]:
    """The distributed optimizer or Megatron-FSDP; both halves of each pair of fields are set."""
    ranks, stage, distributed = layout.data_parallel * layout.context_parallel, layout.zero_stage, is_distributed(case, layout)
    values: dict[str, object] = {
        "ddp.use_distributed_optimizer": distributed, "optimizer.use_distributed_optimizer": distributed,
        "dist.use_megatron_fsdp": stage >= 2, "ddp.use_megatron_fsdp": stage >= 2,
    }
    inner = layout.gradient_shards if stage >= 2 else layout.optimizer_shards
    if stage > 0 and inner < ranks:
        values["ddp.num_distributed_optimizer_instances"] = ranks // inner
    if stage >= 2:
        values["ddp.data_parallel_sharding_strategy"] = STRATEGIES[stage]
        values["checkpoint.ckpt_format"] = "fsdp_dtensor"
        values["model.gradient_accumulation_fusion"] = False
        values["ddp.average_in_collective"] = False
        if layout.optimizer_shards > layout.gradient_shards:
            values["ddp.outer_dp_sharding_strategy"] = "optim"
    if layout.offload:
        values |= {"optimizer.optimizer_cpu_offload": True, "optimizer.optimizer_offload_fraction": 1.0,
                   "optimizer.use_precision_aware_optimizer": True}
    return values


def _overlap(layout: Layout) -> dict[str, object]:
    """Overlaps by the fields of model and DDP; ``comm_overlap`` would decide them anew and is switched off in the files."""
    ranks, overlap = layout.data_parallel * layout.context_parallel, layout.overlap
    gather = overlap.parameter_gather and layout.zero_stage > 0 and ranks > 1
    values: dict[str, object] = {
        "ddp.overlap_grad_reduce": overlap.gradient_reduce and ranks > 1, "ddp.overlap_param_gather": gather,
        "optimizer.overlap_param_gather": gather, "model.tp_comm_overlap": overlap.tensor and layout.tensor_parallel > 1,
    }
    if layout.pipeline_parallel > 1:
        beside = layout.virtual_stages > 1 and overlap.point_to_point
        values |= {"model.overlap_p2p_comm": beside, "model.batch_p2p_comm": not beside}
    if overlap.expert and layout.expert_parallel > 1:
        values["model.overlap_moe_expert_parallel_comm"] = True
    return values


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as Bridge has it: as Megatron-LM's flags say it; sequence parallelism alone is never switched off."""
    plain = MEGATRON.normal(case, layout)
    return replace(
        plain, sequence_parallel=layout.sequence_parallel, expert_parallel=layout.expert_parallel,
        expert_tensor_parallel=layout.expert_tensor_parallel,
    )
