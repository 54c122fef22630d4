"""Every field that a plan sets over a recipe, so that nothing of the recipe's own stands in the way of what was predicted."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

from meshwright.frameworks.bridge.automatic import is_automatic
from meshwright.frameworks.bridge.deciding import decide
from meshwright.frameworks.bridge.limits import PRECISIONS
from meshwright.frameworks.bridge.model_fields import model_fields
from meshwright.frameworks.bridge.recipe_values import PACKS
from meshwright.frameworks.bridge.recipes import packs
from meshwright.frameworks.bridge.sources import RESET
from meshwright.frameworks.manual import train_steps
from meshwright.frameworks.megatron.precision_arguments import MOMENTS, loss_in_place

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Options

EMPTY = RESET | {"model.microbatch_group_size_per_vp_stage", "model.cp_comm_type", "model.hierarchical_context_parallel_sizes",
                 "comm_overlap"}
"""What a recipe may have set and a plan may lack."""
OFF: dict[str, object] = {
    "model.account_for_embedding_in_pipeline_split": False, "model.account_for_loss_in_pipeline_split": False,
    "model.cuda_graph_impl": "none", "model.fine_grained_activation_offloading": False,
    "model.overlap_moe_expert_parallel_comm": False, "model.delay_wgrad_compute": False,
    "ddp.num_distributed_optimizer_instances": 1, "ddp.data_parallel_sharding_strategy": "no_shard",
    "optimizer.optimizer_cpu_offload": False, "optimizer.overlap_param_gather_with_optimizer_step": False,
    "checkpoint.ckpt_format": "torch_dist",
}
"""What a recipe may have switched on, and no plan assumes unless it decides it."""
EXPERTS: dict[str, object] = {
    "model.moe_token_dispatcher_type": "alltoall", "model.moe_grouped_gemm": True, "model.moe_permute_fusion": True,
    "model.moe_shared_expert_overlap": False,
}
"""How tokens travel to their experts, as predicted."""
TYPES = {None: "torch.float32", "bf16": "torch.bfloat16", "fp8": "torch.uint8"}
WARM_UP = 2000
"""Steps of warm-up of a long run: those of Llama's recipes."""


def overrides(case: Case, layout: Layout, release: str, options: Options) -> dict[str, object]:
    """Field -> value: what the plan decides, what must be set back, and what the case fixes."""
    decided = decide(case, layout, release)
    empty = {key: None for key in sorted(EMPTY) if key not in decided}
    return {
        **empty, **OFF, **_optimizer(case, layout), **decided, **_kernels(case, release), **_loss(case),
        **_length(case, release, options), **_tuned(case, layout, release), **options.launch.keys,
    }


def _length(case: Case, release: str, options: Options) -> dict[str, object]:
    """Batch, sequence and steps; the warm-up must be shorter than the run."""
    steps, sequence = train_steps(case, options), case.batch.sequence_tokens
    length = "dataset.sequence_length" if release == "0.3" and case.training.task == "pretrain" else "dataset.seq_length"
    return {
        "train.global_batch_size": case.batch.global_batch_sequences, "train.train_iters": steps,
        "scheduler.lr_decay_iters": steps, "scheduler.lr_warmup_iters": min(WARM_UP, steps // 10),
        "model.seq_length": sequence, length: sequence, "mixed_precision": PRECISIONS[case.training.precision.name],
    }


def _optimizer(case: Case, layout: Layout) -> dict[str, object]:
    """The optimizer and the types of its state."""
    name, master = case.training.optimizer.name, case.training.precision.master_bytes
    moment = TYPES[MOMENTS.get(name)]
    return {
        "optimizer.optimizer": "adam" if name in MOMENTS else name,
        "optimizer.use_precision_aware_optimizer": bool(MOMENTS.get(name) or master == 2 or layout.offload),
        "optimizer.main_grads_dtype": "torch.float32",
        "optimizer.main_params_dtype": "torch.float16" if master == 2 else "torch.float32",
        "optimizer.exp_avg_dtype": moment, "optimizer.exp_avg_sq_dtype": moment,
    }


def _kernels(case: Case, release: str) -> dict[str, object]:
    """Dispatcher and kernels of a mixture of experts, biases, and the layers behind the last."""
    mixture = {**EXPERTS, "model.moe_router_force_load_balancing": case.training.balanced_routing} if case.model.is_moe else {}
    own = is_automatic(case.model, release)  # what its class says stands
    biases = {} if own else {"model.add_bias_linear": model_fields(case, release).get("add_bias_linear", True)}
    shared = {"model.mtp_use_repeated_layer": True} if case.model.shares_mtp else {}
    return {**mixture, **biases, "model.mtp_num_layers": case.model.mtp_passes or None, **shared}


def _loss(case: Case) -> dict[str, object]:
    """How the loss is computed."""
    fused = loss_in_place(case.implementation)
    return {"model.cross_entropy_loss_fusion": fused, **({"model.cross_entropy_fusion_impl": "te"} if fused else {})}


def _tuned(case: Case, layout: Layout, release: str) -> dict[str, object]:
    """What tuning wants: sequences of the planned length, packed or padded, and with context parallelism the loss per token."""
    if case.training.task == "pretrain":
        return {}
    cp = layout.context_parallel
    values: dict[str, object] = {"++dataset.dataset_kwargs.pad_to_max_length": True}
    if packs(case, release):
        values = {
            f"{PACKS[release]}.packed_sequence_size": case.batch.sequence_tokens,
            f"{PACKS[release]}.pad_seq_to_mult": lcm(
                2 * cp if cp > 1 else 1, cp * layout.tensor_parallel if layout.sequence_parallel else 1),
        }
    if cp > 1:
        values |= {"model.calculate_per_token_loss": True, "ddp.average_in_collective": False}
    return values
