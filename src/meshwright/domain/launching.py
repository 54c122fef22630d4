"""A case under the settings of a launch, and the settings that a case has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.launch import OFF, SETTINGS
from meshwright.domain.tower import HALF
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.model import Model
    from meshwright.domain.training import Training


def launched(case: Case, settings: Mapping[str, str]) -> Case:
    """The case under the settings of a launch; itself where there are none.

    Holds:   setting again what was set changes nothing; a dense model has no routing and no dispatcher, and these change nothing.
    """
    implementation, training, launch = case.implementation, case.training, case.launch
    graphs = settings.get("graphs")
    if graphs is not None:
        whole = graphs == "step"
        implementation = replace(
            implementation, cuda_graphs=whole, expert_host_sync=implementation.expert_host_sync and not whole,
        )
        launch = replace(launch, graphs="partial" if graphs == "partial" else "step" if whole else "none")
    if "routing" in settings:
        training = replace(training, balanced_routing=settings["routing"] == "balanced")
    if "dispatcher" in settings:
        implementation = replace(implementation, expert_deduplication=settings["dispatcher"] == "flex")
    launch = replace(
        launch, deterministic=_on(settings, "deterministic", launch.deterministic),
        attention_by_default=_on(settings, "attention", launch.attention_by_default),
        plain_host=_on(settings, "host", launch.plain_host),
        plain_optimizer=_on(settings, "optimizer", launch.plain_optimizer), given=launch.given | _said(settings),
        offloaded_checkpoints=_on(settings, "checkpoints", launch.offloaded_checkpoints),
        offloaded_layers=int(settings.get("offload_layers", launch.offloaded_layers)),
        slice_tokens=int(settings.get("slice_tokens", launch.slice_tokens)),
    )
    if "offload_modules" in settings:
        modules = settings["offload_modules"]
        launch = replace(launch, offloaded_modules=() if modules == "none" else tuple(modules.split("+")))
    model = case.model if "vision" not in settings else seeing(
        case.model, settings["vision"], int(settings.get("image_tokens", 0)), case.batch.sequence_tokens
    )
    if "vision" in settings and learns_beside_adapters(model, training):
        raise fault(
            "launch.vision-adapters", "vision=trained and --task lora contradict each other: adapters leave the tower frozen")
    return replace(case, model=model, implementation=implementation, training=training, launch=launch)


def _said(settings: Mapping[str, str]) -> set[str]:
    """Names of the settings that somebody chose: no tokens of images leave their number assumed."""
    return {name for name in settings if name != "image_tokens" or int(settings[name])}


def learns_beside_adapters(model: Model, training: Training) -> bool:
    """Whether a tower is trained in front of a model of which only adapters are."""
    return training.weights_frozen and model.tower is not None and model.tower.trained


def seeing(model: Model, vision: str, image_tokens: int, sequence_tokens: int) -> Model:
    """The model with the tower of its file in front of it, frozen or trained, or without it.

    ``image_tokens``: of every sequence; 0: half of it.

    Errors:  ``InputError`` for a model that has no tower, and for more tokens of images than a sequence has.
    """
    tower = model.vision
    if model.tower is not None and tower is None:
        raise fault(
            "launch.vision-counted", "vision={vision}: {model} has a tower of its own that is always counted; its YAML says "
            "trained and image_ratio", vision=vision, model=model.name,
        )
    if tower is None:
        if vision == "none":
            return model
        raise fault(
            "launch.vision", "vision={vision}: {model} has no vision tower that is described here; plan the config.json of a "
            "multi-modal class, or describe it in YAML (tower: docs/adding-a-model.md)", vision=vision, model=model.name,
        )
    if vision == "none":
        return replace(model, tower=None)
    if image_tokens > sequence_tokens:
        raise fault("launch.image-tokens", "image_tokens={tokens} is more than a sequence has: {sequence}",
                    tokens=image_tokens, sequence=sequence_tokens)
    share = image_tokens / sequence_tokens if image_tokens else HALF
    return replace(model, tower=replace(tower, trained=vision == "trained", image_ratio=share))


def _on(settings: Mapping[str, str], name: str, otherwise: bool) -> bool:
    """Whether a setting of two values has its second one."""
    return settings[name] == SETTINGS[name][1] if name in settings else otherwise


def settings_of(case: Case) -> dict[str, str]:
    """Every setting that means something for a case, as the case has it; what activations take, where somebody chose it."""
    launch, implementation = case.launch, case.implementation
    graphs = "step" if implementation.cuda_graphs else "partial" if launch.graphs == "partial" else "none"
    found = {
        "graphs": graphs, "deterministic": "on" if launch.deterministic else "off",
        "attention": "auto" if launch.attention_by_default else "named", "host": "plain" if launch.plain_host else "bound",
        "optimizer": "plain" if launch.plain_optimizer else "fused",
    }
    if case.model.is_moe:
        found["routing"] = "balanced" if case.training.balanced_routing else "natural"
        found["dispatcher"] = "flex" if implementation.expert_deduplication else "alltoall"
    moved = {
        "checkpoints": "host" if launch.offloaded_checkpoints else "device",
        "offload_modules": "+".join(launch.offloaded_modules) or "none",
        "offload_layers": str(launch.offloaded_layers), "slice_tokens": str(launch.slice_tokens),
    }
    if (tower := case.model.tower) is not None and case.model.vision is not None:
        found["vision"] = "trained" if tower.trained else "frozen"
        found["image_tokens"] = str(max(1, round(tower.image_ratio * case.batch.sequence_tokens)))
    return found | {name: value for name, value in moved.items() if value != OFF[name] or name in launch.given}
