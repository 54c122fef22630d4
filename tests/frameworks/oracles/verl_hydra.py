"""verl as judge of Hydra's words, from a checkout (development only): DIRECTORY holds its packages, the second argument the source.

Executed: the composition of its YAML with the words in ``argv`` (``--config-name`` among them), ``validate_config`` as the launcher
calls it, the dataclasses of rollout, reference and engine as the workers build them; of SFT those of its engine and optimizer.
Repeated: what a worker asserts without a function of its own. Ray, vLLM and Megatron are not started; they need not be there.
"""

from __future__ import annotations

import os
import sys
import typing
from pathlib import Path

from serving import Case, Judge, insist, serve

SFT = "sft_trainer_engine"


def ready(directory: str) -> Judge:
    source = Path(sys.argv[2])
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "VERL_USE_EXTERNAL_PLUGINS": "none"}
    sys.path[:0] = [directory, str(source)]
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    def judge(case: Case) -> typing.Any:
        words = [each for each in case.get("argv", []) if not each.startswith("--config-name=")]
        flags = [each for each in case.get("argv", []) if each.startswith("--config-name=")]
        named = [each.partition("=")[2].removesuffix(".yaml") for each in flags]
        name = named[-1] if named else SFT if case.get("checks", {}).get("tuning") else "ppo_trainer"
        with initialize_config_dir(config_dir=str(source / "verl" / "trainer" / "config"), version_base=None):
            config = compose(config_name=name, overrides=words)
        OmegaConf.to_container(config, resolve=True)
        if name == SFT:
            omega_conf_to_dataclass(config.optim)
            return omega_conf_to_dataclass(config.engine)
        references = need_reference_policy(config)
        validate_config(config, use_reference_policy=references, use_critic=need_critic(config))
        actor, rollout = config.actor_rollout_ref.actor, omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        insist(actor.use_dynamic_bsz == rollout.log_prob_use_dynamic_bsz, "AssertionError: use_dynamic_bsz")
        if references:
            section = OmegaConf.to_container(config.actor_rollout_ref.ref, resolve=True)
            omega_conf_to_dataclass(OmegaConf.create(_as_engine(section, actor)))
        world = config.trainer.n_gpus_per_node * config.trainer.nnodes
        size = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
        insist(world % size == 0, f"rollout world_size: {world} is not divisible by infer_world_size: {size}")
        return OmegaConf.to_container(actor, resolve=True)

    return judge


def _as_engine(reference: dict[str, typing.Any], actor: typing.Any) -> dict[str, typing.Any]:
    """The reference's section as ``engine_workers.py`` makes an actor's of it."""
    reference["ppo_mini_batch_size"] = actor.ppo_mini_batch_size
    for new, old in (
        ("ppo_micro_batch_size", "log_prob_micro_batch_size"),
        ("ppo_micro_batch_size_per_gpu", "log_prob_micro_batch_size_per_gpu"),
        ("use_dynamic_bsz", "log_prob_use_dynamic_bsz"), ("ppo_max_token_len_per_gpu", "log_prob_max_token_len_per_gpu"),
    ):
        reference[new] = reference.pop(old, None)
    return reference


if __name__ == "__main__":
    serve(ready)
