"""What was measured moves the formulas where it was measured, smoothly, and moves nothing where it was not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import examples, small_case

from meshwright.catalog import load_cluster, priors
from meshwright.domain.label import parse_layout
from meshwright.domain.measured import OPERATIONS, Measured, TimedCollective, TimedCore, TimedProduct
from meshwright.domain.mesh import group
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.many import evaluate_many
from meshwright.perf.arrays import array
from meshwright.perf.collectives import all_gather_s, all_reduce_s, all_to_all_s, point_to_point_s, reduce_scatter_s
from meshwright.perf.corrections import near_ratio, product_ratio, timed_ratio

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster

CLUSTER = load_cluster("dgx-h100", nodes=4)
CONSTANTS = priors(CLUSTER.device).constants
COLLECTIVES = {
    "all-reduce": all_reduce_s, "all-gather": all_gather_s, "reduce-scatter": reduce_scatter_s, "all-to-all": all_to_all_s,
}


def collectives(operation: str = "all-gather") -> st.SearchStrategy[list[TimedCollective]]:
    """Up to eight timings of one operation, in three group sizes."""
    return st.lists(
        st.builds(
            TimedCollective, operation=st.just(operation), ranks=st.sampled_from([2, 4, 8]), payload_bytes=st.integers(1, 2**30),
            seconds=st.floats(1e-6, 1.0), formula_s=st.floats(1e-6, 1.0),
        ),
        min_size=1, max_size=8,
    )


def products() -> st.SearchStrategy[list[TimedProduct]]:
    size = st.integers(1, 2**14)
    return st.lists(
        st.builds(
            TimedProduct, rows=size, columns=size, inner=size, dtype=st.just("bf16"), direction=st.just("forward"),
            seconds=st.floats(1e-6, 1.0), formula_s=st.floats(1e-6, 1.0),
        ),
        min_size=1, max_size=8,
    )


def with_measured(cluster: Cluster, **sections: object) -> Cluster:
    return replace(cluster, measured=Measured(name="here", version="2026-11-21", **sections))  # type: ignore[arg-type]


@examples(60)
@given(timed=collectives(), ranks=st.integers(1, 64), payload=st.floats(0.0, 1e12))
def test_a_collective_is_corrected_within_what_was_measured(timed: list[TimedCollective], ranks: int, payload: float) -> None:
    nearest = min((each.ranks for each in timed), key=lambda size: (abs(math.log(size) - math.log(ranks)), size))
    ratios = [each.ratio for each in timed if each.ranks == nearest]
    found = float(timed_ratio(timed, "all-gather", ranks, payload))
    assert min(ratios) * (1 - 1e-9) <= found <= max(ratios) * (1 + 1e-9)
    step = float(timed_ratio(timed, "all-gather", ranks, payload * (1 + 1e-9)))
    spread = math.log(max(ratios) / min(ratios)) + 1e-12
    assert abs(math.log(step / found)) <= 1e-6 * max(1.0, spread * 1e10), "a jump"
    assert float(timed_ratio(timed, "all-reduce", ranks, payload)) == 1.0


def test_between_payloads_the_logs_are_interpolated_and_clamped_beyond() -> None:
    timed = [
        TimedCollective(operation="send", ranks=2, payload_bytes=size, seconds=seconds, formula_s=1.0)
        for size, seconds in ((2**10, 4.0), (2**20, 1.0))
    ]
    found = timed_ratio(timed, "send", 2, np.array([1.0, 2.0**10, 2.0**15, 2.0**20, 2.0**40]))
    np.testing.assert_allclose(found, [4.0, 4.0, 2.0, 1.0, 1.0], rtol=1e-12)


def test_of_two_sizes_as_near_the_smaller_counts() -> None:
    timed = [
        TimedCollective(operation="send", ranks=ranks, payload_bytes=8, seconds=float(ranks), formula_s=1.0) for ranks in (8, 2)
    ]
    np.testing.assert_allclose(timed_ratio(timed, "send", np.array([1, 2, 3, 4, 5, 8, 99]), 8), [2, 2, 2, 2, 8, 8, 8])


@examples(60)
@given(timed=products(), rows=st.integers(1, 2**15), columns=st.integers(1, 2**15), inner=st.integers(1, 2**15))
def test_a_product_is_corrected_within_what_was_measured(timed: list[TimedProduct], rows: int, columns: int, inner: int) -> None:
    ratios = [each.ratio for each in timed]
    found = float(near_ratio(timed, rows, columns, inner))
    assert min(ratios) * (1 - 1e-9) <= found <= max(ratios) * (1 + 1e-9)
    near = float(near_ratio(timed, rows * (1 + 1e-9), columns, inner))
    assert abs(math.log(near / found)) <= 1e-5 * (1.0 + abs(math.log(max(ratios) / min(ratios)))), "a jump"
    alone = float(near_ratio(timed[:1], rows, columns, inner))
    assert alone == pytest.approx(ratios[0])


def test_a_measured_shape_is_itself_however_many_others_there_are() -> None:
    timed = [
        TimedProduct(rows=2**row, columns=512, inner=512, dtype="bf16", direction="forward", seconds=float(row), formula_s=1.0)
        for row in range(4, 12)
    ]
    found = near_ratio(timed, np.array([2.0**row for row in range(4, 12)]), 512, 512)
    np.testing.assert_allclose(found, range(4, 12), rtol=0.001)


def test_products_of_another_type_or_direction_are_left_alone() -> None:
    each = TimedProduct(rows=8, columns=8, inner=8, dtype="bf16", direction="input", seconds=3.0, formula_s=1.0)
    measured = Measured(name="here", version="1", products=(each,))
    assert float(product_ratio(measured, 8, 8, 8, dtype="bf16", direction="input")) == pytest.approx(3.0)
    assert float(product_ratio(measured, 8, 8, 8, dtype="bf16", direction="forward")) == 1.0
    assert float(product_ratio(measured, 8, 8, 8, dtype="fp32", direction="input")) == 1.0
    assert float(product_ratio(None, 8, 8, 8, dtype="bf16", direction="input")) == 1.0


@pytest.mark.parametrize("operation", COLLECTIVES)
def test_each_tier_has_its_own_correction(operation: str) -> None:
    inside, across = group(array(4.0), 1.0, CLUSTER), group(array(16.0), 1.0, CLUSTER)
    formula = COLLECTIVES[operation]
    times = {"seconds": 3.0, "formula_s": 1.0, "payload_bytes": 1, "operation": operation}
    slow = TimedCollective(ranks=4, **times)  # type: ignore[arg-type]
    for section, members, others in (("scale_up", inside, across), ("network", across, inside)):
        measured = with_measured(CLUSTER, **{section: (slow,)})
        plain, moved = (float(formula(1e8, members, each, CONSTANTS)) for each in (CLUSTER, measured))
        assert moved == pytest.approx(3.0 * plain, rel=1e-12)
        assert float(formula(1e8, others, measured, CONSTANTS)) == float(formula(1e8, others, CLUSTER, CONSTANTS))


def test_hops_of_a_pipeline_are_corrected_by_their_tier() -> None:
    times = {"operation": "send", "ranks": 2, "payload_bytes": 1, "formula_s": 1.0}
    measured = with_measured(
        CLUSTER, scale_up=(TimedCollective(seconds=2.0, **times),), network=(TimedCollective(seconds=5.0, **times),)  # type: ignore[arg-type]
    )
    for crosses, factor in ((0.0, 2.0), (1.0, 5.0)):
        plain, moved = (
            float(point_to_point_s(1e6, crosses=crosses, cluster=each, constants=CONSTANTS)) for each in (CLUSTER, measured)
        )
        assert moved == pytest.approx(factor * plain, rel=1e-12)


def test_pieces_are_looked_up_by_their_own_size() -> None:
    small, large = (
        TimedCollective(operation="all-gather", ranks=8, payload_bytes=size, seconds=seconds, formula_s=1.0)
        for size, seconds in ((2**10, 9.0), (2**20, 1.0))
    )
    measured, members = with_measured(CLUSTER, scale_up=(small, large)), group(array(8.0), 1.0, CLUSTER)
    for pieces, factor in ((1.0, 1.0), (1024.0, 9.0)):
        plain, moved = (float(all_gather_s(2.0**20, members, each, CONSTANTS, pieces=pieces)) for each in (CLUSTER, measured))
        assert moved == pytest.approx(factor * plain, rel=1e-9)


@pytest.mark.parametrize("operation", COLLECTIVES)
def test_an_empty_profile_changes_no_bit(operation: str) -> None:
    sizes, members = np.array([0.0, 1.0, 1e3, 1e6, 1e9]), group(np.array([1.0, 2.0, 8.0, 16.0, 32.0]), 1.0, CLUSTER)
    plain, moved = (COLLECTIVES[operation](sizes, members, each, CONSTANTS) for each in (CLUSTER, with_measured(CLUSTER)))
    assert plain.tolist() == moved.tolist()


LABELS = ("tp2 pp2 dp2 mb1 sp", "tp1 pp1 dp8 mb1 zero3", "tp4 pp1 cp2 dp1 mb2 sp", "tp1 pp2 dp4 mb1 zero1")


def test_a_whole_estimate_is_the_same_to_the_bit_without_measurements_and_other_with_them() -> None:
    case = small_case()
    layouts = [
        parse_layout(text, num_devices=8, global_batch_sequences=16, devices_per_node=8, model=case.model) for text in LABELS
    ]
    empty = replace(case, cluster=with_measured(case.cluster))
    slow = tuple(
        TimedCollective(operation=operation, ranks=2, payload_bytes=8, seconds=2.0, formula_s=1.0) for operation in OPERATIONS
    )
    timed = TimedProduct(rows=8, columns=8, inner=8, dtype="bf16", direction="forward", seconds=2.0, formula_s=1.0)
    core = TimedCore(groups=8, tokens=8, head_dim=8, dtype="bf16", direction="backward", seconds=2.0, formula_s=1.0)
    full = replace(case, cluster=with_measured(case.cluster, scale_up=slow, network=slow, products=(timed,), cores=(core,)))
    for layout in layouts:
        before = float(evaluate(case, layout).time.step_s)
        assert float(evaluate(empty, layout).time.step_s) == before
        for section in ("products", "cores", *(("scale_up",) if layout.tensor_parallel > 1 else ())):
            only = replace(case, cluster=with_measured(case.cluster, **{section: getattr(full.cluster.measured, section)}))
            assert float(evaluate(only, layout).time.step_s) > before, section
    columns, _ = evaluate_many(full, layouts)
    assert [float(evaluate(full, layout).time.step_s) for layout in layouts] == list(columns)
