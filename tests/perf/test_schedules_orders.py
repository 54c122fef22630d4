"""The orders: complete, legal, and those of the frameworks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.perf.schedules import (
    BACKWARD,
    BACKWARD_INPUT,
    FORWARD,
    SCHEDULES,
    WEIGHT,
    accepts_group,
    microbatch_group,
    simulate,
)
from meshwright.perf.schedules.interleaved import in_flight_interleaved, order_interleaved

LETTERS = "FBIW"


def spell(order, stage):
    """Kind, microbatch and, with several chunks, chunk: F0 F1 B0 .."""
    tail = (lambda c: "abcd"[c]) if order.num_chunks > 1 else (lambda _: "")
    return " ".join(f"{LETTERS[kind]}{m}{tail(c)}" for kind, m, c in order.stage(stage))


def order_of(name, stages, microbatches, chunks):
    return SCHEDULES[name].order(stages, microbatches, num_chunks=chunks)


def unit_times(order, **options):
    return simulate(order, forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0, **options)


def test_1f1b_order_is_megatrons():
    order = order_of("1f1b", 3, 4, 1)
    assert spell(order, 0) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert spell(order, 1) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert spell(order, 2) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_interleaved_order_is_megatrons():
    order = order_of("interleaved", 2, 4, 2)
    assert spell(order, 0) == "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a"
    assert spell(order, 1) == "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"


def test_zb1p_order_is_the_handmade_one():
    order = order_of("zb1p", 3, 4, 1)
    assert spell(order, 0) == "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3"
    assert spell(order, 2) == "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"


def test_dualpipev_order_is_deepseeks():
    order = order_of("dualpipev", 2, 4, 2)
    assert spell(order, 0) == "F0a F1a F2a F0b I0b W0b F1b F3a B1b F2b B0a B2b F3b B1a B3b I2a W2a I3a W3a"
    assert spell(order, 1) == "F0a F0b F1a F1b F2a B0b F2b B0a F3a B1b F3b B1a B2b B2a I3b I3a W3b W3a"
    assert [sorted(pairs) for pairs in order.pairs] == [[7, 9, 12], [6, 8, 10]]


@examples(120)
@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 9), st.integers(1, 20), st.integers(2, 4))
def test_every_order_is_complete_and_does_not_deadlock(name, stages, microbatches, chunks):
    chunks = {"interleaved": chunks, "dualpipev": 2}.get(name, 1)
    microbatches += 2 * stages if name == "dualpipev" else 0
    order = order_of(name, stages, microbatches, chunks)
    wanted = {(m, c) for m in range(microbatches) for c in range(chunks)}
    for ops in order.stages:
        for kinds in ((FORWARD,), (BACKWARD, BACKWARD_INPUT)):
            seen = [(m, c) for kind, m, c in ops if kind in kinds]
            assert len(seen) == len(wanted)
            assert set(seen) == wanted
    makespan = unit_times(order).makespan_s
    assert makespan >= 3.0 * chunks * microbatches


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb1p", "interleaved"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 5), (5, 1), (6, 2), (4, 3)])
def test_corner_counts_run(name, stages, microbatches):
    order = order_of(name, stages, microbatches, 3 if name == "interleaved" else 1)
    bubble = unit_times(order).bubble_s
    assert bubble.shape == (stages,)
    assert (bubble == 0.0).all() if stages == 1 else (bubble > 0.0).all()


def with_stages(order, stages):
    """The order with other operations."""
    return type(order).of(
        name="x", num_microbatches=order.num_microbatches, virtual_stage=order.virtual_stage, stages=stages, pairs=order.pairs
    )


def test_swapped_operations_deadlock():
    order = order_of("1f1b", 2, 2, 1)
    backward_first = ((FORWARD, 1, 0), (BACKWARD, 1, 0), (FORWARD, 0, 0), (BACKWARD, 0, 0))
    stalled = with_stages(order, (((FORWARD, 0, 0), (BACKWARD, 0, 0), (FORWARD, 1, 0), (BACKWARD, 1, 0)), backward_first))
    with pytest.raises(AssertionError, match=r"deadlock: stages \[0, 1\]"):
        unit_times(stalled)


def test_backward_before_its_forward_deadlocks():
    order = order_of("gpipe", 1, 1, 1)
    stages = (((BACKWARD, 0, 0), (FORWARD, 0, 0)),)
    with pytest.raises(AssertionError, match="deadlock: a backward precedes its forward"):
        unit_times(with_stages(order, stages))


@pytest.mark.parametrize("ops", [((FORWARD, 0, 0),), ((FORWARD, 0, 0), (BACKWARD_INPUT, 0, 0))])
def test_missing_operations_are_noticed(ops):
    order = order_of("gpipe", 1, 1, 1)
    with pytest.raises(AssertionError):
        unit_times(with_stages(order, (ops,)))


def test_repeated_weight_gradients_are_noticed():
    order = order_of("zb1p", 1, 1, 1)
    ops = (*order.stage(0), (WEIGHT, 0, 0))
    with pytest.raises(AssertionError, match="repeated"):
        unit_times(with_stages(order, (ops,)))


def test_group_of_stages_with_a_short_last_group_stalls_or_deadlocks():
    """Why Megatron refuses it, and why Calculon's extra term is not used."""
    assert not accepts_group(4, 6, 4)
    stalled = unit_times(order_interleaved(4, 6, num_chunks=2, group=4))
    extra = stalled.makespan_s - 6 * 2 * 3.0 - 3 * 3.0
    assert extra == pytest.approx(10.0)
    assert extra > (2 - 1) * (4 - 6 % 4) * 3.0  # Calculon: (V-1) (P - M mod P) (f + b)
    assert not accepts_group(4, 5, 4)
    with pytest.raises(AssertionError, match="deadlock"):
        unit_times(order_interleaved(4, 5, num_chunks=3, group=4))


