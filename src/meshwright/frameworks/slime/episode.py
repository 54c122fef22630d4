"""The step of reinforcement learning that slime's scripts start: prompts, responses, optimizer steps, and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.episodes import number, share, whole
from meshwright.frameworks.facts import EpisodeSaid
from meshwright.frameworks.slime.flags import BATCH, PROMPTS, RESPONSES, STEPS

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Reading

LONGEST, OWN, ALONE = "--rollout-max-response-len", "--use-rollout-logprobs", "--debug-train-only"


def episode(reading: Reading) -> EpisodeSaid | None:
    """What a script says; None where nothing is generated.

    Source:  slime 624b824a slime/utils/arguments.py: a rollout of prompts x responses is cut into steps of the global batch;
             slime/ray/placement_group.py: ``with_ref=args.kl_coef != 0 or args.use_kl_loss``.
    """
    generates = any(key in reading.source.settings for key in (PROMPTS, LONGEST))
    if not generates or reading.said.task == "sft" or reading.source.value(ALONE) is True:
        return None
    prompts, responses, longest = whole(reading, PROMPTS), whole(reading, RESPONSES, 1), whole(reading, LONGEST)
    batch, steps = whole(reading, BATCH), whole(reading, STEPS)
    return EpisodeSaid(
        prompts=prompts, responses=responses, prompt_tokens=whole(reading, "--rollout-max-prompt-len"), longest_response=longest,
        updates=steps or (max(1, prompts * responses // batch) if prompts and responses and batch else None),
        old=reading.source.value(OWN, False) is not True,
        reference=reading.source.value("--use-kl-loss") is True or number(reading, "--kl-coef", 0.0) != 0.0,
        engine_tp=whole(reading, "--rollout-num-gpus-per-engine", 1), engine_memory=share(reading, "--sglang-mem-fraction-static"),
        engine_running=whole(reading, "--sglang-max-running-requests"),
    )
