"""What the recipes of Megatron-Bridge set, by release: the values under those that a user's files set.

``recipe_values.csv``: a row is a recipe with its other names; ``base`` names a row above with what most recipes of its kind set,
the columns have degrees and batch, ``values`` the rest (``key=value``; ``-key``: not set, whatever the base says). What has the
default of its dataclass is left out. ``recipe_layouts.csv``: the pipeline layouts that Bridge's functions build for some stages.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.frameworks.bridge.recipes import ON_GPUS
from meshwright.frameworks.tables import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "tp": ("model.tensor_model_parallel_size",), "pp": ("model.pipeline_model_parallel_size",),
    "vp": ("model.virtual_pipeline_model_parallel_size",), "cp": ("model.context_parallel_size",),
    "ep": ("model.expert_model_parallel_size",), "etp": ("model.expert_tensor_parallel_size",),
    "sequence": ("model.seq_length", "dataset.seq_length"), "batch": ("train.global_batch_size",),
    "mb": ("train.micro_batch_size",),
}
"""Column of numbers -> the fields that it says."""
PACKS = {"0.3": "dataset.packed_sequence_specs", "main": "dataset.offline_packing_specs"}
"""Where a release says how samples are packed."""


class RecipeValues(Struct, frozen=True, kw_only=True):
    """A recipe at a release."""

    name: str
    release: str
    model: str | None
    """The model of the catalogue that it trains."""
    values: Mapping[str, object]
    """Field -> what it sets, where that is not the default of the dataclass."""

    @property
    def place(self) -> str:
        """What findings say of where a value stands."""
        return f"recipe {self.name} of {self.release}"


def recipe_values(name: str, release: str) -> RecipeValues | None:
    """What a recipe function sets; None for one that is not known."""
    row = _rows(release).get(name)
    if row is None or (not row["base"] and not row["model"] and not name.startswith("_")):  # a base is no recipe
        return None
    return RecipeValues(name=name, release=release, model=row["model"] or None, values=_values(name, release))


@cache
def names_with_values(release: str) -> frozenset[str]:
    """Every name of a recipe whose values are known."""
    return frozenset(name for name in _rows(release) if recipe_values(name, release) is not None)


@cache
def _rows(release: str) -> Mapping[str, Mapping[str, str]]:
    """Name -> row of a release; only main has names that tell a number of GPUs."""
    return {name: row for row in rows(__package__, "recipe_values.csv") if release in row["releases"].split("|")
            for name in row["recipe"].split("|") if release == "main" or not ON_GPUS.search(name)}


@cache
def _values(name: str, release: str) -> Mapping[str, object]:
    row = _rows(release)[name]
    found = dict(_values(row["base"], release)) if row["base"] else {}
    found |= dict(_columns(row, release))
    for word in row["values"].split():
        key, equals, text = word.partition("=")
        if equals:
            found[key] = _value(text)
        else:
            found.pop(key[1:], None)
    return found


def _columns(row: Mapping[str, str], release: str) -> Iterator[tuple[str, object]]:
    """What the columns say."""
    for column, keys in COLUMNS.items():
        if row[column]:
            yield from ((key, int(row[column])) for key in keys)
    if row["sp"]:
        yield "model.sequence_parallel", True
    if row["packs"]:
        yield f"{PACKS[release]}.packed_sequence_size", int(row["sequence"])
        if release == "main":
            yield "dataset.enable_offline_packing", True


def _value(text: str) -> object:
    """JSON where it is any, else text."""
    with suppress(ValueError):
        return json.loads(text)
    return text


class Layouts(Struct, frozen=True, kw_only=True):
    """The layouts that one of Bridge's functions builds."""

    title: str
    """What its refusals call the model."""
    known: Mapping[tuple[int, int], str | None]
    """Stages and chunks -> layout (None: none)."""


@cache
def layouts(release: str) -> Mapping[str, Layouts]:
    """Function that a script calls, or beginning of the recipes that have one of their own (``run_recipe`` asks it again)."""
    found: dict[str, dict[tuple[int, int], str | None]] = {}
    titles: dict[str, str] = {}
    for row in rows(__package__, "recipe_layouts.csv"):
        if release in row["releases"].split("|"):
            for name in row["asked_by"].split("|"):
                found.setdefault(name, {})[int(row["pp"]), int(row["vp"])] = row["layout"] or None
                titles[name] = row["title"]
    return {name: Layouts(title=titles[name], known=known) for name, known in found.items()}
