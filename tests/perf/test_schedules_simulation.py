"""The event simulation itself: rules, unequal stages, memory, published numbers, speed."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.draws import examples

from meshwright.perf.schedules import (
    BACKWARD,
    BACKWARD_INPUT,
    FORWARD,
    SCHEDULES,
    WEIGHT,
    lower_bound_s,
    simulate,
)

RTOL = 1e-9
NAMES = tuple(sorted(SCHEDULES))


@st.composite
def unequal(draw, names=NAMES):
    """An order and per-chunk times that differ everywhere."""
    name = draw(st.sampled_from(names))
    stages = draw(st.integers(1, 6))
    chunks = {"interleaved": draw(st.integers(2, 3)), "dualpipev": 2}.get(name, 1)
    microbatches = draw(st.integers(1, 12)) + (2 * stages if name == "dualpipev" else 0)
    times = draw(arrays(np.float64, (3, stages, chunks), elements=st.floats(0.1, 10.0)))
    order = SCHEDULES[name].order(stages, microbatches, num_chunks=chunks)
    named = dict(zip(("forward_s", "backward_input_s", "backward_weight_s"), times, strict=True))
    return order, named


def inputs_ready(order, timeline, hop, *, blocking=False):
    """For each operation, when its awaited result has arrived, recomputed from the definition."""
    place = np.array(order.virtual_stage)[timeline.stage, timeline.chunk]
    last = place.max()
    ends = {}
    stage_at = {}
    for kind, mb, where, stage, end in zip(timeline.kind, timeline.microbatch, place, timeline.stage, timeline.end_s, strict=True):
        ends[(BACKWARD if kind == BACKWARD_INPUT else int(kind)), int(mb), int(where)] = end
        stage_at[int(where)] = int(stage)
    ready = np.zeros(place.size)
    for index, (kind, mb, where) in enumerate(zip(timeline.kind, timeline.microbatch, place, strict=True)):
        if kind == FORWARD:
            need = (FORWARD, mb, where - 1) if where > 0 else None
        elif kind == WEIGHT:
            need = (BACKWARD, mb, where)
        else:
            need = (BACKWARD, mb, where + 1) if where < last else (FORWARD, mb, where)
        if need is not None:
            remote = stage_at[int(need[2])] != stage_at[int(where)]
            ready[index] = ends[int(need[0]), int(need[1]), int(need[2])] + hop * remote
    return ready


@examples(100)
@given(unequal(names=("1f1b", "gpipe", "interleaved", "zb1p")), st.floats(0.0, 3.0))
def test_operations_start_exactly_when_stage_and_input_are_ready(case, hop):
    order, times = case
    timeline = simulate(order, **times, hop_s=hop)
    free = np.concatenate(([0.0], timeline.end_s[:-1]))
    free[np.flatnonzero(np.diff(timeline.stage, prepend=-1))] = 0.0
    np.testing.assert_allclose(timeline.start_s, np.maximum(free, inputs_ready(order, timeline, hop)), rtol=RTOL, atol=1e-12)


@examples(60)
@given(unequal(names=("dualpipev",)), st.floats(0.0, 3.0))
def test_pairs_wait_for_both_inputs_and_never_overlap(case, hop):
    order, times = case
    timeline = simulate(order, **times, hop_s=hop)
    ready = inputs_ready(order, timeline, hop)
    assert (timeline.start_s >= ready - 1e-9).all()
    same = timeline.stage[1:] == timeline.stage[:-1]
    assert (timeline.start_s[1:][same] >= timeline.end_s[:-1][same] - 1e-9).all()
    first = np.concatenate(([0], np.cumsum([len(ops) for ops in order.stages])))
    for stage, pairs in enumerate(order.pairs):
        for index in (first[stage] + pair for pair in pairs):
            assert timeline.kind[index] == FORWARD
            assert timeline.start_s[index] >= ready[index + 1] - 1e-9
            assert timeline.start_s[index + 1] == pytest.approx(timeline.end_s[index])


@examples(120)
@given(unequal(), st.floats(0.0, 2.0), st.booleans())
def test_simulation_never_beats_the_lower_bound(case, hop, blocking):
    order, times = case
    timeline = simulate(order, **times, hop_s=hop, blocking=blocking)
    work = sum(times.values()).sum(axis=1) * order.num_microbatches
    assert timeline.makespan_s >= lower_bound_s(order, **times, hop_s=hop) * (1 - 1e-12)
    np.testing.assert_allclose(timeline.busy_s, work, rtol=RTOL)
    np.testing.assert_allclose(timeline.bubble_s, timeline.makespan_s - work, rtol=RTOL, atol=1e-9)


@examples(60)
@given(unequal(), st.floats(0.01, 2.0))
def test_hops_and_blocking_never_shorten_a_step(case, hop):
    order, times = case
    free = simulate(order, **times).makespan_s
    delayed = simulate(order, **times, hop_s=hop).makespan_s
    blocked = simulate(order, **times, hop_s=hop, blocking=True).makespan_s
    assert free <= delayed * (1 + 1e-12)
    assert delayed <= blocked * (1 + 1e-12)
    if order.num_stages == 1:
        assert free == delayed == blocked


@pytest.mark.parametrize(("stages", "hops"), [(2, 17), (3, 33), (4, 35), (8, 43)])
def test_blocking_senders_expose_two_hops_per_microbatch_of_1f1b(stages, hops):
    """2 M + 2 P - 5 for P > 2: each microbatch sends one activation and one gradient."""
    order = SCHEDULES["1f1b"].order(stages, 16, num_chunks=1)
    times = {"forward_s": 1.0, "backward_input_s": 1.0, "backward_weight_s": 1.0}
    free = simulate(order, **times).makespan_s
    assert simulate(order, **times, hop_s=0.01, blocking=True).makespan_s - free == pytest.approx(0.01 * hops)


def test_lower_bound_is_reached_by_one_microbatch_alone():
    order = SCHEDULES["zb1p"].order(4, 1, num_chunks=1)
    times = {"forward_s": 1.0, "backward_input_s": 2.0, "backward_weight_s": 0.0, "hop_s": 0.5}
    assert lower_bound_s(order, **times) == simulate(order, **times).makespan_s == 15.0


@examples(60)
@given(unequal(), st.floats(1.0, 3.0))
def test_a_slower_stage_never_shortens_a_step_and_time_scales(case, factor):
    order, times = case
    base = simulate(order, **times).makespan_s
    slower = {key: np.where(np.arange(order.num_stages)[:, None] == 0, value * factor, value) for key, value in times.items()}
    assert simulate(order, **slower).makespan_s >= base * (1 - 1e-12)
    doubled = {key: 2.0 * value for key, value in times.items()}
    assert simulate(order, **doubled).makespan_s == 2.0 * base


@examples(80)
@given(unequal(names=("1f1b",)))
def test_unequal_1f1b_stays_in_its_documented_band(case):
    order, times = case
    forward, backward = times["forward_s"], times["backward_input_s"] + times["backward_weight_s"]
    more = order.num_microbatches - 1
    step = simulate(order, **times).makespan_s
    assert step <= (forward + backward).sum() + more * (forward.max() + backward.max()) * (1 + 1e-12) + 1e-9
    proportional = simulate(order, forward_s=forward, backward_input_s=forward, backward_weight_s=forward).makespan_s
    closed = 3.0 * (forward.sum() + more * forward.max())
    assert proportional <= closed * (1 + 1e-12)


@examples(60)
@given(unequal(names=("gpipe",)))
def test_unequal_gpipe_is_two_flow_shops(case):
    order, times = case
    forward, backward = times["forward_s"], times["backward_input_s"] + times["backward_weight_s"]
    more = order.num_microbatches - 1
    expected = forward.sum() + backward.sum() + more * (forward.max() + backward.max())
    assert simulate(order, **times).makespan_s == pytest.approx(expected, rel=RTOL)


def test_the_slowest_stage_sets_the_pace_of_1f1b():
    """Sum of the stages and M - 1 times the slowest: exact when the slow stage is the last."""
    forward = np.array([8.0, 8.0, 8.0, 8.8])[:, None]
    step = simulate(
        SCHEDULES["1f1b"].order(4, 16, num_chunks=1),
        forward_s=forward,
        backward_input_s=forward,
        backward_weight_s=forward,
    ).makespan_s
    assert step == pytest.approx(3.0 * (forward.sum() + 15 * 8.8), rel=RTOL)


def test_kept_for_weight_holds_activations_longer():
    order = SCHEDULES["zb1p"].order(4, 16, num_chunks=1)
    times = {"forward_s": 1.0, "backward_input_s": 1.0, "backward_weight_s": 1.0}
    peaks = [simulate(order, **times, kept_for_weight=k).peak_held.tolist() for k in (0.0, 0.5, 1.0)]
    assert peaks == [[4.0, 3.0, 2.0, 1.0], [4.0, 3.5, 3.0, 2.5], [4.0, 4.0, 4.0, 4.0]]


@examples(60)
@given(unequal(), st.floats(0.0, 1.0))
def test_everything_held_is_freed(case, kept):
    order, times = case
    sizes = 1.0 + np.arange(order.num_stages * order.num_chunks).reshape(order.num_stages, -1)
    timeline = simulate(order, **times, activation=sizes, kept_for_weight=kept)
    assert (timeline.held > -1e-9).all()
    for stage, ops in enumerate(order.stages):
        kind, _, chunk = ops[-1]
        share = {BACKWARD: 1.0, BACKWARD_INPUT: 1.0 - kept, WEIGHT: kept}[kind]
        left = timeline.held[timeline.stage == stage][-1] - share * sizes[stage, chunk]
        assert left == pytest.approx(0.0, abs=1e-9)
        assert timeline.peak_held[stage] >= sizes[stage].max()


def published(name, chunk_times, microbatches, recompute=0.0, activation=None):
    """SAPP's conventions: rows are chunks, backward is twice the forward plus recompute."""
    forward = np.atleast_2d(np.array(chunk_times)).T
    again = np.atleast_2d(np.array(recompute)).T
    stages, chunks = forward.shape
    timeline = simulate(
        SCHEDULES[name].order(stages, microbatches, num_chunks=chunks),
        forward_s=forward,
        backward_input_s=2.0 * forward + again,
        backward_weight_s=0.0,
        activation=forward if activation is None else np.array(activation).T,
    )
    ideal = 3.0 * forward.sum() * microbatches
    return stages * timeline.makespan_s / ideal - 1.0, timeline.peak_held


