"""What nanotron takes although it is wrong, and what its launch lacks (commit 2411b02, release 0.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import above, at, count_of, differs, equal, is_true
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading, Severity

_RINGS = ("llama3_ring_attention", "ring", "ring_flash_triton")
_CONTEXT, _ATTENTION = "parallelism.context_parallel_size", "model.model_config._attn_implementation"
_DEMANDED = {
    "general": ("project",),
    "parallelism": ("dp", "pp", "tp"),
    "model": ("model_config", "init_method"),
    "checkpoints": ("checkpoints_path", "checkpoint_interval"),
    "tokens": ("sequence_length", "train_steps", "micro_batch_size", "batch_accumulation_per_replica"),
    "optimizer": (
        "optimizer_factory", "zero_stage", "weight_decay", "accumulate_grad_in_fp32", "learning_rate_scheduler",
    ),
}
"""Section -> fields without a default."""


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """The dataclasses are strict."""
    return "error", 'can not match "{key}" to any data class field'


def _is_llama(reading: Reading) -> bool:
    return reading.source.value("model.model_config.is_llama_config") is True


def _context_attention(reading: Reading, case: Case | None) -> Iterator[Values]:
    context = reading.source.settings.get(_CONTEXT)
    if context is None or not above(1)(context.value):
        return
    if _is_llama(reading):
        yield at(context, 1, cp=context.value, value="is_llama_config, whose attention knows no other ranks")
    elif reading.source.value(_ATTENTION, "flash_attention_2") not in _RINGS:
        yield at(context, _RINGS[0], cp=context.value, value=reading.source.value(_ATTENTION, "flash_attention_2"))


def _waits_for_all_reduce(reading: Reading) -> bool:
    """Whether row-parallel layers reduce over all ranks; Llama's switch their asynchronous form off by themselves."""
    return str(reading.source.value("parallelism.tp_mode") or "ALL_REDUCE").upper() == "ALL_REDUCE" and not _is_llama(reading)


def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    if not reading.source.program or count_of(reading, "parallelism.tp", 0) < 2:
        return  # without a launch script nothing is known
    setting = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if differs(setting, "1"):
        yield at(setting, "1")


def _all_forward(reading: Reading) -> Values | None:
    stages, engine = count_of(reading, "parallelism.pp", 0), reading.source.value("parallelism.pp_engine")
    return values_if(stages > 1 and engine is None, microbatches=count_of(reading, "tokens.batch_accumulation_per_replica", 0))


def _demanded(reading: Reading, case: Case | None) -> Iterator[Values]:
    keys = reading.source.settings
    if not keys:
        return
    for section, fields in _DEMANDED.items():
        present = any(key.startswith(f"{section}.") for key in keys)
        if not present and section not in {"general", "parallelism", "model"}:
            continue  # optional sections
        for field in fields:
            name = f"{section}.{field}"
            if name not in keys and not any(key.startswith(f"{name}.") for key in keys):
                yield {"key": name, "expected": name}


def _positions(reading: Reading) -> Values | None:
    limit = count_of(reading, "model.model_config.max_position_embeddings", 0)
    return values_if(0 < limit < count_of(reading, "tokens.sequence_length", 0), limit=limit, expected=limit)


CHECKS = checks("nanotron", (
    Mistake("zero-stage", "zero_stage {value} is ZeRO-1: the code only asks whether it is above 0",
            At("optimizer.zero_stage", 1, above(1)), source="helpers.py, init_optimizer"),
    Mistake("expert-parallel-size", "expert_parallel_size {value} cannot work: it is no factor of the world, but the ranks are "
            "arranged by it", At("parallelism.expert_parallel_size", 1, above(1)), source="parallel/context.py, ParallelContext"),
    Mistake("context-attention", "context_parallel_size {cp} with {value}: each rank attends to its own part of the sequence only",
            _context_attention, source="models/qwen.py, CoreAttention.forward"),
    Mistake("context-init", "Init with Context parallel size > 1 not supported yet: resume_checkpoint_path must name weights",
            At(_CONTEXT, "checkpoints.resume_checkpoint_path", above(1),
               when=lambda reading: not reading.source.value("checkpoints.resume_checkpoint_path")),
            source="trainer.py, _load_model_checkpoint"),
    Mistake("reduce-scatter", "tp_mode {value} has no effect with tp 1",
            At("parallelism.tp_mode", "ALL_REDUCE", lambda value: str(value).upper() == "REDUCE_SCATTER",
               beside={"parallelism.tp": equal(1)}), "advice", "parallel/tensor_parallel/nn.py"),
    Mistake("async-all-reduce", "async_communication is not supported for ALL_REDUCE mode",
            At("parallelism.tp_linear_async_communication", False, is_true, when=_waits_for_all_reduce),
            source="parallel/tensor_parallel/nn.py, TensorParallelRowLinear"),
    Mistake("connections", "Env variable CUDA_DEVICE_MAX_CONNECTIONS should be set to 1 when using TP>1", _connections,
            source="parallel/tensor_parallel/nn.py"),
    Mistake("engine", "pp_engine is absent, so AFAB runs: every stage keeps the activations of all {microbatches} micro-batches",
            At("", "1f1b", when=_all_forward), "warning", "config/parallelism_config.py"),
    Mistake("tied-count", "the parameter count that nanotron prints counts tied embeddings twice",
            At("model.model_config.tie_word_embeddings", None, is_true), "advice", "config/config.py, _calculate_model_params"),
    Mistake("demanded", 'missing value for field "{key}"', _demanded, source="config/config.py"),
    Mistake("positions", "sequence_length {value} exceeds max_position_embeddings {limit}",
            At("tokens.sequence_length", when=_positions), "warning", "models/llama.py, RotaryEmbedding"),
))
