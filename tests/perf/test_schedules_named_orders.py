"""The orders without closed forms: less memory, sequences in parts, zero bubble in a V."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.perf.schedules import BACKWARD, BACKWARD_INPUT, FORWARD, ORDERS, SCHEDULES, WEIGHT, simulate


def spell(order, stage):
    """Kind, microbatch and, with several chunks, chunk: F0 F1 B0 .."""
    tail = (lambda c: "abcd"[c]) if order.num_chunks > 1 else (lambda _: "")
    return " ".join(f"{'FBIW'[kind]}{m}{tail(c)}" for kind, m, c in order.stage(stage))


def unit_times(order):
    return simulate(order, forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0)


def test_every_schedule_with_closed_forms_is_there_and_three_more():
    assert list(ORDERS) == [*SCHEDULES, "interleaved-less-memory", "seq1f1b", "zbv"]
    for name, schedule in SCHEDULES.items():
        chunks = {"interleaved": 3, "dualpipev": 2}.get(name, 1)
        assert ORDERS[name](2, 4, num_chunks=chunks) == schedule.order(2, 4, num_chunks=chunks)


def test_less_memory_warms_up_like_1f1b():
    order = ORDERS["interleaved-less-memory"](2, 4, num_chunks=2)
    assert spell(order, 0) == "F0a F1a F0b F1b B0b F2a B1b F3a B0a F2b B1a F3b B2b B3b B2a B3a"
    assert spell(order, 1) == "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"


def test_parts_of_a_sequence_come_back_in_reverse():
    order = ORDERS["seq1f1b"](3, 6, num_splits=3)
    assert spell(order, 0) == "F0 F1 F2 F3 F4 B2 F5 B1 B0 B5 B4 B3"
    assert spell(order, 2) == "F0 F1 F2 B2 F3 B1 F4 B0 F5 B5 B4 B3"


def test_one_part_is_the_order_without_parts():
    assert ORDERS["seq1f1b"](4, 6).stages == ORDERS["1f1b"](4, 6).stages
    for microbatches in (4, 6, 8, 9):
        assert (
            ORDERS["seq1f1b"](4, microbatches, num_chunks=3).stages == ORDERS["interleaved"](4, microbatches, num_chunks=3).stages
        )


@examples(150)
@given(st.integers(1, 8), st.integers(1, 16), st.integers(1, 4), st.integers(1, 4))
def test_orders_in_parts_are_complete_and_do_not_deadlock(stages, microbatches, chunks, splits):
    order = ORDERS["seq1f1b"](stages, microbatches * splits, num_chunks=chunks, num_splits=splits)
    wanted = {(m, c) for m in range(microbatches * splits) for c in range(chunks)}
    for ops in order.stages:
        for kind in (FORWARD, BACKWARD):
            seen = [(m, c) for k, m, c in ops if k == kind]
            assert set(seen) == wanted
            assert len(seen) == len(wanted)
        for microbatch in range(microbatches):
            for chunk in range(chunks):
                mine = [m % splits for k, m, c in ops if k == BACKWARD and c == chunk and m // splits == microbatch]
                assert mine == list(range(splits))[::-1]
    unit_times(order)


@examples(80)
@given(st.integers(1, 8), st.integers(1, 24), st.integers(1, 4))
def test_less_memory_is_complete_and_never_faster(stages, microbatches, chunks):
    order = ORDERS["interleaved-less-memory"](stages, microbatches, num_chunks=chunks)
    other = ORDERS["interleaved"](stages, microbatches, num_chunks=chunks)
    for mine, theirs in zip(order.stages, other.stages, strict=True):
        assert sorted(mine) == sorted(theirs)
    ours, usual = unit_times(order), unit_times(other)
    assert ours.makespan_s >= usual.makespan_s
    assert (ours.peak_held <= usual.peak_held).all()


@pytest.mark.parametrize(("stages", "microbatches", "splits"), [(4, 8, 1), (4, 8, 2), (8, 32, 4), (3, 9, 3)])
def test_parts_shrink_the_bubble_by_their_number(stages, microbatches, splits):
    """The fill is (P - 1) of a part's time, not of a microbatch's: Sun et al. 2024, arXiv 2406.03488."""
    order = ORDERS["seq1f1b"](stages, microbatches * splits, num_splits=splits)
    assert unit_times(order).makespan_s == pytest.approx(3.0 * (microbatches * splits + stages - 1))


def test_zbv_order_is_torchs():
    """torch.distributed.pipelining, ScheduleZBVZeroBubble, its steps followed by hand for two ranks."""
    order = ORDERS["zbv"](2, 4, num_chunks=2)
    assert order.virtual_stage == ((0, 3), (1, 2))
    assert spell(order, 0) == "F0a F1a F2a F0b I0b W0b F1b I1b W1b F3a I0a W0a F2b I2b W2b I1a W1a F3b I3b W3b I2a W2a I3a W3a"
    assert spell(order, 1) == "F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b F3a I1a W1a F3b I2b W2b I2a I3b I3a W2a W3b W3a"


@examples(80)
@given(st.integers(1, 8), st.integers(1, 24))
def test_zbv_is_complete_and_has_the_memory_of_1f1b(stages, microbatches):
    order = ORDERS["zbv"](stages, microbatches, num_chunks=2)
    wanted = sorted((kind, m, c) for kind in (FORWARD, BACKWARD_INPUT, WEIGHT) for m in range(microbatches) for c in (0, 1))
    assert all(sorted(ops) == wanted for ops in order.stages)
    timeline = unit_times(order)
    assert (timeline.peak_held <= 2 * stages).all()  # in stages' worth P, as stage 0 of 1F1B
    if microbatches >= 2 * stages - 1:
        assert timeline.makespan_s == 6.0 * microbatches + stages - 1  # filling alone: no bubble in between
        assert (timeline.peak_held == 2 * stages).all()


def test_counts_that_an_order_does_not_have_are_refused():
    with pytest.raises(ValueError, match="multiple of `num_splits`"):
        ORDERS["seq1f1b"](2, 5, num_splits=2)
    with pytest.raises(ValueError, match="multiple of `num_splits`"):
        ORDERS["seq1f1b"](2, 4, num_splits=0)
    with pytest.raises(ValueError, match="'zbv' has 2 chunk"):
        ORDERS["zbv"](2, 4)
    with pytest.raises(ValueError, match="'1f1b' does not split sequences"):
        ORDERS["1f1b"](2, 4, num_splits=2)
    with pytest.raises(ValueError, match="must be at least 1"):
        ORDERS["interleaved-less-memory"](0, 4, num_chunks=2)
    with pytest.raises(ValueError, match="must be at least 1"):
        ORDERS["seq1f1b"](2, 0)


def test_in_flight_sums_are_those_of_the_published_tables():
    """Sums over chunks: SAPP's compute_activation_nums, compute_less_activation_nums, compute_activation_seq_nums."""
    stage, p, m, v, k = np.arange(8), 8, 32, 3, 2
    peaks = {name: unit_times(ORDERS[name](p, m, num_chunks=v)).peak_held for name in ("interleaved", "interleaved-less-memory")}
    assert peaks["interleaved"].tolist() == (2 * (p - stage - 1) + (v - 1) * p + 1).tolist()
    assert peaks["interleaved-less-memory"].tolist() == ((v - 1) * p + p - stage).tolist()
    assert unit_times(ORDERS["seq1f1b"](p, m * k, num_splits=k)).peak_held.tolist() == [9, 8, 7, 6, 5, 4, 3, 2]  # its test T7
    parts = unit_times(ORDERS["seq1f1b"](p, m * k, num_chunks=v, num_splits=k)).peak_held
    assert parts.tolist() == (2 * (p - stage - 1) + (v - 1) * p + k).tolist()
