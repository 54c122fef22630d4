"""The step of reinforcement learning that verl's files start: prompts, responses, optimizer steps, and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.episodes import share, whole
from meshwright.frameworks.facts import EpisodeSaid
from meshwright.frameworks.verl.keys import ACTOR, ROLLOUT
from meshwright.frameworks.verl.reading import DEFAULTS
from meshwright.frameworks.verl.sources import is_sft

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Reading

BYPASS = "algorithm.rollout_correction.bypass_mode"
REFERENCE = (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
ENGINE_TP, ENGINE_SHARE, ENGINE_RUNNING, EPOCHS = 2, 0.5, 256, 1
"""What verl's YAML has where files are silent."""


def episode(reading: Reading) -> EpisodeSaid | None:
    """What the files say; None of those of the SFT trainer.

    Source:  verl 1dda039b9 verl/trainer/config: train_batch_size and ppo_mini_batch_size count prompts, each of n responses.
    """
    if is_sft(reading.source):
        return None

    def said(key: str) -> int | None:
        return whole(reading, key, DEFAULTS[key])

    prompts, mini = said("data.train_batch_size"), said(f"{ACTOR}.ppo_mini_batch_size")
    return EpisodeSaid(
        prompts=prompts, responses=said(f"{ROLLOUT}.n"), prompt_tokens=said("data.max_prompt_length"),
        longest_response=said("data.max_response_length"),
        updates=max(1, prompts // mini) if prompts and mini else None, epochs=whole(reading, f"{ACTOR}.ppo_epochs", EPOCHS),
        old=reading.source.value(BYPASS, False) is not True,
        reference=any(reading.source.value(key, False) is True for key in REFERENCE),
        engine_tp=whole(reading, f"{ROLLOUT}.tensor_model_parallel_size", ENGINE_TP),
        engine_running=whole(reading, f"{ROLLOUT}.max_num_seqs", ENGINE_RUNNING),
        engine_memory=share(reading, f"{ROLLOUT}.gpu_memory_utilization", ENGINE_SHARE),
    )
