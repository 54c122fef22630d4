"""The keys of ChatLearn that express a layout, and the layout as those keys have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute, Overlap, Selective
from meshwright.frameworks.chatlearn.limits import GROUPED_EXPERTS, is_fsdp
from meshwright.frameworks.chatlearn.packing import padding_multiple
from meshwright.frameworks.chatlearn.stages import plain, stage_string
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.megatron.layout_arguments import CONTEXT_TYPES, hybrid_inner
from meshwright.frameworks.megatron.pipeline import split_of
from meshwright.frameworks.planned import Planned
from meshwright.packing.modes.chatlearn import kept_limit

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

TRAINER = "models.policy_trainer"
UNSPOKEN = (
    "overlap: the Megatron back end reduces gradients after the last backward pass; FSDP prefetches by itself",
    "context kind where there is one context-parallel rank",
)
FSDP_OVERLAP = Overlap(gradient_reduce=True, parameter_gather=True, tensor=False, point_to_point=True, expert=False)


def is_packed(layout: Layout) -> bool:
    """Whether micro-batches are packed: not where kernels need batches of one shape."""
    if is_fsdp(layout):
        return True
    ring = layout.context_parallel == 1 or layout.context_kind == "ring"
    return ring and not (layout.overlap.tensor and layout.tensor_parallel > 1)


KEYS = (
    Says(f"{TRAINER}.tensor_model_parallel_size", "tensor_parallel"),
    Says(f"{TRAINER}.pipeline_model_parallel_size", "pipeline_parallel"),
    Says(f"{TRAINER}.context_parallel_size", "context_parallel"),
    Says(f"{TRAINER}.expert_model_parallel_size", "expert_parallel"),
    Says(f"{TRAINER}.expert_tensor_parallel_size", lambda plan: plan.etp),
    Says(f"{TRAINER}.sequence_parallel", lambda plan: plan.sp and plan.tp > 1),
    Says(f"{TRAINER}.use_distributed_optimizer", lambda plan: plan.zero == 1),
)
"""Keys of the back end megatron."""


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout; those of ``patch.FIELDS`` need the patch."""
    values: dict[str, object] = {
        "runtime_args.train_backend": "fsdp" if is_fsdp(layout) else "megatron",
        "runtime_args.train_micro_batch_size": 1 if is_packed(layout) else layout.microbatch_sequences,
        f"{TRAINER}.num_gpu": layout.world, f"{TRAINER}.packing": is_packed(layout),
    }
    if is_packed(layout):
        values[f"{TRAINER}.max_token_in_packing"] = packing_limit(case, layout)
    if not is_fsdp(layout):
        values |= decided(KEYS, Planned(case, layout, release))
    specific = _fsdp(case, layout) if is_fsdp(layout) else _megatron(case, layout)
    return values | {f"{TRAINER}.{name}": value for name, value in specific.items()}


def packing_limit(case: Case, layout: Layout) -> int:
    """``max_token_in_packing`` under which no micro-batch has more tokens than the layout's, whatever the lengths of samples."""
    return kept_limit(
        layout.microbatch_sequences * case.batch.sequence_tokens, longest_tokens(case), rank_samples(case, layout), multiple(layout)
    )


def longest_tokens(case: Case) -> int:
    """Of a prompt and its response."""
    packing = case.batch.packing
    return packing.longest_sample_tokens if packing else case.batch.sequence_tokens


def rank_samples(case: Case, layout: Layout) -> int:
    """Samples of an optimizer step that one rank of data parallelism packs."""
    return -(-round(case.batch.samples) // layout.data_parallel)


def multiple(layout: Layout) -> int:
    """What each sequence is padded to."""
    return padding_multiple(layout.tensor_parallel, 1 if is_fsdp(layout) else layout.context_parallel)


def _fsdp(case: Case, layout: Layout) -> dict[str, object]:
    """Fields of ``FSDPPolicyTrainerConfig``."""
    grouped = {"groupgemm": True} if case.model.architecture in GROUPED_EXPERTS else {}
    return {
        "fsdp_size": layout.world, "ulysses_sequence_parallel_size": layout.context_parallel, "gradient_checkpointing": True,
        **grouped,
    }


def _megatron(case: Case, layout: Layout) -> dict[str, object]:
    """Further fields of ``MegatronPolicyTrainerConfig``, by Megatron's argparse names."""
    ranks = layout.data_parallel * layout.context_parallel
    fields: dict[str, object] = {}
    if stages := stage_string(case, layout):
        fields["pipeline_model_parallel_layout"] = stages
    if layout.virtual_stages > 1 and not layout.overlap.point_to_point:
        fields["megatron_model_cfg.overlap_p2p_comm"] = False
    if layout.context_parallel > 1 and layout.context_kind != "ring":
        fields["cp_comm_type"] = [CONTEXT_TYPES[layout.context_kind]]
        if layout.context_kind == "hybrid":
            inner = hybrid_inner(case, layout)
            fields["hierarchical_context_parallel_sizes"] = [inner, layout.context_parallel // inner]
    if layout.overlap.tensor and layout.tensor_parallel > 1:
        fields["tp_comm_overlap"] = True
    if layout.zero_stage == 1 and layout.optimizer_shards < ranks:
        fields["num_distributed_optimizer_instances"] = ranks // layout.optimizer_shards
    if layout.offload:
        fields |= {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0, "use_precision_aware_optimizer": True}
        fields["free_gpu_memory.offload_optimizer_states"] = False
    return fields | _recompute(layout)


def _recompute(layout: Layout) -> dict[str, object]:
    """What is computed again in the backward pass."""
    match layout.recompute:
        case Selective(modules=modules):
            return {"recompute_granularity": "selective", "recompute_modules": list(modules)}
        case Full(layers=layers) if layers != 0:
            block = isinstance(layers, int)
            return {"recompute_granularity": "full", "recompute_method": "block" if block else "uniform",
                    "recompute_num_layers": layers if block else 1}
    return {}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as ChatLearn has it: what its keys do not say takes the only value that there is."""
    tensor = layout.overlap.tensor and layout.tensor_parallel > 1
    p2p = layout.overlap.point_to_point or layout.virtual_stages == 1
    overlap = Overlap(gradient_reduce=False, parameter_gather=False, tensor=tensor, point_to_point=p2p, expert=False)
    return replace(
        layout,
        sequence_parallel=layout.sequence_parallel and layout.tensor_parallel > 1,
        context_kind=layout.context_kind if layout.context_parallel > 1 else "ring",
        stage_layers=None if layout.pipeline_parallel == 1 else plain(split_of(case, layout), case.model),
        recompute=NoRecompute() if layout.recompute == Full(layers=0) else layout.recompute,
        overlap=FSDP_OVERLAP if is_fsdp(layout) else overlap,
    )
