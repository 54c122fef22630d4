"""Counts of ChatLearn's files that contradict each other: samples of an episode, rollout, vision models (commit b7af31a9)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.chatlearn.asking import is_fsdp, number_of, setting_of
from meshwright.frameworks.chatlearn.deciding import TRAINER
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading

EPISODE_CHECKS: list[Check] = []
_rule = partial(file_rule, EPISODE_CHECKS)
_ROLLOUT = "models.policy"


@_rule("chatlearn.episode",
       "runtime_args.sample_per_episode must be divisible by runtime_args.train_global_batch_size ({samples} % {batch})",
       source="configs/runtime_config.py _validate_impl")
def _episode(reading: Reading, case: Case | None) -> Iterator[Values]:
    samples, batch = (number_of(reading, f"runtime_args.{name}", 0) for name in ("sample_per_episode", "train_global_batch_size"))
    if samples and batch and samples % batch:
        setting = reading.source.settings["runtime_args.sample_per_episode"]
        yield at(setting, -(-samples // batch) * batch, samples=samples, batch=batch, value=samples)


@_rule("chatlearn.samples",
       "runtime_args.sample_per_episode must be divisible by models.policy.num_inference_per_prompt ({samples} % {responses})",
       source="algorithm/grpo.py GrpoConfig._validate_impl")
def _samples(reading: Reading, case: Case | None) -> Iterator[Values]:
    samples = number_of(reading, "runtime_args.sample_per_episode", 0)
    responses = number_of(reading, f"{_ROLLOUT}.num_inference_per_prompt", 32)
    if samples and responses and samples % responses:
        setting = reading.source.settings["runtime_args.sample_per_episode"]
        yield at(setting, -(-samples // responses) * responses, samples=samples, responses=responses, value=samples)


@_rule("chatlearn.generation-batch",
       "sample_per_dp_rank of policy_trainer ({samples}) must be divisible by models.policy_trainer.generation_batch_size "
       "({size}).",
       source="algorithm/grpo.py GrpoConfig._validate_impl")
def _generation_batch(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.layout is None or reading.source.value(f"{TRAINER}.packing") is True:
        return
    samples = number_of(reading, "runtime_args.sample_per_episode", 0)
    size = number_of(reading, f"{TRAINER}.generation_batch_size", 1)
    each = (samples or 0) // reading.layout.data_parallel
    if samples and size and each % size:
        setting = reading.source.settings.get(f"{TRAINER}.generation_batch_size")
        yield {
            "samples": each,
            "size": size,
            "value": size,
            "expected": f"a divisor of {each}",
            "path": setting.place if setting else "",
        }


@_rule("chatlearn.rollout", "models.policy.num_gpu must be divisible by tensor_model_parallel_size ({world} % {tp})",
       source="configs/policy_config.py _validate_impl")
def _rollout(reading: Reading, case: Case | None) -> Iterator[Values]:
    world = number_of(reading, f"{_ROLLOUT}.num_gpu", 0)
    tp = number_of(reading, f"{_ROLLOUT}.tensor_model_parallel_size", 1)
    if world and tp and world % tp:
        setting = reading.source.settings[f"{_ROLLOUT}.num_gpu"]
        yield {"world": world, "tp": tp, "value": world, "expected": f"a multiple of {tp}", "path": setting.place}


@_rule(
    "chatlearn.rollout-degrees",
    "{words} Parallel of Policy model is not supported",
    source="configs/policy_config.py _validate_impl",
)
def _rollout_degrees(reading: Reading, case: Case | None) -> Iterator[Values]:
    for name, words in (("expert", "Expert"), ("pipeline", "Pipeline")):
        setting = reading.source.settings.get(f"{_ROLLOUT}.{name}_model_parallel_size")
        if setting is not None and isinstance(setting.value, int) and setting.value != 1:
            yield at(setting, 1, words=words)


@_rule("chatlearn.vision-packing",
       "We do not support megatron for vl training with packing. Please set packing to False or use fsdp to train vl model.",
       source="models/megatron_module.py init")
def _vision_packing(reading: Reading, case: Case | None) -> Iterator[Values]:
    packing = setting_of(reading, "packing")
    if (
        not is_fsdp(reading)
        and packing is not None
        and packing.value is True
        and reading.source.value("runtime_args.model_type") == "vlm"
    ):
        yield {"value": True, "expected": False, "path": packing.place}
