"""A case that is asked again: its answers are those of a case that is asked once, and what is known is not computed again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.estimate import estimate
from meshwright.estimate.several import estimates
from meshwright.search import SearchOptions, learnt, plan
from meshwright.search.prepared import Prepared
from meshwright.search.runner import Functions
from strategies import MEGATRON, small_case

CASE = small_case(layers=8, devices=8, batch=32)
ASKED = (SearchOptions(), SearchOptions(pins={"tp": "2"}), SearchOptions(objective="memory"), SearchOptions(weak=True))


def _bare(result):
    return replace(result, search_s=0.0)


def test_every_answer_is_that_of_a_case_that_is_asked_once():
    prepared = Prepared(case=CASE, features=MEGATRON, runner=Functions())
    for options in ASKED:
        assert _bare(prepared.plan(options)) == _bare(plan(CASE, MEGATRON, options))
    layout = prepared.plan().plans[0].layout
    assert prepared.what_if(layout) == estimate(CASE, layout)


@pytest.mark.parametrize("pins", [{}, {"tp": "2"}])
def test_nothing_is_estimated_twice(monkeypatch, pins):
    prepared = Prepared(case=CASE, features=MEGATRON, runner=Functions())
    prepared.plan(SearchOptions(pins=pins))
    asked = []
    monkeypatch.setattr(learnt, "estimates", lambda case, layouts, known: asked.extend(layouts) or estimates(case, layouts, known))
    prepared.plan(SearchOptions(pins=pins))
    assert not asked
