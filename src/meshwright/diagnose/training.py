"""What of a step of reinforcement learning is the training step that is predicted: an optimizer step of the actor's update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import TYPE_CHECKING

from meshwright.words import integer

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run

ALIKE = 0.05
"""Steps whose tokens differ by less are of one length: our judgement."""
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


def training_of(run: Run) -> Training | None:
    """The training of a step that has phases; None of one that has none, and where its log does not time the actor's update."""
    update_s = None if run.phases is None else run.phases.time_s("actor")
    if update_s is None or run.steady is None:
        return None
    counted = [each.optimizer_steps for each in run.steady.steps if each.optimizer_steps]
    steps = median(counted) if counted else _counted({**run.settings, **(run.log.settings if run.log is not None else {})})
    said = [each.tokens for each in run.steady.steps if each.tokens]
    return Training(
        update_s=update_s, optimizer_steps=steps, tokens=median(said) / steps if said and steps is not None else None,
    )


def _counted(settings: Mapping[str, str]) -> float | None:
    for factors, divisor in COUNTS:
        if divisor in settings and factors[0] in settings:
            values = [settings.get(key, DEFAULTS.get(key, "")) for key in (*factors, divisor)]
            if all(value.isascii() and value.isdigit() and 0 < int(value) < 10**12 for value in values):
                *above, below = map(int, values)
                return max(1.0, prod(above) / below)
    return None


def comparable_s(run: Run) -> float | None:
    """Seconds of the training step that the prediction is of; None where nobody can say that it is of as many tokens."""
    if run.phases is None:
        return run.step_s
    training, case = run.training, run.case
    if training is None or training.tokens is None or case is None:
        return None
    return training.step_s if abs(training.tokens / case.batch.tokens - 1.0) <= ALIKE else None


def why_not(run: Run) -> str:
    """Why the prediction of a training step is not set beside a step of reinforcement learning; empty where it is."""
    if run.phases is None or run.predicted is None or run.case is None or comparable_s(run) is not None:
        return ""
    training = run.training
    if training is None:
        return "The log does not time the actor's update: nothing of a step is compared with the predicted training step."
    if training.optimizer_steps is None:
        return (
            "The actor's update is not compared with the predicted training step: how many optimizer steps it has is not known; "
            "the framework's files beside the log (--from) say it."
        )
    predicted = f"the predicted step is of {integer(run.case.batch.tokens)}"
    if training.tokens is None:
        return f"The actor's update is not compared with the predicted training step: the log counts no tokens, {predicted}."
    return (
        f"The actor's update is not compared with the predicted training step: an optimizer step of the log is of "
        f"{integer(training.tokens)} tokens, {predicted}; a plan of samples of "
        f"{integer(training.tokens / run.case.batch.global_batch_sequences)} tokens, their mean (plan --sequence), is of as many."
    )
