"""ChatLearn's YAML: the layout's keys among everything else that a run needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from meshwright.documents.quoting import comment, interpolated
from meshwright.frameworks.chatlearn.deciding import TRAINER, longest_tokens
from meshwright.frameworks.chatlearn.limits import is_fsdp

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

EPISODES = 200
"""Episodes of a run: ChatLearn's template."""


def document_text(case: Case, layout: Layout, keys: Values) -> str:
    """The whole configuration; the reference policy follows the trainer by reference."""
    document: dict[str, object] = {"runtime_args": _runtime(case), "models": _models(case, layout, keys)}
    for key, value in keys.items():
        _put(document, key, value)
    head = comment(f"{case.model.name} on {layout.world} x {case.cluster.device.name}: ChatLearn, written by Meshwright.")
    return f"# {head}\n" + yaml.safe_dump(document, sort_keys=False, width=200)


def _put(document: dict[str, object], key: str, value: object) -> None:
    """Set a dotted key."""
    *sections, name = key.split(".")
    for section in sections:
        below = document.setdefault(section, {})
        assert isinstance(below, dict), f"{key}: {section} is a value"
        document = below
    document[name] = value


def _runtime(case: Case) -> dict[str, object]:
    """One optimizer step in an episode: samples are trained on as soon as they are made."""
    batch = round(case.batch.samples)
    return {
        "train_backend": "megatron", "rollout_backend": "vllm", "exp_name": interpolated(case.model.name),
        "colocation": ["policy", "policy_trainer", "ref_policy"], "num_episode": EPISODES, "sample_per_episode": batch,
        "train_micro_batch_size": 1, "train_global_batch_size": batch, "num_inference_per_prompt": _per_prompt(batch),
        "save_episode_interval": EPISODES, "log_args_dict": {"log_dir": "${runtime_args.output_dir}"},
    }


def _per_prompt(batch: int) -> int:
    """Responses for each prompt: the largest power of two up to 32 that divides the batch."""
    return next(count for count in (32, 16, 8, 4, 2, 1) if batch % count == 0)


def _models(case: Case, layout: Layout, keys: Values) -> dict[str, object]:
    """The section ``models`` without what the layout decides."""
    world, sequence = layout.world, longest_tokens(case)
    rank = round(case.batch.samples) // layout.data_parallel
    lengths = {name: f"${{models.policy.{name}}}" for name in ("max_prompt_tokens_length", "max_response_tokens_length")}
    batch = layout.microbatch_sequences if rank % layout.microbatch_sequences == 0 else 1
    memory = {"offload_weights": True, "offload_optimizer_states": True, "free_grad_buffers": True}
    trainer: dict[str, object] = {
        "trainable": True, "gpu_per_process": 1, "num_gpu": world, "use_expandable_segments": True, "free_gpu_memory": memory,
        "optimizer": {"lr": 2.0e-6, "clip_grad": 1.0}, "generation_batch_size": batch,
        "train_micro_batch_size": "${runtime_args.train_micro_batch_size}", **lengths,
    }
    reference: dict[str, object] = {
        "trainable": False, "gpu_per_process": 1, "num_gpu": f"${{{TRAINER}.num_gpu}}", "use_expandable_segments": True,
        "free_gpu_memory": {"offload_weights": True}, "generation_batch_size": f"${{{TRAINER}.generation_batch_size}}",
        "load": f"${{{TRAINER}.load}}", "packing": f"${{{TRAINER}.packing}}", **lengths,
    }
    shared = ("max_token_in_packing", *((*_FSDP_SHARED,) if is_fsdp(layout) else _MEGATRON_SHARED))
    reference |= {name: f"${{{TRAINER}.{name}}}" for name in shared if f"{TRAINER}.{name}" in keys}
    if not is_fsdp(layout):
        names = {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "${models.policy.load}", "bf16": True}
        trainer, reference = trainer | names, reference | names
    tp = next(
        size for size in range(min(8, world), 0, -1) if world % size == 0 and case.model.attention.num_heads % size == 0
    )
    policy = {
        "trainable": False, "gpu_per_process": 1, "num_gpu": f"${{{TRAINER}.num_gpu}}", "tensor_model_parallel_size": tp,
        "free_gpu_memory": {"offload_weights": True}, "generation_batch_size": 256,
        "num_inference_per_prompt": "${runtime_args.num_inference_per_prompt}", "max_prompt_tokens_length": sequence // 4,
        "max_response_tokens_length": sequence - sequence // 4, "gpu_memory_utilization": 0.8,
    }
    return {
        "policy_trainer": trainer, "ref_policy": reference, "policy": policy,
        "reward": {"num_cpu": 2, "cpu_per_process": 1, "generation_batch_size": 256},
        "partial_rollout_manager": {"num_cpu": 1, "cpu_per_process": 1},
    }


_FSDP_SHARED = ("fsdp_size", "ulysses_sequence_parallel_size")
_MEGATRON_SHARED = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "sequence_parallel", "pipeline_model_parallel_layout", "cp_comm_type",
    "hierarchical_context_parallel_sizes",
)
