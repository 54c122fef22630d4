"""The step of reinforcement learning that NeMo-RL's recipes start: prompts, generations, optimizer steps, and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.facts import EpisodeSaid
from meshwright.frameworks.nemo_rl.keys import BATCH, ENGINE, LENGTH
from meshwright.frameworks.nemo_rl.sources import algorithm_of

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Reading

NEW = "policy.generation.max_new_tokens"


def episode(reading: Reading) -> EpisodeSaid | None:
    """What the recipe says; None where it is of another algorithm than GRPO.

    Prompts and responses are bounded apart only where ``max_new_tokens`` is less than the whole sequence.

    Source:  NeMo-RL 7ea279ab nemo_rl/algorithms/grpo.py: train_global_batch_size counts samples; without a KL penalty there is no
             reference.
    """
    if algorithm_of(reading.source) != "grpo":
        return None
    prompts, responses = (_whole(reading, f"grpo.num_{name}") for name in ("prompts_per_step", "generations_per_prompt"))
    batch, longest, whole = _whole(reading, BATCH), _whole(reading, NEW), _whole(reading, LENGTH)
    apart = whole is not None and longest is not None and longest < whole
    share = reading.source.value(f"{ENGINE}.gpu_memory_utilization")
    return EpisodeSaid(
        prompts=prompts, responses=responses, prompt_tokens=whole - longest if apart and whole and longest else None,
        longest_response=longest if apart else None,
        updates=max(1, prompts * responses // batch) if prompts and responses and batch else None,
        old=True, reference=reading.source.value("loss_fn.reference_policy_kl_penalty") != 0,
        engine_tp=_whole(reading, f"{ENGINE}.tensor_parallel_size"),
        engine_memory=float(share) if isinstance(share, int | float) and 0 < share <= 1 else None,
    )


def _whole(reading: Reading, key: str) -> int | None:
    """A number of at least 1; None where it is none, absent, or only known to the run."""
    value = reading.source.value(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None
