"""Counts of ChatLearn's files that contradict each other: samples of an episode, rollout, vision models (commit b7af31a9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, equal, is_true
from meshwright.frameworks.chatlearn.asking import is_megatron, number_of
from meshwright.frameworks.chatlearn.deciding import TRAINER
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_ROLLOUT, _SAMPLES = "models.policy", "runtime_args.sample_per_episode"


def _samples(by: str, default: int, name: str) -> Callable[[Reading], Values | None]:
    """Whether the samples of an episode are no multiple of a count: values ``samples`` and the count under its name."""

    def broken(reading: Reading) -> Values | None:
        samples, count = number_of(reading, _SAMPLES, 0), number_of(reading, by, default)
        if not samples or not count or samples % count == 0:
            return None
        return {"samples": samples, name: count, "value": samples, "expected": -(-samples // count) * count}

    return broken


def _generation_batch(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.layout is None or reading.source.value(f"{TRAINER}.packing") is True:
        return
    key = f"{TRAINER}.generation_batch_size"
    samples, size = number_of(reading, _SAMPLES, 0), number_of(reading, key, 1)
    each = (samples or 0) // reading.layout.data_parallel
    if samples and size and each % size:
        yield at(reading.source.settings.get(key), f"a divisor of {each}", samples=each, size=size, value=size)


def _rollout(reading: Reading) -> Values | None:
    world, tp = number_of(reading, f"{_ROLLOUT}.num_gpu", 0), number_of(reading, f"{_ROLLOUT}.tensor_model_parallel_size", 1)
    return values_if(world and tp and world % tp, world=world, tp=tp, expected=f"a multiple of {tp}")


def _is_other_than_one(value: object) -> bool:
    return isinstance(value, int) and value != 1


EPISODE_CHECKS = checks("chatlearn", (
    Mistake("episode", "runtime_args.sample_per_episode must be divisible by runtime_args.train_global_batch_size ({samples} % "
            "{batch})", At(_SAMPLES, when=_samples("runtime_args.train_global_batch_size", 0, "batch")),
            source="configs/runtime_config.py _validate_impl"),
    Mistake("samples", "runtime_args.sample_per_episode must be divisible by models.policy.num_inference_per_prompt ({samples} % "
            "{responses})", At(_SAMPLES, when=_samples(f"{_ROLLOUT}.num_inference_per_prompt", 32, "responses")),
            source="algorithm/grpo.py GrpoConfig._validate_impl"),
    Mistake("generation-batch", "sample_per_dp_rank of policy_trainer ({samples}) must be divisible by "
            "models.policy_trainer.generation_batch_size ({size}).", _generation_batch,
            source="algorithm/grpo.py GrpoConfig._validate_impl"),
    Mistake("rollout", "models.policy.num_gpu must be divisible by tensor_model_parallel_size ({world} % {tp})",
            At(f"{_ROLLOUT}.num_gpu", when=_rollout), source="configs/policy_config.py _validate_impl"),
    Mistake("rollout-degrees", "{words} Parallel of Policy model is not supported",
            tuple(At(f"{_ROLLOUT}.{name}_model_parallel_size", 1, _is_other_than_one, values={"words": words})
                  for name, words in (("expert", "Expert"), ("pipeline", "Pipeline"))),
            source="configs/policy_config.py _validate_impl"),
    Mistake("vision-packing", "We do not support megatron for vl training with packing. Please set packing to False or use fsdp to "
            "train vl model.",
            At(f"{TRAINER}.packing", False, is_true, beside={"runtime_args.model_type": equal("vlm")}, when=is_megatron),
            source="models/megatron_module.py init"),
))
