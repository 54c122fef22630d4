"""A layout as torchtitan's keys, the same dotted names for TOML (0.2) and flags (0.3 and later).

Micro-batches: with a pipeline all of a step run through one schedule (``local_batch_size`` holds them, nothing is accumulated);
without one, each is a step of gradient accumulation. ``global_batch_size`` stands there only where it is more than one such
pass, so that an edit adds it where it starts to matter; the files written here always have it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute, Overlap, Selective
from meshwright.estimate.split import default_split
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.planned import Planned
from meshwright.frameworks.torchtitan.stages import split_keys

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout, Recompute, Schedule
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.torchtitan.stages import Split

SCHEDULES: dict[Schedule, str] = {
    "1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B", "zb1p": "InterleavedZeroBubble", "dualpipev": "DualPipeV",
}
ROTATIONS = {"all-gather": "allgather", "ring": "alltoall"}
COMPILED = "compile.enable"
PER_OPERATOR = Selective(modules=("op",))
"""torchtitan's policy: every second product and all that is cheap runs again."""
UNSPOKEN = (
    "overlap: FSDP gathers and reduces beside compute, stages wait for each other; only overlap=tp is a key",
    "selective recomputation is torchtitan's per-operator policy, whatever its modules",
)


def goes_compiled(case: Case, layout: Layout) -> bool:
    """Whether layers go through torch.compile, unless a layout says otherwise for every implementation but the eager one."""
    return not case.implementation.name.startswith("torchtitan-eager") if layout.compiled is None else layout.compiled


def head_of(release: str) -> str:
    """Name of the output layer."""
    return "output" if release == "0.2" else "lm_head"


