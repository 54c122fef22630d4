"""A layout of one replica overlaps no gradients, and what is compared with it may."""

from __future__ import annotations

import pytest

import meshwright as mw
from meshwright.domain.label import parse_layout
from meshwright.frameworks import framework, frameworks
from strategies import small_case

CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 2, "global_batch": 64, "sequence": 8192}
ONE, TWO = "tp8 pp2 dp1 mb1 sp zero0", "tp8 pp1 dp2 mb1 sp zero1"


def explained(layout):
    return mw.explain(mw.ExplainRequest(**CASE, layout=layout)).to_json()["explanation"]


def test_steps_to_more_replicas_are_not_refused_for_an_overlap_that_the_layout_has_not():
    """"tp 8 -> 4" was refused with "Must use --overlap-param-gather with --overlap-grad-reduce", and is 24 % faster."""
    steps = {each["change"]: each for each in explained(ONE)["sensitivities"]}
    assert not [why for each in steps.values() for why in each["refused_because"] or () if "overlap" in why]
    assert steps["tp 8 -> 4"]["step_change_ratio"] < -0.2


def test_the_guides_are_judged_by_the_same_grid_whatever_layout_is_explained():
    """"No legal layout of this case has micro-batch 2" was said of one where the best plans do."""
    one, two = ({each["rule"]: each for each in explained(layout)["judgements"]} for layout in (ONE, TWO))
    silent = {rule for rule, each in one.items() if "no legal layout" in each["sentence"]}
    assert silent == {rule for rule, each in two.items() if "no legal layout" in each["sentence"]}


@pytest.mark.parametrize("name", frameworks())
def test_what_a_layout_cannot_overlap_stays_as_it_was(name):
    case = small_case("llama3-8b", layers=4, devices=8, batch=8)
    layout = parse_layout("tp4 pp2 dp1 mb1 sp", num_devices=8, global_batch_sequences=8)
    assert framework(name).overlap(case, layout).gradient_reduce == layout.overlap.gradient_reduce
