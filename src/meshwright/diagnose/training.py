"""What of a step of reinforcement learning is the training step that is predicted: an optimizer step of the actor's update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.diagnose.phases import Phases
    from meshwright.domain.observed.steady import Steady

COUNTS = (
    (("data.train_batch_size", "actor_rollout_ref.actor.ppo_epochs"), "actor_rollout_ref.actor.ppo_mini_batch_size"),
    (("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt"), "policy.train_global_batch_size"),
)
"""Keys whose values, multiplied and over that of another, are the optimizer steps of a step of reinforcement learning."""
DEFAULTS = {"actor_rollout_ref.actor.ppo_epochs": "1"}
"""What the frameworks have where nothing is said (verl: trainer/config/actor/actor.yaml)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The actor's update in a step of reinforcement learning; None where nobody says it."""

    update_s: float
    optimizer_steps: float | None
    tokens: float | None
    """Of an optimizer step."""

    @property
    def step_s(self) -> float | None:
        """Of one optimizer step: the update over their number."""
        return None if self.optimizer_steps is None else self.update_s / self.optimizer_steps


def training_of(phases: Phases, steady: Steady, settings: Mapping[str, str]) -> Training | None:
    """The training of a step that has phases; None where its log does not time the actor's update.

    ``settings``: of the log or of the framework's files, as these have them.
    """
    update_s = phases.time_s("actor")
    if update_s is None:
        return None
    counted = [each.optimizer_steps for each in steady.steps if each.optimizer_steps]
    steps = median(counted) if counted else _counted(settings)
    said = [each.tokens for each in steady.steps if each.tokens]
    tokens = median(said) / steps if said and steps is not None else None
    return Training(update_s=update_s, optimizer_steps=steps, tokens=tokens)


def _counted(settings: Mapping[str, str]) -> float | None:
    for factors, divisor in COUNTS:
        if divisor in settings and factors[0] in settings:
            values = [settings.get(key, DEFAULTS.get(key, "")) for key in (*factors, divisor)]
            if all(value.isascii() and value.isdigit() and 0 < int(value) < 10**12 for value in values):
                *above, below = map(int, values)
                return max(1.0, prod(above) / below)
    return None
