"""What ms-swift refuses of a run that samples completions, and what its defaults do there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, equal, other_than
from meshwright.frameworks.compose import Values
from meshwright.frameworks.ms_swift_megatron.reading import is_rl, surface
from meshwright.frameworks.rules import At, Mistake

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values as Found
    from meshwright.frameworks.settings import Reading

_ROLLOUT = "swift/megatron/trainers/rollout_mixin.py"
_UTILIZATION = 0.9
"""Of all memory, for the engine beside the trainer, where nothing is said."""


def _values(reading: Reading) -> Values:
    return Values(source=reading.source, surface=surface(), release=reading.version)


def _samples(reading: Reading, case: Case | None) -> Iterator[Found]:
    """Completions of a generation, which prompts, replicas and micro-batches divide."""
    values = _values(reading)
    if not is_rl(values):
        return
    batch, steps = values.int("generation_batch_size"), values.int("steps_per_generation")
    step, responses = values.int("global_batch_size", 16) or 16, _responses(values)
    setting = next((found for key in ("generation_batch_size", "steps_per_generation", "num_generations", "global_batch_size")
                    if (found := reading.source.settings.get(key)) is not None), None)
    if batch is not None and steps is not None and batch != step * steps:
        yield at(setting, step * steps, why=f"generation_batch_size ({batch}) must equal global_batch_size ({step}) * "
                 f"steps_per_generation ({steps}) = {step * steps}.")
        return
    if batch is not None and batch % step:
        yield at(setting, None, why=f"generation_batch_size ({batch}) must be divisible by global_batch_size ({step})")
        return
    batch = step * (steps or 1) if batch is None else batch
    if batch % responses:
        yield at(setting, None, why=f"generation_batch_size ({batch}) must be divisible by num_generations ({responses}).")
        return
    yield from ({**at(setting, None), "why": why} for why in _by_replica(reading, values, batch, responses))


def _responses(values: Values) -> int:
    """Completions of a prompt; distillation has one."""
    return 1 if values.text("rlhf_type", "dpo") == "gkd" else max(1, values.int("num_generations", 8) or 8)


def _by_replica(reading: Reading, values: Values, batch: int, responses: int) -> Iterator[str]:
    """What the ranks must divide, where their number is known."""
    world, prompts = reading.said.devices, batch // responses
    degrees = [values.int(f"{name}_parallel_size", 1) or 1 for name in ("tensor_model", "pipeline_model", "context")]
    inner = degrees[0] * degrees[1] * degrees[2]
    if not world or world % inner:
        return
    dp, mb = world // inner, values.int("micro_batch_size", 1) or 1
    if prompts % dp:
        yield (f"num_rollout_prompt ({prompts}) = generation_batch_size ({batch}) // num_generations ({responses}) must be "
               f"divisible by dp_size ({dp}).")
    elif prompts // dp % mb:
        yield (f"Per-device rollout prompt count ({prompts // dp}) = (generation_batch_size ({batch}) // num_generations "
               f"({responses})) // dp_size ({dp}) must be divisible by micro_batch_size ({mb}).")
    elif batch < world:
        yield f"per_device_generation_batch_size ({batch // world}) must be >= 1."


def _is_grpo(reading: Reading) -> bool:
    values = _values(reading)
    return is_rl(values) and values.text("rlhf_type", "dpo") == "grpo"


def _colocated(reading: Reading) -> bool:
    values = _values(reading)
    return is_rl(values) and values.text("vllm_mode") == "colocate"


def _engine_ranks(reading: Reading, case: Case | None) -> Iterator[Found]:
    size, world = _values(reading).int("vllm_tensor_parallel_size") or 1, reading.said.devices
    if _colocated(reading) and world and world % size:
        yield at(reading.source.settings.get("vllm_tensor_parallel_size"), None, size=size, world=world)


def _engine_memory(reading: Reading, case: Case | None) -> Iterator[Found]:
    """An engine that keeps most of the memory while the trainer works, or finds the trainer's state where it wants its own."""
    values = _values(reading)
    if not _colocated(reading):
        return
    share = values.number("vllm_gpu_memory_utilization", _UTILIZATION) or _UTILIZATION
    asleep = values.int("sleep_level") or 0
    setting = reading.source.settings.get("vllm_gpu_memory_utilization")
    if share > 0.5 and (not asleep or not (values.bool("offload_model") and values.bool("offload_optimizer"))):
        yield at(setting, "0.3 to 0.5, with sleep_level 1, offload_model and offload_optimizer", share=f"{share:g}",
                 why="keeps it while the policy is trained (sleep_level 0)" if not asleep
                 else "wants it beside the trainer's state, which stays on the GPU")


GENERATION = (
    Mistake("generation", "{why}", _samples),
    Mistake("iterations", "num_iterations > 1 is not supported for Megatron GRPO right now",
            At("num_iterations", "1", other_than(1, "1"), when=_is_grpo)),
    Mistake("engine", "use_vllm must be True for Megatron GRPO",
            At("use_vllm", "true", when=lambda reading: _is_grpo(reading) and not _values(reading).bool("use_vllm", True))),
    Mistake("asynchronous", "async_generate is not supported for Megatron GRPO right now",
            At("async_generate", "false", when=lambda reading: _is_grpo(reading) and _values(reading).bool("async_generate"))),
    Mistake("truncation", "GRPO requires `truncation_strategy 'left' or 'delete'`, Current value: `truncation_strategy='{value}'`.",
            At("truncation_strategy", "left", other_than("left", "delete"), when=_is_grpo)),
    Mistake("virtual-stages", "GRPO currently does not support VPP.",
            At("virtual_pipeline_model_parallel_size", "none", other_than(1, "1"), when=_is_grpo),
            source="swift/megatron/trainers/grpo_trainer.py"),
    Mistake("engine-mode", "Invalid vllm_mode: None",
            At("rlhf_type", "vllm_mode colocate", equal("grpo"), without=("vllm_mode",)), source=_ROLLOUT),
    Mistake("engine-ranks", "vllm_tensor_parallel_size ({size}) must divide world size ({world}) evenly.", _engine_ranks,
            source=_ROLLOUT),
    Mistake("engine-memory", "the engine takes {share} of all memory of a GPU and {why}", _engine_memory, "warning", _ROLLOUT),
)
"""Checks of reinforcement learning and distillation."""