def shard_degree(layout: Layout) -> int:
    """``data_parallel_shard_degree``: parameters are sharded over it times cp."""
    return max(1, layout.optimizer_shards // layout.context_parallel)


def split_of(case: Case, layout: Layout) -> Split | None:
    """Layers by chunk and stage; None without a pipeline."""
    if layout.pipeline_parallel == 1:
        return None
    return layout.stage_layers or default_split(case, layout.pipeline_parallel, layout.virtual_stages)


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as torchtitan has it: layers by stage spelled out, its own overlaps, its own selective policy."""
    sequence = layout.sequence_parallel and layout.tensor_parallel > 1
    recompute: Recompute = PER_OPERATOR if isinstance(layout.recompute, Selective) else layout.recompute
    return replace(
        layout, stage_layers=split_of(case, layout), sequence_parallel=sequence, recompute=recompute,
        context_kind=layout.context_kind if layout.context_parallel > 1 else "ring",
        overlap=Overlap(
            gradient_reduce=True, parameter_gather=True, tensor=layout.overlap.tensor and sequence, point_to_point=False,
            expert=False,
        ),
    )


DEGREES = (
    Says("parallelism.data_parallel_replicate_degree", lambda plan: plan.dp // shard_degree(plan.layout)),
    Says("parallelism.data_parallel_shard_degree", lambda plan: shard_degree(plan.layout)),
    Says("parallelism.tensor_parallel_degree", "tensor_parallel"),
    Says("parallelism.context_parallel_degree", "context_parallel"),
    Says("parallelism.pipeline_parallel_degree", "pipeline_parallel"),
    Says("parallelism.expert_parallel_degree", "expert_parallel"),
    Says("parallelism.fsdp_reshard_after_forward", lambda plan: "always" if plan.zero == 3 else "never",
         when=lambda plan: plan.zero > 0),
)
TENSOR = (  # of 0.2
    Says("parallelism.enable_async_tensor_parallel", "overlap.tensor"),
    Says("parallelism.context_parallel_rotate_method", "context_kind", ROTATIONS, "all-gather", when=lambda plan: plan.cp > 1),
    Says("parallelism.expert_tensor_parallel_degree", "expert_tensor_parallel", when=lambda plan: plan.ep > 1),
)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout."""
    layout = normal(case, layout)
    return {
        **decided(DEGREES, Planned(case, layout, release)),
        **_batch(case, layout, release),
        **_pipeline(case, layout, release),
        **_tensor(case, layout, release),
        **_recompute(case, layout, release),
        **({"training.enable_cpu_offload": True} if layout.offload else {}),
    }


def _batch(case: Case, layout: Layout, release: str) -> Values:
    """Micro-batch, pipeline micro-batches, and the global batch where it is several passes."""
    mb, many, pipeline = layout.microbatch_sequences, layout.num_microbatches, layout.pipeline_parallel > 1
    passes = many > 1 and not pipeline
    if release == "main":
        tokens = case.batch.sequence_tokens
        return {
            "training.num_tokens_per_microbatch_per_dp_rank": mb * tokens,
            **({"parallelism.num_pp_microbatches": many} if pipeline else {}),
            **({"training.num_tokens_per_train_step": case.batch.global_batch_sequences * tokens} if passes else {}),
        }
    return {
        "training.local_batch_size": mb * many if pipeline else mb,
        **({"parallelism.pipeline_parallel_microbatch_size": mb} if pipeline else {}),
        **({"training.global_batch_size": case.batch.global_batch_sequences} if passes else {}),
    }


def _pipeline(case: Case, layout: Layout, release: str) -> Values:
    """Schedule and layers by stage."""
    graphs = (
        {"training.disable_cuda_graphs": True}
        if release != "0.2" and (layout.pipeline_parallel > 1 or layout.expert_parallel > 1)
        else {}
    )
    split = split_of(case, layout)
    if split is None:
        return graphs
    overlap = (
        {"parallelism.pipeline_parallel_expert_parallel_overlap": False}
        if release == "0.2" and layout.schedule == "dualpipev"
        else {}
    )
    return {
        "parallelism.pipeline_parallel_schedule": SCHEDULES[layout.schedule],
        **split_keys(split, layout.schedule, head_of(release)), **overlap, **graphs,
    }


def _tensor(case: Case, layout: Layout, release: str) -> Values:
    """What goes with tensor, context and expert parallelism, and has another name in each release."""
    if release != "0.2":
        return {
            "parallelism.enable_sequence_parallel": layout.sequence_parallel or layout.tensor_parallel == 1,
            **({"compile.enable_async_tensor_parallel": True} if layout.overlap.tensor else {}),
        }
    return decided(TENSOR, Planned(case, layout, release))


def _recompute(case: Case, layout: Layout, release: str) -> Values:
    """Activation checkpointing."""
    match layout.recompute:
        case NoRecompute():
            mode = "none"
        case Full(layers=None):
            mode = "full"
        case _:
            mode = "selective"
    if release != "0.2":
        return {"activation_checkpoint": mode}
    if mode != "selective":
        return {"activation_checkpoint.mode": mode}
    every = every_nth(case, layout)
    return {"activation_checkpoint.mode": mode, "activation_checkpoint.selective_ac_option": str(every) if every else "op"}


def chunks_of(case: Case, layout: Layout) -> Split:
    """Layers of every part of the model."""
    return split_of(case, layout) or ((case.model.num_layers,),)


def every_nth(case: Case, layout: Layout) -> int | None:
    """The N of which counts of recomputed layers are the whole multiples (selective_ac_option "N" of 0.2); None: there is none."""
    recompute = layout.recompute
    if not isinstance(recompute, Full) or not isinstance(recompute.layers, tuple):
        return None
    layers = chunks_of(case, layout)
    return next((each for each in range(1, case.model.num_layers + 1) if counts_of(layers, each) == recompute.layers), None)


def counts_of(layers: Split, every: int) -> Split:
    """Layers that are recomputed where every Nth of a part is (``_layer_sac_count``)."""
    return tuple(tuple(count // every for count in row) for row in layers)