@examples(60)
@given(st.integers(2, 7), st.integers(0, 25), st.integers(2, 3), st.integers(0, 25))
def test_every_group_that_megatron_accepts_fills_only_once(stages, more, chunks, larger):
    microbatches, group = stages + more, stages + larger
    if not accepts_group(stages, microbatches, group):
        group = int(microbatch_group(stages, microbatches))
    order = order_interleaved(stages, microbatches, num_chunks=chunks, group=group)
    timeline = unit_times(order)
    assert timeline.makespan_s == pytest.approx(3.0 * (microbatches * chunks + stages - 1), rel=1e-9)
    held = in_flight_interleaved(
        stage=np.arange(stages),
        num_stages=stages,
        num_microbatches=microbatches,
        num_chunks=chunks,
        group=group,
    )
    np.testing.assert_array_equal(timeline.peak_held, held)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 7, 8])
def test_microbatch_group_is_the_smallest_that_megatron_accepts(stages):
    for microbatches in range(stages, 60):
        legal = [g for g in range(1, microbatches + 1) if accepts_group(stages, microbatches, g)]
        assert int(microbatch_group(stages, microbatches)) == min(legal)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_messages_are_counted_over_the_order(name):
    stages, microbatches = 5, 10
    chunks = {"interleaved": 3, "dualpipev": 2}.get(name, 1)
    order = order_of(name, stages, microbatches, chunks)
    home = {place: s for s, row in enumerate(order.virtual_stage) for place in row}
    for stage, ops in enumerate(order.stages):
        sent = 0
        for kind, _, chunk in ops:
            step = {FORWARD: 1, BACKWARD: -1, BACKWARD_INPUT: -1, WEIGHT: 0}[kind]
            sent += home.get(order.virtual_stage[stage][chunk] + step, stage) != stage
        formula = SCHEDULES[name].messages(stage=stage, num_stages=stages, num_chunks=chunks)
        assert sent == microbatches * int(formula)


def test_one_stage_sends_nothing():
    for schedule in SCHEDULES.values():
        assert int(schedule.messages(stage=0, num_stages=1, num_chunks=2)) == 0


def test_counts_that_a_schedule_does_not_have_are_refused():
    with pytest.raises(ValueError, match="num_microbatches >= 2 \\* num_stages"):
        order_of("dualpipev", 4, 7, 2)
    with pytest.raises(ValueError, match="schedule '1f1b' has 1 chunk"):
        order_of("1f1b", 4, 7, 2)
    with pytest.raises(ValueError, match="must be at least 1"):
        order_of("gpipe", 0, 1, 1)


def test_accepts_says_what_the_frameworks_run():
    counts = {"num_stages": 4, "num_microbatches": np.array([3, 4, 7, 8]), "num_chunks": 2}
    assert SCHEDULES["interleaved"].accepts(**counts).tolist() == [False, True, True, True]
    assert SCHEDULES["dualpipev"].accepts(**counts).tolist() == [False, False, False, True]
    assert not SCHEDULES["1f1b"].accepts(**counts).any()
    assert SCHEDULES["zb1p"].accepts(num_stages=4, num_microbatches=1, num_chunks=1)


def test_names_are_keys():
    assert list(SCHEDULES) == ["1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"]
    assert all(name == schedule.name for name, schedule in SCHEDULES.items())
