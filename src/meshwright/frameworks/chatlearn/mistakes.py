"""All checks of ChatLearn's files, and what it does with a key that it does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.chatlearn.episode_mistakes import EPISODE_CHECKS
from meshwright.frameworks.chatlearn.trainer_mistakes import TRAINER_CHECKS

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Severity

CHECKS = (*TRAINER_CHECKS, *EPISODE_CHECKS)


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Sections are dataclasses: other keys are refused."""
    if key.startswith("-"):
        return None
    if key.startswith("models.policy_trainer."):
        return "error", "MegatronPolicyTrainerConfig.__init__() got an unexpected keyword argument ({key})"
    return "error", "Key '{key}' not in its config class"
