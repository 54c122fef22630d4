"""All checks of verl's files, and what Hydra does with a key that it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.rules import Mistake, checks
from meshwright.frameworks.verl.batch_mistakes import batch_mistakes
from meshwright.frameworks.verl.engine_mistakes import engine_mistakes
from meshwright.frameworks.verl.rollout_mistakes import rollout_mistakes
from meshwright.frameworks.verl.sources import Hydra

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity
    from meshwright.frameworks.surface import Key, Surface

def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Hydra's composition is closed: other keys are refused, and those of a launcher are its own."""
    if key.startswith(("-", "ray_kwargs.", "hydra.")):
        return None
    return "error", "Could not override '{key}'. To append to your config use +{key}=..."


def _words(reading: Reading) -> Iterator[tuple[Setting, str]]:
    """Each word of a script, and what stands before it: nothing, ``+``, ``++`` or ``~``."""
    for document in reading.source.documents:
        if isinstance(document, Hydra) and document.is_script:
            prefixes = document.prefixes
            yield from ((setting, prefixes.get(key, "")) for key, setting in document.settings().items() if key[0] != "-")


def hydra_checks(name: str, surface: Surface, added: frozenset[str]) -> tuple[Mistake, ...]:
    """What Hydra and verl's dataclasses say of ``+``."""

    def known(reading: Reading, key: str) -> Key | None:
        return None if key in added else surface.find(key, reading.version)

    def appended(reading: Reading, case: Case | None) -> Iterator[Values]:
        for setting, prefix in _words(reading):
            key = known(reading, setting.key)
            if prefix == "+" and key is not None and key.default and key.kind not in {"list", "map"}:
                yield at(setting, f"{setting.key}={setting.value}", key=setting.key)

    def missing(reading: Reading, case: Case | None) -> Iterator[Values]:
        for setting, prefix in _words(reading):
            inside = surface.inside(setting.key, reading.version)
            if not prefix and known(reading, setting.key) is None and inside:
                yield at(setting, f"+{setting.key}={setting.value}", key=setting.key)

    def unexpected(reading: Reading, case: Case | None) -> Iterator[Values]:
        for setting, prefix in _words(reading):
            section, _, field = setting.key.rpartition(".")
            owner = _CLASSES.get(section)
            if prefix and owner and surface.find(setting.key, reading.version) is None and not surface.inside(
                setting.key, reading.version
            ):
                yield at(setting, None, key=field, owner=owner)

    return (
        Mistake("appended", "Could not append to config. An item is already at '{key}'.", appended,
                source="Hydra 1.3, composition of verl/trainer/config"),
        Mistake("not-appended", "Could not override '{key}'. To append to your config use +{key}=...", missing,
                source="Hydra 1.3, composition of verl/trainer/config"),
        Mistake("unexpected", "{owner}.__init__() got an unexpected keyword argument '{key}'", unexpected,
                source="verl/utils/config.py omega_conf_to_dataclass"),
    )


_CLASSES = {
    "actor_rollout_ref.actor": "ActorConfig", "actor_rollout_ref.actor.megatron": "McoreEngineConfig",
    "actor_rollout_ref.actor.fsdp_config": "FSDPEngineConfig", "engine": "EngineConfig",
    "actor_rollout_ref.rollout": "RolloutConfig", "actor_rollout_ref.actor.policy_loss": "PolicyLossConfig",
    "actor_rollout_ref.actor.checkpoint": "CheckpointConfig", "actor_rollout_ref.rollout.agent": "AgentLoopConfig",
    "actor_rollout_ref.rollout.checkpoint_engine": "CheckpointEngineConfig",
}
"""Section -> the dataclass that it becomes."""


def checks_of(name: str, section: str, surface: Surface, added: frozenset[str], release: str) -> tuple[Check, ...]:
    """Every check of one back end at a release."""
    rows = (*hydra_checks(name, surface, added), *engine_mistakes(section), *batch_mistakes(section), *rollout_mistakes(section))
    return checks(name, rows, release=release, source=f"verl {release}")
