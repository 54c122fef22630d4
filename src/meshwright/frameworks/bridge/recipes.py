"""The recipes that Megatron-Bridge exports, by release, and which of them trains a model of the catalogue.

``recipes.csv``: the stem of a model's recipes, the tasks that it has one for, the section in which its model keeps the fields of
Megatron-Core, and whether tuning packs no samples. ``recipe_names.csv``: every recipe function, without those of main whose names
tell a number of GPUs.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.frameworks.tables import rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case

MODES = {"pretrain": "pretrain", "sft": "sft", "lora": "peft"}
"""Task -> the word that names of recipes have for it."""
NESTED = "model.transformer"
"""Where main keeps the fields of Megatron-Core of a model that is no provider."""
TOP = frozenset({"model.seq_length", "model.vocab_size"})
"""Fields of such a model that stand beside that section."""
ON_GPUS = re.compile(r"_[1-9][0-9]*gpu_")


class Recipe(Struct, frozen=True, kw_only=True):
    """A model's recipes at a release."""

    stem: str
    tasks: frozenset[str]
    section: str
    """``model``, or ``model.transformer``."""
    packs: bool
    """Whether its recipes for tuning pack samples."""

    def function(self, task: str) -> str:
        """The recipe of a task."""
        return f"{self.stem}_{MODES[task]}_config"


@cache
def recipes(release: str) -> Mapping[str, Recipe]:
    """Model of the catalogue -> its recipes."""
    return {
        row["model"]: Recipe(stem=row["stem"], tasks=frozenset(row["tasks"].split("|")), section=row["nested"] or "model",
                             packs=not row["unpacked"])
        for row in rows(__package__, "recipes.csv") if row["release"] == release
    }


@cache
def names(release: str) -> frozenset[str]:
    """Every recipe function, as far as its name does not tell a number of GPUs."""
    return frozenset(row["name"] for row in rows(__package__, "recipe_names.csv") if release in row["releases"].split("|"))


def exists(name: str, release: str) -> bool:
    """Whether a release has a recipe; of main's for a number of GPUs it is taken for granted."""
    return name in names(release) or (release == "main" and ON_GPUS.search(name) is not None)


def section_of(name: str, release: str) -> str:
    """The section in which the model of a recipe function keeps the fields of Megatron-Core."""
    stem = re.sub(r"_(pretrain|sft|peft)_.*", "", name)
    found = [each.section for each in recipes(release).values() if stem == each.stem or stem.startswith(f"{each.stem}_")]
    return found[0] if found else "model"


def recipe_of(case: Case, release: str) -> Recipe | None:
    """The recipes of the case's model that train its task; None where there are none, or the model is not the catalogue's."""
    from meshwright.catalog import load_model

    found = recipes(release).get(case.model.name)
    if found is None or case.training.task not in found.tasks or load_model(case.model.name) != case.model:
        return None
    return found


def spelled(key: str, section: str) -> str:
    """A field ``model.x`` as it stands in a section."""
    return key if section == "model" or not key.startswith("model.") or key in TOP else f"{section}.{key.removeprefix('model.')}"


def canonical(key: str) -> str:
    """A field ``model.transformer.x`` as ``model.x``."""
    return f"model.{key.removeprefix(NESTED + '.')}" if key.startswith(f"{NESTED}.") else key


def packs(case: Case, release: str) -> bool:
    """Whether tuning packs samples to whole sequences: as its recipe does, and where there is none."""
    recipe = recipe_of(case, release)
    return case.training.task != "pretrain" and (recipe is None or recipe.packs)
