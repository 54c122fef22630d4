"""Published recipes are legal, fit, and are near our first plan by our own estimate, or the difference is explained.

The estimate is that of the formulas (calibration none). What a user is recommended is judged with the shipped calibration.
"""

from __future__ import annotations

import pytest
from tests.evidence.recipe_cases import GAP, RISK, Recipe, case_of, outcome, recipes

from meshwright.frameworks import framework
from meshwright.search import SearchOptions
from meshwright.search.finding import find
from meshwright.search.runner import Functions

ALL = recipes()
DEAR = ("deepseek", "405b", "qwen3-235b", "gpt3-175b", "gpt-oss-120b", "8x22b", "340b")
ALL_THE_SAME = "deepseek-v3 gb200 mxfp8"
"""Searches of a second and more: the matrix has them, but for one."""


def searched(turn: int) -> list[object]:
    """Every fourth recipe of those that are not dear, from the first or from the third on; the matrix has the others."""
    cheap = [each.name for each in ALL if not any(name in each.name for name in DEAR)]
    kept = {*cheap[2 * turn :: 4], *([] if turn else [ALL_THE_SAME])}
    return [pytest.param(each, id=each.name, marks=() if each.name in kept else pytest.mark.matrix) for each in ALL]


def test_there_are_enough_recipes_and_each_names_its_source() -> None:
    assert len(ALL) >= 15
    assert len({each.name for each in ALL}) == len(ALL)
    assert all(each.source for each in ALL)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", searched(0))
def test_recipe_is_legal_and_fits(recipe: Recipe) -> None:
    found = outcome(recipe)
    assert found.refused == ()
    assert found.recipe.fits, f"{found.recipe.memory_reserved_bytes / 2**30:.1f} GiB reserved"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", searched(0))
def test_recipe_is_near_our_plan_or_the_difference_is_explained(recipe: Recipe) -> None:
    found = outcome(recipe)
    comparison = f"{found.recipe.label} {found.recipe.step_s:.3f} s, ours {found.first.label} {found.first.step_s:.3f} s"
    if found.ratio > GAP:
        assert recipe.explained, f"{found.ratio:.2f} unexplained: {comparison}"
    else:
        assert not recipe.explained, f"{found.ratio:.2f} needs no explanation any more: {comparison}"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", searched(1))
def test_no_plan_that_more_likely_runs_out_of_memory_is_recommended(recipe: Recipe) -> None:
    case = case_of(recipe, "shipped")
    found = find(case, framework(recipe.framework).features, SearchOptions(top=5, risk=RISK), Functions(), lean=True)
    assert found.plans
    for each in found.plans:
        assert each.estimate.calibrated
        assert each.estimate.memory_fit_probability >= 0.5, each.label
        assert each.estimate.fits, each.label
