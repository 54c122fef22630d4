"""Published recipes are legal, fit, and are near our first plan by our own estimate, or the difference is explained."""

from __future__ import annotations

import pytest
from tests.evidence.recipe_cases import GAP, Recipe, outcome, recipes

ALL = recipes()


def test_there_are_enough_recipes_and_each_names_its_source() -> None:
    assert len(ALL) >= 15
    assert len({each.name for each in ALL}) == len(ALL)
    assert all(each.source for each in ALL)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ALL, ids=lambda each: each.name)
def test_recipe_is_legal_and_fits(recipe: Recipe) -> None:
    found = outcome(recipe)
    assert found.refused == ()
    assert found.recipe.fits, f"{found.recipe.memory_reserved_bytes / 2**30:.1f} GiB reserved"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ALL, ids=lambda each: each.name)
def test_recipe_is_near_our_plan_or_the_difference_is_explained(recipe: Recipe) -> None:
    found = outcome(recipe)
    comparison = f"{found.recipe.label} {found.recipe.step_s:.3f} s, ours {found.first.label} {found.first.step_s:.3f} s"
    if found.ratio > GAP:
        assert recipe.explained, f"{found.ratio:.2f} unexplained: {comparison}"
    else:
        assert not recipe.explained, f"{found.ratio:.2f} needs no explanation any more: {comparison}"
