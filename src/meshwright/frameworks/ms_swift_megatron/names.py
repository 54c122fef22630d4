"""ms-swift's names for Megatron-Core's settings, those of Megatron-LM's command line, and texts of one in the other's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshwright.errors import Message

if TYPE_CHECKING:
    from meshwright.domain.layout import AttentionKernel

NAME = "ms-swift-megatron"
TITLE = "ms-swift (Megatron)"
RELEASES = ("4.6",)
CORE = "0.18"
"""The Megatron-Core that its guide recommends, of 0.16 to 0.19; flags stand for its settings.

Source: its Quick-start of Megatron-SWIFT; docs/sources.md#ms-swift.
"""
OTHERS: Mapping[str, str] = {
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "microbatch_group_size_per_vp_stage": "--microbatch-group-size-per-virtual-pipeline-stage",
    "max_length": "--seq-length",
}
"""Name -> flag, where the one is not the other with dashes."""
SWITCHED_OFF: Mapping[str, str] = {
    "overlap_p2p_comm": "--no-overlap-p2p-communication",
    "gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
}
"""Name of what is on by itself -> the flag that switches it off."""
ALIKE = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "sequence_parallel", "cp_comm_type", "micro_batch_size", "global_batch_size",
    "pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "recompute_granularity", "recompute_method",
    "recompute_num_layers", "recompute_modules", "use_distributed_optimizer", "use_megatron_fsdp",
    "data_parallel_sharding_strategy", "overlap_grad_reduce", "overlap_param_gather", "overlap_param_gather_with_optimizer_step",
    "tp_comm_overlap", "optimizer_cpu_offload", "optimizer_offload_fraction", "use_precision_aware_optimizer",
    "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype", "optimizer", "bf16", "fp16", "fp8_format", "fp8_recipe",
    "fp8_param_gather", "fp4_format", "attention_backend", "moe_token_dispatcher_type", "moe_shared_expert_overlap",
    "mtp_num_layers", "manual_gc",
)
FLAGS: Mapping[str, str] = {**{name: f"--{name.replace('_', '-')}" for name in ALIKE}, **OTHERS}
"""Name -> flag of Megatron-LM that says the same."""
_NAMES = {flag: name for name, flag in {**FLAGS, **SWITCHED_OFF}.items()}
OWN_ATTENTION: AttentionKernel = "flash"
"""Where nothing is said."""
DEFAULTS: Mapping[str, object] = {
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
    "expert_model_parallel_size": 1, "expert_tensor_parallel_size": 1, "micro_batch_size": 1, "global_batch_size": 16,
    "recompute_granularity": "selective", "use_distributed_optimizer": True, "optimizer": "adam",
    "attention_backend": OWN_ATTENTION,
    "data_parallel_sharding_strategy": "optim_grads_params", "moe_token_dispatcher_type": "alltoall", "fp8_recipe": "delayed",
}
"""What decides a layout where nobody says it, if that is not what Megatron-LM has."""
_FLAG = re.compile(r"--[a-z0-9]+(?:-[a-z0-9]+)*")


def name_of(flag: str) -> str:
    """ms-swift's name for a flag of Megatron-LM."""
    return _NAMES.get(flag, flag.removeprefix("--").replace("-", "_"))


def in_its_words(text: str) -> str:
    """A text with the flags of Megatron-LM as ms-swift has them.

    >>> in_its_words("--recompute-method does nothing without --num-virtual-stages-per-pipeline-rank")
    'recompute_method does nothing without virtual_pipeline_model_parallel_size'
    """
    return _FLAG.sub(lambda found: name_of(found[0]), text)


def renamed(message: Message) -> Message:
    """A message about flags as one about ms-swift's names."""
    values = {key: in_its_words(value) if isinstance(value, str) else value for key, value in message.values.items()}
    return Message(own_id(message.id), in_its_words(message.template), values, message.path)


def own_id(id: str) -> str:
    """An identifier of Megatron-LM as one of ours; others as they are."""
    return f"{NAME}.{id.removeprefix('megatron.')}" if id.startswith("megatron.") else id
