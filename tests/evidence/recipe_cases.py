"""Recipes of ``tests/golden/recipes.yaml`` as cases, and our first plan beside each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.label import parse_layout
from meshwright.estimate import estimate
from meshwright.frameworks import framework
from meshwright.search import SearchOptions, layout_refusals
from meshwright.search.finding import find
from meshwright.search.plan import overlap_for
from meshwright.search.runner import Functions

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout

RECIPES = Path(__file__).resolve().parents[1] / "golden" / "recipes.yaml"
GAP = 1.10
MEMORY_RATIO = 0.95
"""Published recipes were tried on the device, so they may stand nearer to its edge than a first plan may."""
RISK = "equivalent"
"""Recipes of Bridge and NeMo tile TP collectives with their products; the search may do the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One published recipe."""

    name: str
    source: str
    model: str
    device: str
    devices: int
    framework: str
    precision: str
    batch: int
    sequence: int
    layout: str
    gradients: str = "fp32"
    optimizer: str = "adamw"
    deduplicated: bool = False
    explained: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A recipe and our first plan, both by our own estimate."""

    recipe: Estimate
    refused: tuple[str, ...]
    first: Estimate

    @property
    def ratio(self) -> float:
        """Step time of the recipe over that of our first plan."""
        return self.recipe.step_s / self.first.step_s


def recipes() -> tuple[Recipe, ...]:
    """All recipes of the file."""
    return tuple(Recipe(**block) for block in yaml.safe_load(RECIPES.read_text())["recipes"])


def case_of(recipe: Recipe, calibration: str = "none") -> Case:
    """The case of a recipe; without a calibration it is the formulas that are compared."""
    case = make_case(
        recipe.model, cluster_for(recipe.device, num_devices=recipe.devices), global_batch_sequences=recipe.batch,
        sequence_tokens=recipe.sequence, precision=recipe.precision, framework=recipe.framework,
        gradient_dtype=recipe.gradients, optimizer=recipe.optimizer,
        calibration=calibration,
    )
    implementation = replace(case.implementation, expert_deduplication=recipe.deduplicated)
    return replace(case, implementation=implementation, memory_ratio=MEMORY_RATIO)


def layout_of(recipe: Recipe, case: Case) -> Layout:
    """The layout of a recipe, with the overlap that the search has."""
    layout = parse_layout(
        recipe.layout, num_devices=recipe.devices, global_batch_sequences=recipe.batch,
        devices_per_node=case.cluster.devices_per_node, model=case.model, overlap=overlap_for(case, RISK),
    )
    return replace(layout, schedule="interleaved") if layout.virtual_stages > 1 else layout


@cache
def outcome(recipe: Recipe) -> Outcome:
    """Estimate the recipe and search for our own plan."""
    case, features = case_of(recipe), framework(recipe.framework).features
    layout = layout_of(recipe, case)
    result = find(case, features, SearchOptions(top=1, risk=RISK), Functions(), lean=True)
    return Outcome(recipe=estimate(case, layout), refused=layout_refusals(case, features, layout), first=result.plans[0].estimate)