def test_sapp_golden_peaks_of_1f1b():
    """mindspore-ai/toolkits pp_simulator.py, pp4 v1 m16 [8, 8, 8, 8.8]: peaks 32, 24, 16, 8.8."""
    _, peaks = published("1f1b", [8.0, 8.0, 8.0, 8.8], 16)
    np.testing.assert_allclose(peaks, [32.0, 24.0, 16.0, 8.8], rtol=RTOL)


def test_sapp_golden_bubble_of_interleaved_with_a_remainder():
    """pp15 v2 m16 without communication: 0.5741 of the ideal work; group 16 is chosen."""
    rows = [[3.0] * 15, [3.0] * 8 + [4.0] * 6 + [4.2]]
    bubble, peaks = published("interleaved", rows, 16)
    assert bubble == pytest.approx(0.5741, abs=5e-5)
    np.testing.assert_allclose(peaks[:8], [96.0] * 7 + [93.0], rtol=RTOL)


def test_sapp_golden_peaks_of_interleaved_where_nothing_is_recomputed():
    """pp8 v3 m16: 50, 46, 42, 38, 34 on stages 3 to 7 (earlier stages: other memory rules)."""
    _, peaks = published("interleaved", [[2.0] * 8] * 3, 16, activation=[[2.0] * 8] * 3)
    np.testing.assert_allclose(peaks[3:], [50.0, 46.0, 42.0, 38.0, 34.0], rtol=RTOL)


@pytest.mark.parametrize(
    ("name", "stages", "microbatches", "chunks"),
    [("interleaved", 16, 128, 4), ("1f1b", 64, 512, 1)],
)
def test_large_schedules_take_a_fraction_of_a_second(name, stages, microbatches, chunks):
    began = time.process_time()
    order = SCHEDULES[name].order(stages, microbatches, num_chunks=chunks)
    timeline = simulate(order, forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0)
    assert time.process_time() - began < 2.0
    assert timeline.kind.size == 2 * stages * microbatches * chunks
    assert timeline.makespan_s == pytest.approx(3.0 * (microbatches * chunks + stages - 1))
