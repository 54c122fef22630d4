"""What a stage holds at once, by chunk: exact at every operation, and what published tables say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.perf.schedules import ORDERS, SCHEDULES, held_vectors, simulate


def order_of(name, stages, microbatches, chunks, splits=1):
    chunks = {"interleaved": chunks, "interleaved-less-memory": chunks, "seq1f1b": chunks, "dualpipev": 2, "zbv": 2}.get(name, 1)
    microbatches = microbatches * splits + (2 * stages if name == "dualpipev" else 0)
    return ORDERS[name](stages, microbatches, num_chunks=chunks, num_splits=splits if name == "seq1f1b" else 1)


@examples(150)
@given(
    st.sampled_from(sorted(ORDERS)), st.integers(1, 6), st.integers(1, 12), st.integers(1, 4), st.integers(1, 3),
    st.booleans(), st.randoms(use_true_random=False),
)
def test_the_largest_combinations_give_the_peak_of_the_simulation(name, stages, microbatches, chunks, splits, until, random):
    order = order_of(name, stages, microbatches, chunks, splits)
    sizes = np.array([[random.choice((0.0, 1.0, 2.5, 7.0)) for _ in range(order.num_chunks)] for _ in range(stages)])
    peaks = [float((held @ size).max()) for held, size in zip(held_vectors(order, until_weight=until), sizes, strict=True)]
    times = {"forward_s": 1.0, "backward_input_s": 1.0, "backward_weight_s": 1.0}
    timeline = simulate(order, **times, activation=sizes, kept_for_weight=float(until))
    assert peaks == timeline.peak_held.tolist()


@examples(150)
@given(
    st.sampled_from(("interleaved", "dualpipev")), st.integers(1, 7), st.integers(1, 30), st.integers(2, 5),
    st.randoms(use_true_random=False),
)
def test_the_short_form_meets_the_fullest_moment_whatever_the_chunks_weigh(name, stages, microbatches, chunks, random):
    order = order_of(name, stages, microbatches, chunks)
    counts = {"num_stages": stages, "num_microbatches": order.num_microbatches, "num_chunks": order.num_chunks}
    short = SCHEDULES[name].held_until_weight(stage=np.arange(stages), **counts)
    for stage, exact in enumerate(held_vectors(order, until_weight=True)):
        for _ in range(3):
            size = np.array([random.randint(0, 9) for _ in range(order.num_chunks)])
            assert (size @ short[..., stage].T).max() == (exact @ size).max()


@examples(60)
@given(st.sampled_from(sorted(ORDERS)), st.integers(1, 6), st.integers(1, 12), st.integers(1, 4))
def test_no_combination_covers_another(name, stages, microbatches, chunks):
    for rows in held_vectors(order_of(name, stages, microbatches, chunks)):
        assert len(rows) >= 1
        for at, row in enumerate(rows):
            others = np.delete(rows, at, axis=0)
            assert not (others >= row).all(axis=1).any()


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 4), (4, 8), (4, 6), (8, 64)])
def test_alike_chunks_give_the_closed_form(name, stages, microbatches):
    order = order_of(name, stages, microbatches, 3)
    counts = {"stage": np.arange(stages), "num_stages": stages, "num_microbatches": order.num_microbatches}
    sums = [int(rows.sum(axis=1).max()) for rows in held_vectors(order)]
    assert sums == np.broadcast_to(SCHEDULES[name].in_flight(**counts, num_chunks=order.num_chunks), stages).tolist()
    sums = [int(rows.sum(axis=1).max()) for rows in held_vectors(order, until_weight=True)]
    assert sums == np.broadcast_to(SCHEDULES[name].in_flight_until_weight(**counts, num_chunks=order.num_chunks), stages).tolist()


def sapp_table(p, v, m, *, less):
    """In-flight counts that SAPP's programme multiplies with activations, [stage, chunk] (its sapp_solver.py)."""
    stage = np.arange(p)
    table = np.full((p, v), p)
    if less:
        table[:, -1] -= stage
        return table
    table[:, 0] += np.maximum(0, p - 2 * stage - 1)
    table[:, -1] += np.minimum(0, p - 2 * stage - 1)
    return np.minimum(table, m)


@pytest.mark.parametrize(("name", "less"), [("interleaved", False), ("interleaved-less-memory", True)])
@pytest.mark.parametrize(("p", "v", "m"), [(4, 2, 16), (8, 3, 16), (16, 3, 64)])
def test_sapp_counts_the_moment_of_the_first_backward(name, less, p, v, m):
    """Its table is held by every stage, as one of our combinations or under one; the others are missing in its programme."""
    table = sapp_table(p, v, m, less=less)
    more = 0
    for stage, rows in enumerate(held_vectors(ORDERS[name](p, m, num_chunks=v))):
        assert (rows >= table[stage]).all(axis=1).any()
        more += bool((rows > table[stage]).any())
    assert more > 0
