"""What is run: only what the reference step can, all that it can of two ranks, and the plan's first in front."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_cases import OPTIONS, case, layouts

from meshwright.engine.refusals import refused
from meshwright.engine.run import request_of
from meshwright.measure.reference import FEATURES, planned
from meshwright.measure.rehearse.choice import chosen, short_label, spread, traits
from meshwright.search import layout_refusals


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_layout_of_the_pool_starts_and_stands_there_once(ranks: int) -> None:
    found = layouts(ranks)
    assert max(Counter(found).values()) == 1
    for layout in found:
        assert layout.world == ranks
        assert not refused(request_of(case(ranks), layout, OPTIONS), world=ranks), short_label(layout)
        assert not layout_refusals(case(ranks), FEATURES, layout), short_label(layout)


def test_the_pool_of_two_ranks_has_all_that_the_reference_step_has() -> None:
    every = frozenset().union(*map(traits, layouts(2)))
    assert every == {
        "tp1", "tp2", "sp=True", "sp=False", "cp1", "cp2", "pp1", "pp2", "dp1", "dp2", "ep1", "mb1", "mb2", "mb4", "mb8",
        "zero0", "zero1", "zero2", "zero3", "recompute=none", "recompute=full", "recompute=selective:core_attn",
        "schedule=1f1b vp1", "schedule=gpipe vp1", "schedule=zb1p vp1", "schedule=interleaved vp2", "schedule=dualpipev vp2",
    }


@pytest.mark.parametrize("ranks", [2, 4])
def test_twelve_layouts_show_every_knob_and_begin_with_the_plan(ranks: int) -> None:
    first = [plan.layout for plan in planned(case(ranks), OPTIONS, top=3).plans[:3]]
    found = chosen(case(ranks), OPTIONS, first, 12)
    assert found[:3] == tuple(first)
    assert len(set(found)) == 12
    shown = frozenset().union(*map(traits, found))
    assert {trait for layout in layouts(ranks) for trait in traits(layout)} <= shown


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_what_the_plan_proposes_the_reference_step_runs(ranks: int) -> None:
    plans = planned(case(ranks), OPTIONS, top=40).plans
    assert plans
    for plan in plans:
        assert not refused(request_of(case(ranks), plan.layout, OPTIONS), world=ranks), plan.label
        assert not plan.layout.overlap.gradient_reduce, "nothing runs beside compute on a processor"
        assert plan.layout.context_kind == "ulysses" or plan.layout.context_parallel == 1


@given(st.data())
def test_each_choice_shows_more_that_is_new_than_any_that_was_left(data: st.DataObject) -> None:
    every = data.draw(st.lists(st.sampled_from(layouts(2)), unique=True, max_size=12))
    times = {layout: data.draw(st.floats(0.1, 10.0), label="seconds") for layout in every}
    leaders = data.draw(st.lists(st.sampled_from(layouts(2)), unique=True, max_size=3))
    count = data.draw(st.integers(0, 14))
    found = spread(leaders, every, times, count)
    assert len(found) == len(set(found)) == min(count, len({*leaders, *every}))
    assert found[: len(leaders)] == tuple(leaders[:count])
    for place in range(len(leaders), len(found)):
        seen = frozenset().union(*map(traits, found[:place])) if place else frozenset[str]()
        new = len(traits(found[place]) - seen)
        assert all(len(traits(other) - seen) <= new for other in every if other not in found[:place])
