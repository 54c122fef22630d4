"""An explanation sums up, is JSON, and survives every legal layout."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache

import pytest
from diagnose_cases import CASES, Given, case_of, explained, given
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as drawn
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.catalog import precision, shrink
from meshwright.domain.features import Features
from meshwright.domain.layout import Full, Layout, NoRecompute, Recompute, Selective
from meshwright.estimate.single import estimate
from meshwright.explain import explain, sections
from meshwright.judging.facts import Facts
from meshwright.judging.losses import CAUSES, losses
from meshwright.judging.neighbours import neighbours, shards, vary
from meshwright.search import layout_refusals


@pytest.mark.parametrize("name", CASES)
def test_points_sum_to_a_hundred_and_the_ideal_is_the_mfu(name: str) -> None:
    each, found = given(name), explained(name)
    own = estimate(each.case, each.layout)
    points = {loss.name: loss.points_percent for loss in found.losses}
    assert sum(points.values()) == pytest.approx(100.0, abs=1e-9)
    assert points["ideal"] == pytest.approx(100.0 * own.mfu_ratio, rel=1e-9)
    assert sum(loss.time_s for loss in found.losses) == pytest.approx(own.step_s, rel=1e-9)
    assert sum(cause.points_percent for cause in found.causes) == pytest.approx(100.0, abs=1e-9)


def test_every_term_has_a_cause() -> None:
    each = given("30b-moe")
    fp8 = replace(each.case, training=replace(each.case.training, precision=precision("fp8-blockwise")))
    for case in (each.case, fp8):
        assert {loss.cause for loss in losses(estimate(case, each.layout))} <= set(CAUSES.values())


@pytest.mark.parametrize("name", CASES)
def test_it_is_json_and_plain_lines(name: str) -> None:
    found = explained(name)
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["label"] == found.label
    for section in sections(found, all_rules=True):
        assert section.title and section.lines
        assert not any("{" in line or not all(line.split("\n")) for line in section.lines)
    assert len(sections(found)[-1].lines) < len(sections(found, all_rules=True)[-1].lines)


@pytest.mark.parametrize("name", CASES)
def test_the_memory_ladder_ends_at_the_layout(name: str) -> None:
    each, step = given(name), explained(name).fit
    own = estimate(each.case, each.layout)
    assert step.rungs[-1].memory_reserved_bytes == pytest.approx(own.memory_reserved_bytes, rel=1e-9)
    assert step.rungs[0].memory_reserved_bytes == step.unsharded_bytes >= step.rungs[-1].memory_reserved_bytes
    assert step.rungs[-1].fits == own.fits


@pytest.mark.parametrize("name", CASES)
def test_the_speed_ladder_ends_at_the_layout(name: str) -> None:
    each, step = given(name), explained(name).throughput
    own = estimate(each.case, each.layout)
    assert step.rungs[-1].step_s == pytest.approx(own.step_s, rel=1e-9)
    product = 1.0
    for rung in step.rungs:
        product *= 1.0 + rung.step_change_ratio
    assert product * step.rungs[0].step_s == pytest.approx(own.step_s, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_batch_is_a_product(name: str) -> None:
    step = explained(name).batch
    assert step.data_parallel * step.microbatch_sequences * step.num_microbatches == step.global_batch_sequences
    assert step.twice is None or step.twice.mfu_ratio >= estimate(given(name).case, given(name).layout).mfu_ratio


def test_the_start_is_near_four_billion_and_inside_the_guide() -> None:
    start = explained("70b-64-nodes").start
    assert start is not None
    assert start.fits and 4e9 / 1.5 <= start.parameters_per_device <= 4e9 * 1.5
    assert "mb1" in start.label and "cp" in start.label
    moe = explained("30b-moe").start
    assert moe is not None and moe.parameters_per_device == pytest.approx(30.5e9 / 8, rel=0.02)


def test_sensitivities_keep_devices_and_batch_or_say_why_not() -> None:
    found = explained("70b-64-nodes").sensitivities
    knobs = {each.knob for each in found}
    assert {"tp", "cp", "pp", "mb", "vp", "zero", "shard", "recompute", "sp", "overlap"} <= knobs
    assert any(each.refused_because for each in found) and any(each.label for each in found)
    for each in found:
        assert (each.label is None) == bool(each.refused_because)
    bubble = next(each for each in found if each.change == "vp 5 -> 4")
    assert bubble.step_change_ratio is not None and abs(bubble.step_change_ratio) < 0.05


def test_better_hardware_is_never_slower() -> None:
    for name in ("70b-64-nodes", "30b-moe"):
        for each in explained(name).what_ifs:
            assert each.step_change_ratio <= 1e-9, each.change


@pytest.mark.parametrize("name", CASES)
def test_neighbours_are_legal_and_as_large(name: str) -> None:
    each = given(name)
    for neighbour in neighbours(each.case, each.features, each.layout):
        if neighbour.layout is None:
            assert neighbour.refused_because
            continue
        layout = neighbour.layout
        assert layout.world == each.layout.world and layout != each.layout
        share = layout.data_parallel * layout.microbatch_sequences
        assert share * layout.num_microbatches == each.case.batch.global_batch_sequences
        assert not layout_refusals(each.case, each.features, layout)


def test_vary_says_which_division_fails() -> None:
    each = given("8b-one-node")
    assert "does not divide the 8 devices" in str(vary(each.case, each.features, each.layout, tensor_parallel=3))
    assert "does not divide the global batch" in str(vary(each.case, each.features, each.layout, microbatch_sequences=3))


def test_alternatives_contain_the_best_of_the_grid_and_this_layout() -> None:
    each = given("8b-one-node")
    facts = Facts(each.case, each.layout, each.features)
    own = estimate(each.case, each.layout)
    best = facts.best["any"]
    assert best.fits
    assert best.step_s <= own.step_s or not own.fits
    for name, found in facts.best.items():
        again = estimate(each.case, found.layout)
        assert found.step_s == again.step_s, name
        assert (found.memory_reserved_bytes, found.fits) == (again.memory_reserved_bytes, again.fits), name
        assert not found.fits or found.step_s >= best.step_s


@cache
def small(model: str) -> Given:
    case = case_of(model, "h100-sxm", 8, 16, 2048)
    case = replace(case, model=shrink(case.model, 8))
    features = Features(name="everything", zero_stages=(0, 1, 2, 3), parameter_shards_with_pipeline=True)
    return Given(case=case, layout=Layout(), features=features)


@settings(examples(10), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@drawn(
    model=st.sampled_from(("llama3-8b", "mixtral-8x7b")), tp=st.sampled_from((1, 2, 4)), cp=st.sampled_from((1, 2)),
    pp=st.sampled_from((1, 2, 4)), vp=st.sampled_from((1, 2)), ep=st.sampled_from((1, 2)), mb=st.sampled_from((1, 2, 4)),
    stage=st.integers(0, 3), recompute=st.sampled_from((NoRecompute(), Selective(), Full(), Full(layers=1))),
)
def test_any_legal_layout_is_explained(
    model: str, tp: int, cp: int, pp: int, vp: int, ep: int, mb: int, stage: int, recompute: Recompute
) -> None:
    each = small(model)
    assume(8 % (tp * cp * pp) == 0)
    dp = 8 // (tp * cp * pp)
    assume(16 % (dp * mb) == 0 and (tp * cp * dp) % ep == 0)
    layout = Layout(
        tensor_parallel=tp, sequence_parallel=tp > 1, context_parallel=cp, pipeline_parallel=pp, virtual_stages=vp,
        expert_parallel=ep, data_parallel=dp, microbatch_sequences=mb, num_microbatches=16 // (dp * mb), recompute=recompute,
        schedule="interleaved" if vp > 1 else "1f1b", **shards(stage if dp * cp > 1 else 0, dp * cp),
    )
    assume(not layout_refusals(each.case, each.features, layout))
    found = explain(each.case, layout, each.features)
    assert sum(loss.points_percent for loss in found.losses) == pytest.approx(100.0, abs=1e-9)
    assert not any("{" in judgement.sentence for judgement in found.judgements)
    json.dumps(asdict(found), allow_nan=False)
