"""Bubbles: exact fractions, and the event simulation against the closed form where stages are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from meshwright.domain.label import parse_layout
from meshwright.domain.layout import Layout
from meshwright.estimate import Evaluation, estimate, evaluate, simulate
from meshwright.estimate.combine import pipeline_time
from meshwright.estimate.simulate import simulated_bubble_s
from meshwright.estimate.stages import stage_costs, stage_inputs
from meshwright.perf.ends import EndTime
from meshwright.perf.seconds import seconds
from strategies import examples, small_case

SCHEDULES = ["1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"]


def _equal_stages(case, layout) -> Evaluation:
    """The evaluation with costless ends, so that all stages are alike."""
    found = evaluate(case, layout)
    free = EndTime(forward=seconds(), backward=seconds(), weight_gradient_s=found.costs.head.weight_gradient_s * 0.0)
    costs = structs.replace(found.costs, embedding=free, head=free)
    stages = stage_costs(stage_inputs(costs), found.composition)
    pipeline = pipeline_time(case, found.settings, found.composition, stages, found.degrees, hop_s=costs.hop_s)
    return structs.replace(found, costs=costs, stages=stages, time=structs.replace(found.time, pipeline=pipeline))


def _layout(schedule: str, stages: int, rounds: int, chunks: int) -> Layout:
    vp = {"interleaved": chunks, "dualpipev": 2}.get(schedule, 1)
    return Layout(pipeline_parallel=stages, virtual_stages=vp, schedule=schedule, num_microbatches=stages * rounds)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_simulated_bubble_is_the_closed_form_where_stages_are_equal(schedule):
    @examples(25)
    @given(st.integers(2, 5), st.integers(2, 4), st.integers(2, 3), st.sampled_from(("none", "full")))
    def check(stages, rounds, chunks, treatment):
        layout = _layout(schedule, stages, rounds, chunks)
        if treatment == "full":
            from meshwright.domain.layout import Full

            layout = replace(layout, recompute=Full())
        case = small_case(layers=stages * layout.virtual_stages * 2, devices=stages, batch=layout.num_microbatches)
        found = _equal_stages(case, layout)
        closed = float(found.time.pipeline.bubble_s)
        assert simulated_bubble_s(case, layout, found) == pytest.approx(closed, rel=1e-9, abs=1e-12)

    check()


@examples(20)
@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 4))
def test_bubble_fractions_are_those_of_the_papers(stages, rounds, chunks):
    schedule = "interleaved" if chunks > 1 and stages > 1 else "1f1b"
    layout = _layout(schedule, stages, rounds, chunks)
    case = small_case(layers=stages * layout.virtual_stages, devices=stages, batch=layout.num_microbatches)
    pipeline = _equal_stages(case, layout).time.pipeline
    p, m, v = stages, layout.num_microbatches, layout.virtual_stages
    share = float(pipeline.bubble_s) / (float(pipeline.bubble_s) + float(pipeline.work_s))
    assert share == pytest.approx((p - 1) / (m * v + p - 1), rel=1e-12)
    assert float(pipeline.bubble_s) / float(pipeline.work_s) == pytest.approx((p - 1) / (m * v), rel=1e-12)


@examples(30)
@given(st.sampled_from(SCHEDULES), st.integers(2, 4), st.integers(2, 3), st.integers(1, 8))
def test_the_simulated_step_is_at_least_the_busiest_stage_and_at_most_everything_in_turn(schedule, stages, rounds, extra):
    layout = _layout(schedule, stages, rounds, 2)
    case = small_case(layers=stages * layout.virtual_stages + extra, devices=stages, batch=layout.num_microbatches)
    found = evaluate(case, layout)
    bubble = simulated_bubble_s(case, layout, found)
    works = found.stages.forward_s + found.stages.backward_s
    everything = float(works.sum()) * layout.num_microbatches
    assert 0 <= bubble <= everything
    step = estimate(case, layout)
    assert step.time.bubble_s == pytest.approx(bubble)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layers", [8, 11, 13])
def test_long_pipelines_are_simulated_over_a_few_rounds_without_changing_the_bubble(schedule, layers, monkeypatch):
    layout = _layout(schedule, 4, 24, 2)
    case = small_case(layers=layers, devices=4, batch=96)
    found = evaluate(case, layout)
    short = simulated_bubble_s(case, layout, found)
    monkeypatch.setattr(simulate, "ROUNDS", 24)
    assert simulated_bubble_s(case, layout, found) == pytest.approx(short, rel=1e-9)


@examples(75)
@given(st.data())
def test_chunks_that_wait_for_each_other_do_so_in_every_round(data):
    """Interleaved, whatever stands on a chunk and whatever micro-batches are left over: the short form is the whole simulation, or
    a little above it where another path than the busiest stage's was the longest at first (pp4 vp2, [1,0,0,0;1,0,2,0], m 28)."""
    stages, chunks = data.draw(st.integers(2, 5)), data.draw(st.integers(2, 4))
    m = data.draw(st.integers(stages, 8 * stages))
    places = stages * chunks
    layers = data.draw(st.lists(st.integers(0, 3), min_size=places, max_size=places).filter(lambda each: 1 <= sum(each) <= 32))
    case = small_case("llama2-7b", devices=stages, batch=m, layers=sum(layers))
    even = parse_layout(f"pp{stages} vp{chunks} mb1", num_devices=stages, global_batch_sequences=m, model=case.model)
    rows = tuple(tuple(layers[chunk * stages : (chunk + 1) * stages]) for chunk in range(chunks))
    layout = replace(even, stage_layers=rows)
    found = evaluate(case, layout)
    work = float(np.max(found.stages.forward_s + found.stages.backward_s))
    whole = float(simulate.timeline(case, layout, found, hop_s=0.0).makespan_s)
    short = m * work + simulate.simulated_bubble_s(case, layout, found)
    assert whole * (1 - 1e-9) <= short <= whole * 1.01
