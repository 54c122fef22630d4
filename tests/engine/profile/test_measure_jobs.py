"""The list of jobs, and which ranks stand together: pure properties."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.engine.profile.jobs import World, divisors, every_job, grid, jobs, spread, work_flops

KINDS = ("cpu", "cuda", "npu")


def world(ranks: int, per_node: int | None = None) -> World:
    return World(ranks=ranks, ranks_per_node=ranks if per_node is None else per_node)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (8, 8), (16, 8), (3, 1)])
def test_no_job_is_there_twice_and_every_sort_is_there(kind: Any, quick: bool, shape: tuple[int, int]) -> None:
    found = jobs(kind, world(*shape), quick=quick)
    ranks = shape[0]
    keys = [job.key(ranks) for job in found]
    assert len(set(keys)) == len(keys)
    benches = {job.bench for job in found}
    alone = {"product", "grouped", "attention", "pass", "operator", "transfer", "memory"}
    together = {"distributed", "unit", "message", "collective", "beside"}
    assert benches == (alone | together if ranks > 1 else alone)
    labels = [job.label for job in found]
    assert len(set(labels)) == len(labels), "labels tell jobs apart: those that take too long are left out by them"


def test_quick_is_a_fraction_and_starts_from_the_same_sorts() -> None:
    whole, quick = (jobs("cpu", world(2), quick=each) for each in (False, True))
    assert 2 * len(quick) < len(whole)

    def sorts(found: Any) -> set[Any]:
        return {
            (job.bench, job.arguments.get("kind"), job.arguments.get("direction"), job.arguments.get("operation")) for job in found
        }

    assert sorts(quick) == sorts(whole)


def test_the_order_is_the_same_every_time_and_mixes_sorts() -> None:
    found = jobs("cpu", world(2))
    assert found == jobs("cpu", world(2))
    plain = every_job(grid("cpu"), "cpu", world(2))
    assert Counter(job.label for job in found) == Counter(job.label for job in plain)
    assert spread(plain) == found
    quarter = {job.bench for job in found[: len(found) // 4]}
    assert {"product", "pass", "collective", "attention"} <= quarter


def test_elements_are_rows_of_the_width() -> None:
    for job in jobs("cpu", world(2)):
        if job.bench == "pass":
            assert int(job.arguments["elements"]) % int(job.arguments["width"]) == 0


@given(nodes=st.integers(1, 6), per_node=st.sampled_from([1, 2, 3, 4, 8]))
def test_every_rank_is_busy_in_groups_of_every_size(nodes: int, per_node: int) -> None:
    """Groups of a size hold every rank once where the size divides; a tier says whether they stay on their node."""
    ranks = world(nodes * per_node, per_node)
    sizes = ranks.sizes()
    assert len(set(sizes)) == len(sizes)
    assert {size for size, tier in sizes if tier == "scale_up"} == set(divisors(per_node))
    for size, tier in sizes:
        groups = ranks.groups(size, tier)
        assert all(len(group) == size for group in groups)
        assert sorted(rank for group in groups for rank in group) == list(range(ranks.ranks))
        hosts = [{rank // per_node for rank in group} for group in groups]
        assert all(len(each) == 1 if tier == "scale_up" else len(each) > 1 for each in hosts)
    if nodes > 1:
        assert any(tier == "network" for _, tier in sizes)


def test_collectives_come_in_every_operation_size_and_tier() -> None:
    found = [job for job in jobs("cuda", world(16, 8)) if job.bench == "collective"]
    by_tier = Counter((job.arguments["ranks"], job.arguments["tier"]) for job in found)
    each = 5 * len(grid("cuda")["collectives"])
    assert by_tier == {
        (2, "scale_up"): each,
        (4, "scale_up"): each,
        (8, "scale_up"): each,
        (2, "network"): each,
        (16, "network"): each * 4 // 5,  # neighbours there are on one node: no messages
    }


def test_work_of_products_is_counted_by_hand() -> None:
    for job in jobs("cpu", world(1)):
        sizes = job.arguments
        if job.bench == "product":
            assert work_flops(job) == 2 * sizes["rows"] * sizes["columns"] * sizes["inner"]
        elif job.bench == "attention":
            square = 2 * 2 * sizes["sequences"] * sizes["heads"] * sizes["tokens"] * sizes["tokens"] * sizes["head_dim"]
            assert work_flops(job) == square * (1 if sizes["direction"] == "forward" else 2.5)
        elif job.bench != "grouped":
            assert work_flops(job) == 0
