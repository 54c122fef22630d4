"""A first plan of a kind that nobody measured is said to be one, with what was measured beside it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import meshwright as mw
from meshwright.api.unmeasured import unmeasured
from meshwright.evidence.rows import attempts as index

pytestmark = pytest.mark.usefixtures("alone")

CASE = {"model": "qwen3-30b-a3b", "device": "h100-sxm", "nodes": 4, "global_batch": 512, "sequence": 4096, "framework": "megatron"}
SHARDED, SPLIT = "tp1 pp1 dp32 mb8 zero3 recompute=full", "tp1 pp1 ep8 dp32 mb1 zero1"
RUN = next(each for each in index.attempts() if each.best.id == "nv0779")


def said(monkeypatch, labels, *published, **changed):
    """What is said of plans in this order where these layouts were published."""
    monkeypatch.setattr(index, "attempts", lambda: [replace(RUN, best=replace(RUN.best, label=each)) for each in published])
    answers = [mw.estimate(mw.EstimateRequest(**{**CASE, **changed}, layout=each)) for each in labels]
    own = [each.estimate for each in answers]
    plans = [SimpleNamespace(rank=place, layout=each.layout, estimate=each) for place, each in enumerate(own, start=1)]
    return [str(each) for each in unmeasured(answers[0].given, SimpleNamespace(plans=plans))]


def test_the_first_plan_of_a_measured_kind_is_named(monkeypatch):
    (line,) = said(monkeypatch, [SHARDED, SPLIT], SPLIT)
    assert "no published run of megatron on hopper devices has a mixture of experts with sharded weights (ZeRO-3)" in line
    assert "all experts on each rank (ep1)" in line
    assert "plan 2 (" in line
    (line,) = said(monkeypatch, [SHARDED], SPLIT)
    assert "--pin zero=1 searches what has been" in line


@pytest.mark.parametrize("published", [(SHARDED,), (SPLIT, SHARDED), (), ("tp8 pp1 dp4 mb1 sp zero1",)])
def test_nothing_is_said_of_kinds_that_were_measured_or_where_none_was(monkeypatch, published):
    found = said(monkeypatch, [SHARDED, SPLIT], *published)
    assert len(found) == (published == ("tp8 pp1 dp4 mb1 sp zero1",)), "a mixture without ep is another kind"
    assert not said(monkeypatch, [SHARDED], SPLIT, device="mi300x"), "other devices say nothing"


@pytest.mark.parametrize(("label", "published", "lines"), [
    ("tp2 pp1 dp4 mb1 sp zero1", "tp1 pp1 dp8 mb1 zero3", 0), ("tp1 pp1 dp8 mb1 zero3", "tp2 pp1 dp4 mb1 sp zero1", 1),
])
def test_a_dense_model_that_gathers_nothing_needs_no_word(monkeypatch, label, published, lines):
    dense = {"model": "llama3-8b", "nodes": 1}
    monkeypatch.setattr(f"{__name__}.RUN", replace(RUN, best=replace(RUN.best, is_moe=False)))
    assert len(said(monkeypatch, [label], published, **dense)) == lines


def test_plan_says_it():
    notes = [each.id for each in mw.plan(mw.PlanRequest(**CASE, pin=("zero=3", "ep=1", "mb=8"), top=1)).result.notes]
    assert "plan.unmeasured" in notes
