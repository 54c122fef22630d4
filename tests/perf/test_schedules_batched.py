"""Many sets of times at once: the same recurrence, the same bits, and bounded memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.draws import examples

from meshwright.perf.schedules import ORDERS, Pipeline, makespans, makespans_of, simulate, simulation, together
from meshwright.perf.schedules.graph import graph_of

NAMES = ("forward_s", "backward_input_s", "backward_weight_s")


def chunks_of(name, drawn):
    """How many chunks a schedule has."""
    return {"interleaved": drawn, "interleaved-less-memory": drawn, "seq1f1b": drawn - 1, "dualpipev": 2, "zbv": 2}.get(name, 1)


@st.composite
def columns(draw):
    """An order of any name and several columns of times."""
    name = draw(st.sampled_from(sorted(ORDERS)))
    stages, splits = draw(st.integers(1, 5)), draw(st.integers(1, 3)) if name == "seq1f1b" else 1
    chunks = chunks_of(name, draw(st.integers(2, 3)))
    microbatches = draw(st.integers(1, 9)) * splits + (2 * stages if name == "dualpipev" else 0)
    order = ORDERS[name](stages, microbatches, num_chunks=chunks, num_splits=splits)
    times = draw(arrays(np.float64, (3, stages, chunks, draw(st.integers(1, 4))), elements=st.floats(0.0, 10.0)))
    return order, dict(zip(NAMES, times, strict=True))


@examples(150)
@given(columns(), st.sampled_from((0.0, 0.3, 2.0)), st.sampled_from((1, 10**9)))
def test_every_column_is_its_simulation(case, hop, most):
    order, times = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "MOST_BYTES", most)  # one column at a time, or all
        found = makespans(order, **times, hop_s=hop)
    each = [simulate(order, **{key: value[..., at] for key, value in times.items()}, hop_s=hop) for at in range(found.size)]
    assert found.tolist() == [timeline.makespan_s for timeline in each]


@examples(80)
@given(st.lists(st.tuples(columns(), st.sampled_from((0.0, 0.7))), max_size=6), st.sampled_from((1, 60, 10**9)))
def test_pipelines_side_by_side_are_each_as_alone(cases, most):
    asked = [Pipeline(order=order, **times, hop_s=hop) for (order, times), hop in cases]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "MOST_NODES", most)  # one after the other, some, or all
        found = makespans_of(asked)
    alone = [makespans(order, **times, hop_s=hop) for (order, times), hop in cases]
    assert [each.tolist() for each in found] == [each.tolist() for each in alone]


def test_orders_that_differ_in_operations_alone_are_different():
    first, second = (ORDERS[name](4, 4, num_chunks=1) for name in ("1f1b", "gpipe"))
    assert first != second
    other = type(first).of(
        name=first.name, num_microbatches=4, virtual_stage=first.virtual_stage, stages=second.stages, pairs=first.pairs
    )
    assert hash(other) == hash(first)
    assert graph_of(other) is not graph_of(first)


def test_what_does_not_differ_may_be_given_once():
    order = ORDERS["interleaved"](3, 6, num_chunks=2)
    forward = 1.0 + np.arange(24.0).reshape(3, 2, 4)
    same = makespans(order, forward_s=forward, backward_input_s=np.full((3, 2), 2.0), backward_weight_s=0.5)
    full = makespans(order, forward_s=forward, backward_input_s=np.full((3, 2, 4), 2.0), backward_weight_s=np.full((3, 2, 4), 0.5))
    assert same.tolist() == full.tolist()
    assert makespans(order, forward_s=1.0, backward_input_s=1.0, backward_weight_s=0.0).shape == (1,)
    assert makespans(order, forward_s=np.ones((3, 2, 0)), backward_input_s=1.0, backward_weight_s=0.0).shape == (0,)


def test_a_graph_is_built_once_and_cannot_be_changed():
    order = ORDERS["1f1b"](2, 4)
    assert graph_of(order) is graph_of(ORDERS["1f1b"](2, 4))
    timeline = simulate(order, forward_s=1.0, backward_input_s=1.0, backward_weight_s=0.0)
    with pytest.raises(ValueError, match="read-only"):
        timeline.stage[0] = 1


@examples(40)
@given(columns())
def test_nodes_of_a_level_depend_on_earlier_levels_only(case):
    order, _ = case
    graph = graph_of(order)
    for start, stop in graph.levels:
        assert (graph.previous[start:stop] <= start).all()
        assert (graph.needs[:, start:stop] <= start).all()
    assert [start for start, _ in graph.levels[1:]] == [stop for _, stop in graph.levels[:-1]]
    assert graph.levels[-1][1] == graph.place.size


@examples(60)
@given(columns(), st.floats(0.0, 2.0))
def test_transfers_that_occupy_both_ends_never_shorten_a_step(case, hop):
    order, times = case
    if order.num_chunks > 1 and order.num_microbatches % order.num_stages:
        return
    if order.name in ("dualpipev", "zbv", "interleaved-less-memory") or (order.name == "seq1f1b" and order.num_chunks > 1):
        return
    found = makespans(order, **times, hop_s=hop, rendezvous=True)
    assert (found >= makespans(order, **times, hop_s=hop) * (1.0 - 1e-12)).all()
    one = simulate(order, **{key: value[..., 0] for key, value in times.items()}, hop_s=hop, rendezvous=True)
    assert one.makespan_s == found[0]
    same = one.stage[1:] == one.stage[:-1]
    assert (one.start_s[1:][same] >= one.end_s[:-1][same] - 1e-9).all()


def test_what_has_no_order_of_transfers_is_refused():
    times = {"forward_s": 1.0, "backward_input_s": 1.0, "backward_weight_s": 1.0, "hop_s": 0.1}
    with pytest.raises(ValueError, match="'dualpipev' runs operations in pairs"):
        simulate(ORDERS["dualpipev"](2, 4, num_chunks=2), **times, rendezvous=True)
    with pytest.raises(AssertionError, match="deadlock"):
        simulate(ORDERS["interleaved"](4, 6, num_chunks=2), **times, rendezvous=True)


def test_an_order_that_is_spelled_again_is_the_same():
    first = ORDERS["interleaved"](4, 8, num_chunks=2)
    again = type(first).of(
        name=first.name, num_microbatches=8, virtual_stage=first.virtual_stage, stages=first.stages, pairs=first.pairs
    )
    assert again == first
    assert again is not first
    assert graph_of(again) is graph_of(first)
