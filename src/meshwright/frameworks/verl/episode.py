"""The step of reinforcement learning that verl's files start: prompts, responses, optimizer steps, and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.facts import EpisodeSaid
from meshwright.frameworks.verl.keys import ACTOR, ROLLOUT
from meshwright.frameworks.verl.reading import DEFAULTS
from meshwright.frameworks.verl.sources import is_sft

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Reading

BYPASS = "algorithm.rollout_correction.bypass_mode"
ENGINE = {f"{ROLLOUT}.tensor_model_parallel_size": 2, f"{ROLLOUT}.gpu_memory_utilization": 0.5, f"{ACTOR}.ppo_epochs": 1}
"""What verl's YAML has where files are silent."""


def episode(reading: Reading) -> EpisodeSaid | None:
    """What the files say; None of those of the SFT trainer.

    Source:  verl 1dda039b9 verl/trainer/config: train_batch_size and ppo_mini_batch_size count prompts, each of n responses.
    """
    if is_sft(reading.source):
        return None
    prompts, mini = _whole(reading, "data.train_batch_size"), _whole(reading, f"{ACTOR}.ppo_mini_batch_size")
    epochs, share = _whole(reading, f"{ACTOR}.ppo_epochs"), reading.source.value(*_known(f"{ROLLOUT}.gpu_memory_utilization"))
    updates = None if None in (prompts, mini, epochs) else max(1, (prompts or 1) // (mini or 1)) * (epochs or 1)
    kept = (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
    return EpisodeSaid(
        prompts=prompts, responses=_whole(reading, f"{ROLLOUT}.n"), prompt_tokens=_whole(reading, "data.max_prompt_length"),
        longest_response=_whole(reading, "data.max_response_length"), updates=updates,
        old=reading.source.value(BYPASS, False) is not True,
        reference=any(reading.source.value(key, False) is True for key in kept),
        engine_tp=_whole(reading, f"{ROLLOUT}.tensor_model_parallel_size"),
        engine_memory=float(share) if isinstance(share, int | float) and 0 < share <= 1 else None,
    )


def _known(key: str) -> tuple[str, object]:
    return key, {**DEFAULTS, **ENGINE}[key]


def _whole(reading: Reading, key: str) -> int | None:
    """A number of at least 1; None where it is none, or only known to the run."""
    value = reading.source.value(*_known(key))
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None
