"""Where a step goes, against sums made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.split import ideal_bubble, of_log, of_splits, of_traces
from meshwright.domain.label import parse_layout
from meshwright.domain.observed import RankSplit, RankTrace, Step
from meshwright.domain.observed.steady import steady


def log_of(step_s, **parts):
    return steady([Step(number=1, step_s=step_s, line=1, parts={name.replace("_", "-"): value for name, value in parts.items()})])


def pipeline(microbatches, stages=4):
    return parse_layout(f"tp1 pp{stages} mb1", num_devices=stages, global_batch_sequences=microbatches)


def test_waits_of_a_pipeline_are_bubble_up_to_what_the_schedule_makes():
    """(p - 1) / (m + p - 1) = 3/7 of 1.4 s is 0.6 s: of 0.5 s of filling all is bubble, of 0.7 s 0.1 s is waiting."""
    timers = {"forward_compute": 0.2, "backward_compute": 0.5}
    few = of_log(log_of(1.4, forward_recv=0.2, backward_embedding_all_reduce=0.3, **timers), pipeline(4), "")
    assert few.bubble_ratio == pytest.approx(0.5 / 1.4)
    assert few.waiting_ratio == pytest.approx(0.0)
    more = of_log(log_of(1.4, forward_recv=0.3, backward_embedding_all_reduce=0.4, **timers), pipeline(4), "")
    assert more.bubble_ratio == pytest.approx(3 / 7)
    assert more.waiting_ratio == pytest.approx(0.1 / 1.4)


def test_exchanges_of_the_steady_state_are_no_bubble():
    found = of_log(log_of(10.0, forward_compute=3.0, backward_compute=5.0, backward_send_forward_recv=1.5), pipeline(64), "")
    assert (found.bubble_ratio, found.waiting_ratio) == (0.0, pytest.approx(0.15))


def test_without_a_pipeline_an_all_reduce_is_communication():
    layout = parse_layout("tp1 pp1 mb1", num_devices=4, global_batch_sequences=4)
    found = of_log(
        log_of(1.0, forward_compute=0.3, backward_compute=0.4, backward_params_all_reduce=0.2, optimizer=0.05), layout, ""
    )
    assert (found.bubble_ratio, found.waiting_ratio, found.exposed["pp"]) == (None, None, None)
    assert found.communication_exposed_ratio == pytest.approx(0.2)
    assert (found.compute_ratio, found.optimizer_ratio, found.other_ratio) == (
        pytest.approx(0.75),
        pytest.approx(0.05),
        pytest.approx(0.05),
    )


def test_no_timers_no_split():
    assert of_log(log_of(1.0, something_else=0.5), None, "") is None


def test_timers_of_several_steps_are_no_split_and_those_that_overlap_a_little_sum_to_the_step():
    """Sums over ten steps came to a compute of 700 %."""
    assert of_log(log_of(1.0, forward_compute=3.0, backward_compute=4.0), None, "") is None
    found = of_log(log_of(1.0, forward_compute=0.4, backward_compute=0.5, all_grads_sync=0.12), None, "")
    assert found.compute_ratio + found.communication_exposed_ratio + found.other_ratio == pytest.approx(1.0)


@given(
    st.dictionaries(
        st.sampled_from(
            ["forward_compute", "backward_compute", "forward_backward", "forward_recv", "backward_embedding_all_reduce",
             "all_grads_sync", "optimizer", "batch_generator", "backward_send_forward_recv"]
        ),
        st.floats(0.001, 0.1),
        min_size=1,
    ),
    st.sampled_from([None, pipeline(8), pipeline(8, 1)]),
)
def test_the_parts_that_timers_tell_sum_to_the_step(timers, layout):
    """Timers of the optimizer beside one of both passes left 11.5 % of the step in no part."""
    found = of_log(log_of(1.0, **timers), layout, "")
    if found is None:
        return
    parts = [getattr(found, f"{name}_ratio") for name in ("data", "compute", "communication_exposed", "bubble", "waiting", "other")]
    assert sum(part for part in parts if part is not None) == pytest.approx(1.0)
    assert (found.communication_exposed_ratio is None) == (found.exposed["dp"] is None)


def test_communication_that_no_timer_tells_of_is_unknown():
    assert of_log(log_of(1.0, forward_compute=0.3, backward_compute=0.6), pipeline(8, 1), "").communication_exposed_ratio is None


@pytest.mark.parametrize(("degree", "whole"), [("tp1", True), ("tp2", False), ("tp1 cp2", False)])
def test_timers_tell_all_of_the_communication_only_where_layers_exchange_nothing(degree, whole):
    layout = parse_layout(f"{degree} pp1 mb1", num_devices=4, global_batch_sequences=4)
    timers = {"forward_compute": 0.3, "backward_compute": 0.4, "all_grads_sync": 0.01}
    assert of_log(log_of(1.0, **timers), layout, "").every_exchange is whole
    assert of_log(log_of(1.0, **timers), None, "").every_exchange is False


def test_what_a_table_calls_bubble_is_in_its_exposed_communication():
    row = RankSplit(
        file="", rank=0, window="", window_s=10.0, compute_s=5.0, communication_s=3.0, exposed_communication_s=3.0, idle_s=2.0,
        bubble_s=1.0,
    )
    found = of_splits([row, replace(row, rank=1, bubble_s=7.0)])
    assert (found.communication_exposed_ratio, found.bubble_ratio) == (pytest.approx(0.1), pytest.approx(0.2))
    parts = found.compute_ratio, found.communication_exposed_ratio, found.bubble_ratio, found.idle_ratio, found.other_ratio
    assert sum(parts) == pytest.approx(1.0)


@pytest.mark.parametrize(("stages", "microbatches", "ratio"), [(4, 4, 3 / 7), (64, 4, 63 / 67), (16, 256, 15 / 271), (1, 8, 0.0)])
def test_the_ideal_bubble_is_that_of_the_formula(stages, microbatches, ratio):
    assert ideal_bubble(pipeline(microbatches, stages)) == pytest.approx(ratio)


SPLIT = RankSplit(window_s=10.0, compute_s=4.0, communication_s=3.0, exposed_communication_s=2.0, exposed_copies_s=0.5, idle_s=3.5)
TRACE = RankTrace(
    file="a",
    format="t",
    split=SPLIT,
    idle={"data": 1.0, "host": 0.5, "sync": 0.25, "other": 1.75},
    exposed_by_group={"tp": 0.5, "": 1.5},
)


def test_shares_of_a_trace_sum_to_its_window():
    found = of_traces([TRACE], {"tp": "tp"}, None, 5.0)
    shares = (
        found.data_ratio,
        found.host_ratio,
        found.compute_ratio,
        found.communication_exposed_ratio,
        found.idle_ratio,
        found.other_ratio,
    )
    assert shares == pytest.approx((0.1, 0.075, 0.4, 0.2, 0.175, 0.05))
    assert sum(shares) == pytest.approx(1.0)
    assert (found.exposed["tp"], found.exposed["unknown"], found.exposed["dp"]) == (pytest.approx(0.25), pytest.approx(0.75), None)


@pytest.mark.parametrize(("waiting_s", "waiting", "transfer"), [(9.0, 0.2, 0.0), (0.5, 0.05, 0.15), (None, None, 0.2)])
def test_several_ranks_are_their_mean_and_waiting_stands_beside_transfers(waiting_s, waiting, transfer):
    """No more can wait than collectives take; whatever waits, the shares sum to one."""
    other = replace(TRACE, split=replace(SPLIT, compute_s=6.0, idle_s=1.5), idle={})
    found = of_traces([TRACE, other], {}, waiting_s, 10.0)
    assert found.compute_ratio == pytest.approx(0.5)
    assert found.waiting_ratio == (None if waiting is None else pytest.approx(waiting))
    assert found.communication_exposed_ratio == pytest.approx(transfer, abs=1e-12)
    assert found.collectives_ratio == pytest.approx(0.2)


def test_communication_that_nobody_recognised_is_unknown():
    unknown = replace(TRACE, split=replace(SPLIT, communication_s=None, exposed_communication_s=None))
    assert of_traces([unknown], {}, None, None).communication_exposed_ratio is None
    assert of_splits([unknown.split]).communication_exposed_ratio is None


def test_a_table_of_ranks_leaves_its_stages_out():
    ranks = [replace(SPLIT, rank=rank) for rank in (0, 1)]
    found = of_splits([*ranks, replace(SPLIT, rank=None, stage=0, compute_s=10.0)])
    assert (found.compute_ratio, found.idle_ratio) == (pytest.approx(0.4), pytest.approx(0.35))
