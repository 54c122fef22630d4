"""The step of reinforcement learning that NeMo-RL's recipes start: prompts, generations, optimizer steps, and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.episodes import number, share, whole
from meshwright.frameworks.facts import EpisodeSaid
from meshwright.frameworks.nemo_rl.keys import BATCH, ENGINE, LENGTH
from meshwright.frameworks.nemo_rl.sources import algorithm_of

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Reading

NEW, PENALTY = "policy.generation.max_new_tokens", "loss_fn.reference_policy_kl_penalty"


def episode(reading: Reading) -> EpisodeSaid | None:
    """What the recipe says; None where it is of another algorithm than GRPO.

    Prompts and responses are bounded apart only where ``max_new_tokens`` is less than the whole sequence.

    Source:  NeMo-RL 7ea279ab nemo_rl/algorithms/grpo.py: train_global_batch_size counts samples; without a KL penalty there is no
             reference.
    """
    if algorithm_of(reading.source) != "grpo":
        return None
    prompts, responses = (whole(reading, f"grpo.num_{name}") for name in ("prompts_per_step", "generations_per_prompt"))
    batch, longest, sequence = (whole(reading, key) for key in (BATCH, NEW, LENGTH))
    apart = sequence is not None and longest is not None and longest < sequence
    return EpisodeSaid(
        prompts=prompts, responses=responses, prompt_tokens=sequence - longest if apart and sequence and longest else None,
        longest_response=longest if apart else None,
        updates=max(1, prompts * responses // batch) if prompts and responses and batch else None,
        old=True, reference=number(reading, PENALTY) != 0.0,
        engine_tp=whole(reading, f"{ENGINE}.tensor_parallel_size"),
        engine_memory=share(reading, f"{ENGINE}.gpu_memory_utilization"),
    )
