"""Closed forms against the event simulation, which is their oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.perf.schedules import (
    SCHEDULES,
    bubble_ratio_of_step,
    bubble_ratio_of_work,
    even_bubble_ratio,
    microbatch_group,
    simulate,
    step_s,
)

RTOL = 1e-9
NAMES = sorted(SCHEDULES)
seconds = st.floats(0.1, 10.0)


@st.composite
def cases(draw, names=NAMES, max_stages=8, max_microbatches=24):
    """A schedule with counts that its order can be built for."""
    name = draw(st.sampled_from(names))
    stages = draw(st.integers(1, max_stages))
    microbatches = draw(st.integers(1, max_microbatches))
    chunks = {"interleaved": draw(st.integers(2, 4)), "dualpipev": 2}.get(name, 1)
    if name == "dualpipev":
        microbatches += 2 * stages - 1
    return name, stages, microbatches, chunks


def simulated(case, forward, inputs, weights, hop=0.0, **options):
    name, stages, microbatches, chunks = case
    order = SCHEDULES[name].order(stages, microbatches, num_chunks=chunks)
    return simulate(
        order,
        forward_s=forward,
        backward_input_s=inputs,
        backward_weight_s=weights,
        hop_s=hop,
        **options,
    )


def bubble(case, forward, inputs, weights, hop=0.0):
    """The closed form for uniform chunks of the given times."""
    name, stages, microbatches, chunks = case
    return SCHEDULES[name].bubble_s(
        forward_s=forward * chunks,
        backward_input_s=inputs * chunks,
        backward_weight_s=weights * chunks,
        fill_s=(stages - 1) * (forward + inputs + weights) * chunks,
        hop_s=hop,
        num_stages=stages,
        num_microbatches=microbatches,
        num_chunks=chunks,
    )


def assert_closed_form_is_simulation(case, forward, inputs, weights, hop=0.0):
    _, _, microbatches, chunks = case
    work = microbatches * chunks * (forward + inputs + weights)
    predicted = step_s(work_s=work, bubble_s=bubble(case, forward, inputs, weights, hop))
    timeline = simulated(case, forward, inputs, weights, hop)
    assert float(predicted) == pytest.approx(timeline.makespan_s, rel=RTOL)
    np.testing.assert_allclose(timeline.busy_s, work, rtol=RTOL)


@examples(250)
@given(cases(), seconds, seconds, seconds)
def test_closed_form_equals_simulation_without_hops(case, forward, inputs, weights):
    assert_closed_form_is_simulation(case, forward, inputs, weights)


@examples(80)
@given(cases(names=["1f1b", "gpipe"]), seconds, seconds, st.floats(0.0, 20.0))
def test_hops_of_1f1b_and_gpipe_are_exact_at_any_length(case, forward, inputs, hop):
    assert_closed_form_is_simulation(case, forward, inputs, 1.0, hop)


@examples(80)
@given(cases(names=["interleaved"]), seconds, seconds, st.floats(0.0, 1.0))
def test_hops_of_interleaved_are_exact_up_to_a_chunk(case, forward, backward, share):
    hop = share * min(forward, backward)
    assert_closed_form_is_simulation(case, forward, 0.25 * backward, 0.75 * backward, hop)


@examples(80)
@given(cases(names=["zb1p"]), seconds, seconds, st.floats(0.0, 1.0), st.floats(0.0, 10.0))
def test_hops_of_zb1p_are_exact_for_modest_weights(case, forward, inputs, share, hop):
    assert_closed_form_is_simulation(case, forward, inputs, share * min(forward, inputs), hop)


@examples(80)
@given(cases(names=["dualpipev"]), seconds, seconds, seconds, st.floats(0.0, 0.02))
def test_hops_of_dualpipev_are_exact_when_short(case, forward, inputs, weights, share):
    hop = share * min(forward, inputs, weights)
    assert_closed_form_is_simulation(case, forward, inputs, weights, hop)


@examples(60)
@given(cases(names=["dualpipev"]), seconds, seconds, seconds, st.floats(0.02, 0.5))
def test_hops_of_dualpipev_are_within_two_up_to_half_a_chunk(case, forward, inputs, weights, share):
    hop = share * min(forward, inputs, weights)
    simulated_bubble = simulated(case, forward, inputs, weights, hop).bubble_s[0]
    assert abs(float(bubble(case, forward, inputs, weights, hop)) - simulated_bubble) <= 2.0 * hop


@examples(80)
@given(cases(names=["1f1b", "gpipe", "interleaved"]))
def test_exposed_hops_are_the_slope_of_the_simulation(case):
    name, stages, microbatches, chunks = case
    hop = 1e-3
    slope = (simulated(case, 1.0, 1.5, 0.5, hop).makespan_s - simulated(case, 1.0, 1.5, 0.5).makespan_s) / hop
    counted = SCHEDULES[name].exposed_hops(num_stages=stages, num_microbatches=microbatches, num_chunks=chunks)
    assert int(counted) == round(slope)


@examples(60)
@given(cases(names=["zb1p", "dualpipev"]), seconds, seconds, seconds)
def test_exposed_hops_of_split_schedules_bound_the_slope(case, forward, inputs, weights):
    name, stages, microbatches, chunks = case
    hop = 1e-4
    times = (forward, inputs, weights)
    slope = (simulated(case, *times, hop).makespan_s - simulated(case, *times).makespan_s) / hop
    counted = SCHEDULES[name].exposed_hops(num_stages=stages, num_microbatches=microbatches, num_chunks=chunks)
    assert slope <= int(counted) + 1e-3
    assert slope >= stages - 1 - 1e-3


@examples(150)
@given(cases())
def test_in_flight_equals_simulated_peak_on_every_stage(case):
    name, stages, microbatches, chunks = case
    counts = {
        "stage": np.arange(stages),
        "num_stages": stages,
        "num_microbatches": microbatches,
        "num_chunks": chunks,
    }
    schedule = SCHEDULES[name]
    until_input = simulated(case, 1.0, 1.0, 1.0).peak_held
    until_weight = simulated(case, 1.0, 1.0, 1.0, kept_for_weight=1.0).peak_held
    np.testing.assert_array_equal(np.broadcast_to(schedule.in_flight(**counts), stages), until_input)
    np.testing.assert_array_equal(np.broadcast_to(schedule.in_flight_until_weight(**counts), stages), until_weight)


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (4, 8), (8, 32), (16, 16)])
def test_textbook_bubble_ratios(stages, microbatches):
    for name, chunks in (("1f1b", 1), ("gpipe", 1)):
        idle = bubble((name, stages, microbatches, chunks), 1.0, 1.0, 1.0)
        step = bubble_ratio_of_step(work_s=3.0 * microbatches, bubble_s=idle)
        assert float(step) == pytest.approx((stages - 1) / (microbatches + stages - 1), rel=RTOL)
    if microbatches % stages == 0:
        for chunks in (2, 3, 5):
            work = 3.0 * microbatches * chunks
            idle = bubble(("interleaved", stages, microbatches, chunks), 1.0, 1.0, 1.0)
            of_step = float(bubble_ratio_of_step(work_s=work, bubble_s=idle))
            of_work = float(bubble_ratio_of_work(work_s=work, bubble_s=idle))
            assert of_step == pytest.approx((stages - 1) / (microbatches * chunks + stages - 1), rel=RTOL)
            assert of_work == pytest.approx((stages - 1) / (microbatches * chunks), rel=RTOL)


def test_published_zero_bubble_forms_hold_where_stated():
    forward, inputs, weights = 1.0, 1.25, 0.75
    assert float(bubble(("zb1p", 8, 32, 1), forward, inputs, weights)) == pytest.approx(7 * (forward + inputs - weights), rel=RTOL)
    equal = float(bubble(("dualpipev", 8, 32, 2), 1.0, 1.0, 1.0))
    assert equal == pytest.approx(7 * (1.0 + 2.0 - 1.0), rel=RTOL)  # (P-1) (F&B + B - 3 W)
    slow_backward = float(bubble(("dualpipev", 8, 32, 2), 1.0, 3.0, 1.0))
    assert slow_backward == pytest.approx(7 * (1.0 + 6.0 - 1.0) - 1.0, rel=RTOL)  # less one forward


def test_published_zero_bubble_forms_fail_for_heavy_weight_gradients():
    assert 7 * (1.0 + 1.0 - 3.0) < 0.0
    assert float(bubble(("zb1p", 8, 32, 1), 1.0, 1.0, 3.0)) == pytest.approx(7.0, rel=RTOL)
    assert float(bubble(("dualpipev", 8, 32, 2), 1.0, 1.0, 3.0)) == pytest.approx(14.0, rel=RTOL)


@examples(100)
@given(cases(max_microbatches=40), seconds, seconds, seconds)
def test_more_microbatches_never_raise_the_bubble_ratio(case, forward, inputs, weights):
    name, stages, microbatches, chunks = case
    work = chunks * (forward + inputs + weights)
    ratios = [
        float(bubble_ratio_of_step(work_s=m * work, bubble_s=bubble((name, stages, m, chunks), forward, inputs, weights)))
        for m in (microbatches, microbatches + 1, 2 * microbatches)
    ]
    assert ratios[1] <= ratios[0] * (1 + 1e-12)
    assert ratios[2] <= ratios[1] * (1 + 1e-12)


@examples(60)
@given(st.integers(2, 8), st.integers(1, 4), seconds, seconds, seconds)
def test_better_schedules_have_smaller_bubbles(stages, rounds, forward, inputs, weights):
    microbatches = 2 * rounds * stages
    plain = float(bubble(("1f1b", stages, microbatches, 1), forward, inputs, weights))
    assert float(bubble(("zb1p", stages, microbatches, 1), forward, inputs, weights)) <= plain * (1 + 1e-12)
    half = (forward / 2, inputs / 2, weights / 2)
    assert float(bubble(("interleaved", stages, microbatches, 2), *half)) == pytest.approx(plain / 2, rel=RTOL)


@pytest.mark.parametrize("name", NAMES)
def test_scalar_and_column_agree_bit_for_bit(name):
    random = np.random.default_rng(7)
    size = 200
    schedule = SCHEDULES[name]
    stages = random.integers(1, 17, size)
    counts = {
        "num_stages": stages,
        "num_microbatches": random.integers(1, 60, size) + (2 * stages if name == "dualpipev" else 0),
        "num_chunks": random.integers(2, 5, size) if name == "interleaved" else np.full(size, 2 - (name != "dualpipev")),
    }
    times = {
        key: random.uniform(0.01, 3.0, size) for key in ("forward_s", "backward_input_s", "backward_weight_s", "fill_s", "hop_s")
    }
    stage = random.integers(0, stages)

    def at(values, index):
        return {key: value[index].item() for key, value in values.items()}

    columns = (
        schedule.bubble_s(**times, **counts),
        schedule.in_flight(stage=stage, **counts),
        schedule.in_flight_until_weight(stage=stage, **counts),
        schedule.exposed_hops(**counts),
        schedule.accepts(**counts),
        schedule.messages(stage=stage, num_stages=stages, num_chunks=counts["num_chunks"]),
    )
    for index in range(size):
        one = at(counts, index)
        i = stage[index].item()
        scalars = (
            schedule.bubble_s(**at(times, index), **one),
            schedule.in_flight(stage=i, **one),
            schedule.in_flight_until_weight(stage=i, **one),
            schedule.exposed_hops(**one),
            schedule.accepts(**one),
            schedule.messages(stage=i, num_stages=one["num_stages"], num_chunks=one["num_chunks"]),
        )
        for column, scalar in zip(columns, scalars, strict=True):
            assert np.asarray(column)[index].tobytes() == np.asarray(scalar).tobytes()


def test_two_dimensional_columns_broadcast():
    stages = np.array([[2], [4], [8]])
    microbatches = np.array([8, 16, 32, 64])
    idle = SCHEDULES["1f1b"].bubble_s(
        forward_s=1.0,
        backward_input_s=1.0,
        backward_weight_s=1.0,
        fill_s=3.0 * (stages - 1),
        hop_s=0.5,
        num_stages=stages,
        num_microbatches=microbatches,
        num_chunks=1,
    )
    assert idle.shape == (3, 4)
    group = microbatch_group(stages, microbatches)
    np.testing.assert_array_equal(group, np.broadcast_to(stages, (3, 4)))


@given(cases(), seconds, seconds, seconds)
def test_the_bubble_of_even_stages_is_the_closed_form_as_a_share_and_the_textbooks(case, forward, inputs, weights):
    name, stages, microbatches, chunks = case
    ratio = float(even_bubble_ratio(
        name, num_stages=stages, num_microbatches=microbatches, num_chunks=chunks, forward_s=forward * chunks,
        backward_input_s=inputs * chunks, backward_weight_s=weights * chunks,
    ))
    work = microbatches * (forward + inputs + weights) * chunks
    own = float(bubble(case, forward, inputs, weights))
    assert ratio == pytest.approx(own / (work + own), abs=1e-12)
    if name in ("1f1b", "gpipe"):
        assert ratio == pytest.approx((stages - 1) / (microbatches + stages - 1))
    if name == "interleaved" and microbatches % stages == 0:
        assert ratio == pytest.approx((stages - 1) / (chunks * microbatches + stages - 1))
