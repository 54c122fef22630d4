"""A user's files upon the recipe that they start from: what they set, over what the recipe sets, over the dataclasses' defaults."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from meshwright.documents.opening import is_script
from meshwright.documents.source import Setting
from meshwright.errors import Message
from meshwright.frameworks.bridge.called import BENCHMARKS, call_of
from meshwright.frameworks.bridge.recipe_values import layouts, recipe_values
from meshwright.frameworks.bridge.said import FIGURES
from meshwright.frameworks.bridge.sources import Sectioned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.documents.source import Source
    from meshwright.frameworks.bridge.called import Call
    from meshwright.frameworks.bridge.recipe_values import Layouts, RecipeValues

PP, VP, LAYOUT = ("model.pipeline_model_parallel_size", "model.virtual_pipeline_model_parallel_size",
                  "model.pipeline_model_parallel_layout")
SHAPES = {"model"} | {f"model.{name}" for name in FIGURES} - {
    f"model.{name}" for name in ("num_layers", "mtp_num_layers", "vocab_size")
}
"""Fields that make another model of the recipe's; with fewer layers it is a part of the same."""
LENGTHS = ("dataset.seq_length", "dataset.sequence_length")
"""Two names of one field of a data set for pretraining."""


class Upon(Struct, frozen=True, kw_only=True):
    """Files, with the recipe's values beneath them."""

    source: Source
    recipe: RecipeValues | None
    """None where they start from none that is known."""
    model: str | None
    """The model of the catalogue that the recipe trains, where the files do not replace it."""
    message: Message | None = None
    """Why Bridge makes no pipeline layout of these stages."""


def upon_recipe(source: Source, release: str) -> Upon:
    """The files upon their recipe; as they are where its values are not known."""
    call = call_of(source, release)
    recipe = None if call is None or (call.by_words and call.recipe in BENCHMARKS) else recipe_values(call.recipe, release)
    if call is None or recipe is None:
        return Upon(source=source, recipe=None, model=None)
    gone = call.replaced | source.settings.keys()
    gone |= {other for key, other in (LENGTHS, LENGTHS[::-1]) if key in gone}
    values = {key: value for key, value in recipe.values.items() if not any(above in gone for above in (key, *_above(key)))}
    laid, message = _laid(source, call, recipe, values)
    beneath = {key: Setting(key=key, value=value, file=recipe.place) for key, value in {**values, **laid}.items()}
    documents = tuple(
        structs.replace(each, beneath=frozenset(beneath)) if isinstance(each, Sectioned) else each for each in source.documents
    )
    return Upon(
        source=replace(source, beneath=beneath, documents=documents), recipe=recipe, message=message,
        model=None if SHAPES & gone else recipe.model,
    )


def _above(key: str) -> tuple[str, ...]:
    """The sections that a field stands in; one that is set as a whole takes its fields with it.

    >>> _above("dataset.offline_packing_specs.packed_sequence_size")
    ('dataset', 'dataset.offline_packing_specs')
    """
    parts = key.split(".")
    return tuple(".".join(parts[:depth]) for depth in range(1, len(parts)))


def _laid(
    source: Source, call: Call, recipe: RecipeValues, values: Mapping[str, object]
) -> tuple[dict[str, object], Message | None]:
    """The pipeline layout that Bridge makes anew of the stages, where a script asks for it or words of main's ``run_recipe`` change
    their number; and why it makes none."""
    known = layouts(recipe.release)
    if call.setter:
        if call.layout is not None:
            return {LAYOUT: call.layout}, None
        built = known[call.setter].known.get(_stages(source, recipe.values, before=call.line), values.get(LAYOUT))
        return {LAYOUT: built}, None
    changed = any((setting := source.settings.get(key)) is not None and is_script(setting.file) for key in (PP, VP))
    owner = next((each for name, each in known.items() if recipe.name.startswith(f"{name}_")), None)
    if not (changed and call.by_words and recipe.release == "main" and owner) or LAYOUT in source.settings:
        return {}, None
    stages = _stages(source, recipe.values)
    return {LAYOUT: owner.known.get(stages)}, None if stages in owner.known else _unknown(owner, stages)


def _stages(source: Source, values: Mapping[str, object], before: int = 0) -> tuple[int, int]:
    """Stages and chunks of files upon a recipe's values; those that stand ``before`` a line of the program."""
    found = []
    for key in (PP, VP):
        setting = source.settings.get(key)
        own = setting is not None and (not before or (not is_script(setting.file) and setting.line < before))
        value = setting.value if own and setting is not None else values.get(key)
        found.append(value if type(value) is int else 1)
    return found[0], found[1]


def _unknown(owner: Layouts, stages: tuple[int, int]) -> Message:
    return Message(
        "bridge.layout-inferred", "Invalid PP and VP size: {stages} and {chunks} to infer PP layout for {title}. Known PP and VP "
        "combinations: {known}; set model.pipeline_model_parallel_layout",
        {"stages": stages[0], "chunks": stages[1], "title": owner.title, "known": ", ".join(map(str, sorted(owner.known)))},
    )
