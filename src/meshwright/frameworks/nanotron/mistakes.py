"""What nanotron takes although it is wrong, and what its launch lacks (commit 2411b02, release 0.4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, count_of, differs
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

CHECKS: list[Check] = []
_rule = partial(file_rule, CHECKS)
_RINGS = ("llama3_ring_attention", "ring", "ring_flash_triton")
_ATTENTION = "model.model_config._attn_implementation"
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


@_rule(
    "nanotron.zero-stage",
    "zero_stage {value} is ZeRO-1: the code only asks whether it is above 0",
    source="helpers.py, init_optimizer",
)
def _zero_stage(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("optimizer.zero_stage")
    if setting and count_of(reading, setting.key, 0) > 1:
        yield at(setting, 1)


@_rule("nanotron.expert-parallel-size", "expert_parallel_size {value} cannot work: it is no factor of the world, but the "
       "ranks are arranged by it",
       source="parallel/context.py, ParallelContext")
def _expert_parallel(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("parallelism.expert_parallel_size")
    if setting and count_of(reading, setting.key, 0) > 1:
        yield at(setting, 1)


@_rule("nanotron.context-attention", "context_parallel_size {cp} with {value}: each rank attends to its own part of the "
       "sequence only",
       source="models/qwen.py, CoreAttention.forward")
def _context_attention(reading: Reading, case: Case | None) -> Iterator[Values]:
    context = reading.source.settings.get("parallelism.context_parallel_size")
    if context is None or count_of(reading, context.key, 0) < 2:
        return
    if reading.source.value("model.model_config.is_llama_config") is True:
        yield at(context, 1, cp=context.value, value="is_llama_config, whose attention knows no other ranks")
    elif reading.source.value(_ATTENTION, "flash_attention_2") not in _RINGS:
        yield at(context, _RINGS[0], cp=context.value, value=reading.source.value(_ATTENTION, "flash_attention_2"))


@_rule("nanotron.context-init", "Init with Context parallel size > 1 not supported yet: resume_checkpoint_path must name weights",
       source="trainer.py, _load_model_checkpoint")
def _context_init(reading: Reading, case: Case | None) -> Iterator[Values]:
    context = reading.source.settings.get("parallelism.context_parallel_size")
    if context and count_of(reading, context.key, 0) > 1 and not reading.source.value("checkpoints.resume_checkpoint_path"):
        yield at(context, "checkpoints.resume_checkpoint_path")


@_rule(
    "nanotron.reduce-scatter", "tp_mode {value} has no effect with tp 1", severity="advice", source="parallel/tensor_parallel/nn.py"
)
def _reduce_scatter(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("parallelism.tp_mode")
    if setting and str(setting.value).upper() == "REDUCE_SCATTER" and count_of(reading, "parallelism.tp", 0) == 1:
        yield at(setting, "ALL_REDUCE")


@_rule(
    "nanotron.async-all-reduce",
    "async_communication is not supported for ALL_REDUCE mode",
    source="parallel/tensor_parallel/nn.py, TensorParallelRowLinear",
)
def _async_all_reduce(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("parallelism.tp_linear_async_communication")
    llama = reading.source.value("model.model_config.is_llama_config") is True  # switches it off for row-parallel layers
    mode = str(reading.source.value("parallelism.tp_mode") or "ALL_REDUCE").upper()
    if setting and setting.value is True and mode == "ALL_REDUCE" and not llama:
        yield at(setting, False)


@_rule(
    "nanotron.connections",
    "Env variable CUDA_DEVICE_MAX_CONNECTIONS should be set to 1 when using TP>1",
    source="parallel/tensor_parallel/nn.py",
)
def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    if not reading.source.program or count_of(reading, "parallelism.tp", 0) < 2:
        return  # without a launch script nothing is known
    setting = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if differs(setting, "1"):
        yield at(setting, "1")


@_rule("nanotron.engine", "pp_engine is absent, so AFAB runs: every stage keeps the activations of all {microbatches} "
       "micro-batches",
       severity="warning", source="config/parallelism_config.py")
def _engine(reading: Reading, case: Case | None) -> Iterator[Values]:
    if count_of(reading, "parallelism.pp", 0) > 1 and reading.source.value("parallelism.pp_engine") is None:
        microbatches = count_of(reading, "tokens.batch_accumulation_per_replica", 0)
        yield {"value": None, "expected": "1f1b", "microbatches": microbatches}


@_rule("nanotron.tied-count", "the parameter count that nanotron prints counts tied embeddings twice", severity="advice",
       source="config/config.py, _calculate_model_params")
def _tied_count(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("model.model_config.tie_word_embeddings")
    if setting and setting.value is True:
        yield at(setting, None)


@_rule("nanotron.demanded", 'missing value for field "{key}"', source="config/config.py")
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


@_rule(
    "nanotron.positions",
    "sequence_length {value} exceeds max_position_embeddings {limit}",
    severity="warning",
    source="models/llama.py, RotaryEmbedding",
)
def _positions(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting, limit = (
        reading.source.settings.get("tokens.sequence_length"),
        count_of(reading, "model.model_config.max_position_embeddings", 0),
    )
    if setting and 0 < limit < count_of(reading, setting.key, 0):
        yield at(setting, limit, limit=limit)
