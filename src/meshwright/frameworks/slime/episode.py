"""The step of reinforcement learning that slime's scripts start: prompts, responses, optimizer steps, and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.episodes import number, share, whole
from meshwright.frameworks.facts import EpisodeSaid
from meshwright.frameworks.slime.flags import BATCH, PROMPTS, RESPONSES, STEPS

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Reading

PENALTIES, OWN = ("--kl-loss-coef", "--kl-coef"), "--use-rollout-logprobs"


def episode(reading: Reading) -> EpisodeSaid | None:
    """What a script says; None where nothing is generated.

    Source:  slime 624b824a slime/utils/arguments.py: a rollout of prompts x responses is cut into steps of the global batch.
    """
    prompts, responses = whole(reading, PROMPTS), whole(reading, RESPONSES, 1)
    longest = whole(reading, "--rollout-max-response-len")
    if prompts is None or longest is None:
        return None
    batch, steps = whole(reading, BATCH), whole(reading, STEPS)
    return EpisodeSaid(
        prompts=prompts, responses=responses, prompt_tokens=whole(reading, "--rollout-max-prompt-len"), longest_response=longest,
        updates=steps or (max(1, prompts * responses // batch) if responses and batch else None),
        old=reading.source.value(OWN, False) is not True,
        reference=any(number(reading, key) for key in PENALTIES),
        engine_tp=whole(reading, "--rollout-num-gpus-per-engine", 1), engine_memory=share(reading, "--sglang-mem-fraction-static"),
        engine_running=whole(reading, "--sglang-max-running-requests"),
    )
