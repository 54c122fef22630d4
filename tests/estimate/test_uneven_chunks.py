"""Chunks that are not alike: an estimate holds what the order of operations holds, not a mean over chunks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.domain.label import parse_layout
from meshwright.domain.layout import Full, NoRecompute
from meshwright.estimate.evaluate import evaluate, split_of
from meshwright.estimate.many import evaluate_many
from meshwright.estimate.split import treated_kinds
from meshwright.perf.schedules import SCHEDULES, simulate
from strategies import examples, small_case


@st.composite
def uneven(draw):
    """A case of one kind of layers or of several, and a layout with layers and recomputation by chunk."""
    name = draw(st.sampled_from(("llama2-7b", "gpt-oss-120b", "deepseek-v3")))
    schedule = draw(st.sampled_from(("1f1b", "interleaved", "interleaved", "dualpipev")))
    stages = draw(st.integers(2, 4))
    chunks = {"1f1b": 1, "dualpipev": 2}.get(schedule) or draw(st.integers(2, 4))
    least = 2 * stages if schedule == "dualpipev" else stages
    microbatches = draw(st.integers(least, 4 * stages))
    number = stages * chunks
    places = draw(st.lists(st.integers(0, 3), min_size=number, max_size=number).filter(lambda each: 4 <= sum(each) <= 32))
    layers = tuple(tuple(places[chunk * stages : (chunk + 1) * stages]) for chunk in range(chunks))
    case = small_case(name, devices=stages, batch=microbatches, layers=sum(places))
    text = f"pp{stages} vp{chunks} mb1" + (" schedule=dualpipev" if schedule == "dualpipev" else "")
    layout = parse_layout(text, num_devices=stages, global_batch_sequences=microbatches, model=case.model)
    again = tuple(tuple(draw(st.integers(0, count)) for count in row) for row in layers)
    full = draw(st.booleans())
    return case, replace(layout, stage_layers=layers, recompute=Full(layers=again) if full else NoRecompute())


def simulated_peaks(case, layout, evaluation):
    """The most that every stage holds on the way through its operations, by event simulation."""
    name = evaluation.settings.schedule
    kept = np.zeros((layout.pipeline_parallel, layout.virtual_stages))
    for treatment, layers in enumerate(treated_kinds(case.model, split_of(case, layout), layout.recompute,
                                                     folded=name == "dualpipev")):
        if layers is not None:
            saved = np.array([float(kind.saved_bytes[treatment]) for kind in evaluation.costs.kinds])
            kept += (layers @ saved).T
    order = SCHEDULES[name].order(layout.pipeline_parallel, layout.num_microbatches, num_chunks=layout.virtual_stages)
    return simulate(
        order, forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0, activation=kept, kept_for_weight=1.0
    ).peak_held


@examples(60)
@given(uneven())
def test_every_stage_holds_what_the_event_simulation_holds(drawn):
    case, layout = drawn
    found = evaluate(case, layout)
    assert found.activation.activations == pytest.approx(simulated_peaks(case, layout, found), rel=1e-12)


@examples(20)
@given(uneven())
def test_columns_hold_what_each_holds_alone(drawn):
    """Beside even layouts, which keep their bits, and twice over; alike stages are one row there."""
    case, layout = drawn
    even = replace(layout, stage_layers=None, recompute=NoRecompute())
    _, reserved = evaluate_many(case, [layout, even, layout, replace(layout, recompute=Full())])
    alone = [evaluate(case, each).memory.reserved_bytes.max() for each in (layout, even, layout, replace(layout, recompute=Full()))]
    assert reserved.tolist() == pytest.approx(alone, rel=1e-14)


def test_a_heavy_first_chunk_is_held_oftener_than_the_mean():
    """Two stages, two chunks, four micro-batches: stage 0 holds 4 of its first chunk and 1 of its second at once."""
    case = small_case("llama2-7b", devices=2, batch=4, layers=8)
    layout = parse_layout("pp2 vp2 mb1", num_devices=2, global_batch_sequences=4, model=case.model)
    layer = evaluate(case, layout).activation.activations[0] / (5 / 2 * 4)
    found = evaluate(case, replace(layout, stage_layers=((3, 2), (1, 2)))).activation
    assert found.activations == pytest.approx([layer * (4 * 3 + 1 * 1), layer * 3 * 2])
    assert found.in_flight == pytest.approx([13 / 4, 3 / 2])
