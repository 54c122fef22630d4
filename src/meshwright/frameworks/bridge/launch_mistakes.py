"""What ``run_recipe`` refuses of a command line: recipes that are not there, words without a field, what tuning needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script
from meshwright.frameworks.asking import at, place_of
from meshwright.frameworks.bridge.called import call_of
from meshwright.frameworks.bridge.recipe_values import names_with_values
from meshwright.frameworks.bridge.recipes import NESTED, TOP, Recipe, canonical, exists, recipes, section_of
from meshwright.frameworks.bridge.teacher import distils
from meshwright.frameworks.rules import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_SECTIONS = frozenset({
    "model", "train", "validation", "ddp", "optimizer", "scheduler", "dataset", "logger", "tokenizer", "checkpoint", "dist", "rng",
    "rerun_state_machine",
})
"""Sections whose fields are the same whatever the recipe of a text model."""
_DERIVED = frozenset({
    "model.max_position_embeddings", "model.transformer", "model.pre_wrap_hooks", "model.post_wrap_hooks",
    "model.extra_checkpoint_metadata", "dataset.mock", "dataset.split_matrix", "dataset.token_dtype_code",
    "optimizer.soap_precondition_frequency",
})
"""Fields of some recipes, or that follow from others: no table has them."""
_PROVIDERS = ("GPTModelProvider(", "MLAModelProvider(")
_PACKS = ("dataset.packed_sequence_specs", "dataset.offline_packing_specs", "dataset.enable_offline_packing")


def recipe_named(reading: Reading) -> str | None:
    """The recipe function that a command line asks for, or a program calls; None where neither is known."""
    call = call_of(reading.source, reading.version)
    return None if call is None else call.recipe


def known_recipe(reading: Reading) -> Recipe | None:
    """The recipes of a model of the catalogue, where the command line asks for one of them."""
    name = recipe_named(reading)
    there = recipes(reading.version).values()
    return next((each for each in there if name in {each.function(task) for task in each.tasks}), None)


def is_packed(reading: Reading) -> bool:
    """Whether samples are packed: a size stands there, or the recipe packs and nothing says otherwise."""
    sizes = (reading.source.value(f"{key}.packed_sequence_size") for key in _PACKS[:2])
    if reading.source.value(_PACKS[2]) is False:
        return False
    if any(isinstance(size, int) and size > 0 for size in sizes):
        return True
    if reading.source.beneath:
        return False  # the recipe says so, or the files take its sizes out
    told = (reading.source.settings[key].value for key in _PACKS if key in reading.source.settings)
    recipe, unpacked = known_recipe(reading), any(value is None or value is False for value in told)
    return recipe is not None and recipe.packs and _is_tuned(reading) and not unpacked


def _is_tuned(reading: Reading) -> bool:
    name = recipe_named(reading)
    return "_sft_" in str(name) or "_peft_" in str(name) or reading.said.task in {"sft", "lora"}


def _words(reading: Reading) -> Iterator[tuple[str, Setting]]:
    """Overrides of the scripts as they are spelled, without those that add a field (``+key=``)."""
    for document in reading.source.documents:
        inner = getattr(document, "inner", document)
        if is_script(document.path):
            yield from (
                (key, setting) for key, setting in inner.settings().items()
                if not key.startswith("-") and f"+{key}=" not in document.text
            )


def _recipe(reading: Reading, case: Case | None) -> Iterator[Values]:
    call = call_of(reading.source, reading.version)
    if call is None:
        return
    name, imported = call.recipe, not call.by_words and call.recipe in names_with_values(reading.version)  # from its own module
    if not imported and not exists(name, reading.version):
        yield {"value": name, "expected": None, "path": place_of(reading, "--recipe", "--model")}


def _field(reading: Reading, case: Case | None) -> Iterator[Values]:
    """Words for which the configuration of a recipe has no field."""
    from meshwright.frameworks.bridge import surface

    if known_recipe(reading) is None and not _is_own_program(reading):
        return
    for key, setting in _words(reading):
        name = canonical(key)
        absent = surface().find(name, reading.version) is None and key not in _DERIVED and "_kwargs." not in key
        absent &= not (distils(reading) and surface().inside(name, reading.version))
        if (absent and key.partition(".")[0] in _SECTIONS) or key.startswith("peft."):
            yield at(setting, None, key=key)


def _is_own_program(reading: Reading) -> bool:
    """Whether a program beside the launch hands its words to a text model's configuration."""
    return any(
        "process_config_with_overrides" in document.text and any(name in document.text for name in _PROVIDERS)
        for document in reading.source.documents if not is_script(document.path)
    )


def _section(reading: Reading, case: Case | None) -> Iterator[Values]:
    """Fields beside the section in which a recipe's model keeps them."""
    name = recipe_named(reading)
    if name is None or distils(reading):  # a student is a provider
        return
    section = section_of(name, reading.version)
    for key, setting in _words(reading):
        nested = key.startswith(f"{NESTED}.")
        if key.startswith("model.") and key not in TOP | _DERIVED and nested != (section == NESTED):
            right = f"{section}.{key.removeprefix(NESTED + '.').removeprefix('model.')}"
            if nested or _belongs(key):
                yield at(setting, right, key=key)


def _belongs(key: str) -> bool:
    """Whether a field ``model.x`` is one of Megatron-Core's, which a plan or a user sets."""
    from meshwright.frameworks.bridge import surface

    found = surface().find(key, "main")
    return found is not None and bool(found.knob)


def _loss(reading: Reading, case: Case | None) -> Iterator[Values]:
    source = reading.source
    synced = reading.version == "main" and bool({"--recipe", "--model"} & source.settings.keys())
    if reading.layout is None or reading.layout.context_parallel == 1 or not _is_tuned(reading) or synced:
        return
    sees = source.setting("model.freeze_vision_model") is not None  # its data set is of another kind
    for key, wrong in (("model.calculate_per_token_loss", False), ("ddp.average_in_collective", True)):
        setting = source.setting(key)
        value = setting.value if setting is not None else False if source.beneath and not sees else None
        if value is wrong:
            place = place_of(reading, key, "model.context_parallel_size")
            yield {"value": value, "expected": not wrong, "path": place, "key": key.partition(".")[2], "wanted": not wrong}


def _weights(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = "checkpoint.pretrained_checkpoint"
    adapters = "_peft_" in str(recipe_named(reading)) or reading.said.task == "lora"
    stands = reading.source.settings.get(key)
    script = any(is_script(document.path) for document in reading.source.documents)
    if adapters and script and (stands is None or stands.value is None):
        yield {"value": None, "expected": "a path", "path": place_of(reading, key, "--recipe", "--model", "--mode")}


RUN_RECIPE = (
    Mistake("recipe", "Recipe '{value}' not found in megatron.bridge.recipes", _recipe,
            source="Megatron-Bridge scripts/training/run_recipe.py load_recipe"),
    Mistake("field", "Could not override '{key}'. To append to your config use +{key}: no field of the configuration, or one of "
            "adapters, which no word of a command line reaches", _field,
            source="Megatron-Bridge training/utils/omegaconf_utils.py parse_hydra_overrides"),
    Mistake("section", "Could not override '{key}': the model of this recipe has it as {expected}", _section,
            source="Megatron-Bridge training/utils/omegaconf_utils.py parse_hydra_overrides"),
    Mistake("per-token-loss", "When finetuning with CP>1, {key} must be {wanted}", _loss,
            source="Megatron-Bridge training/config.py validate"),
    Mistake("weights", "PEFT requires a pretrained checkpoint path", _weights,
            source="Megatron-Bridge training/config.py validate"),
)
