"""Dynamic context parallelism: every sample once, no rank above its limit, no rank that waits for another, ranks even."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.errors import InputError
from meshwright.packing import Cost, figures, pack, prepared
from meshwright.packing.context import alignment
from meshwright.packing.dynamic import by_degree, dynamic

COST = Cost(token_s=40_000.0, square_s=1.0, microbatch_s=1e6)


@st.composite
def cases(draw):
    """Lengths of which some need many of the ranks; 12 and 20 ranks are no power of two."""
    ranks, tensor = draw(st.sampled_from([1, 2, 4, 8, 12, 20, 32])), draw(st.sampled_from([1, 2, 8]))
    limit = 2 * tensor * draw(st.integers(8, 64))
    most = limit << (ranks.bit_length() - 1)
    length = st.one_of(st.integers(1, limit), st.integers(1, most), st.just(most))
    return draw(st.lists(length, min_size=1, max_size=40)), limit, ranks, tensor


@examples(150)
@given(cases(), st.sampled_from([None, COST]))
def test_every_sample_once_and_no_rank_above_its_limit(case, cost):
    lengths, limit, ranks, tensor = case
    step = dynamic(lengths, limit, ranks, by_degree(ranks, cost or Cost()), tensor_parallel=tensor)
    assert sorted(item for each in step.groups for item in each.samples) == list(range(len(lengths)))
    for each in step.groups:
        assert each.degree & (each.degree - 1) == 0 and each.first_rank % each.degree == 0
        assert each.first_rank + each.degree <= ranks
        align = alignment(tensor, each.degree)
        assert each.rank_tokens == sum(-(-lengths[item] // align) * align for item in each.samples) // each.degree <= limit
        assert each.degree == 1 or len(each.samples) == 1
    assert step == dynamic(lengths, limit, ranks, by_degree(ranks, cost or Cost()), tensor_parallel=tensor)


@examples(150)
@given(cases())
def test_a_group_s_ranks_have_run_the_same_before_so_that_none_waits(case):
    """Run as collectives would: a group starts when all of its ranks are there. No rank ever stands idle before its last."""
    lengths, limit, ranks, tensor = case
    costs = by_degree(ranks, COST)
    step = dynamic(lengths, limit, ranks, costs, tensor_parallel=tensor)
    clock = [0.0] * ranks
    for each in step.groups:
        members = range(each.first_rank, each.first_rank + each.degree)
        assert np.ptp([clock[rank] for rank in members]) <= 1e-9 * max(clock[rank] for rank in members)
        align = alignment(tensor, each.degree) if each.degree == 1 else 1
        spent = costs[each.degree].of_microbatch(-(-np.array(lengths)[list(each.samples)] // align) * align)
        for rank in members:
            clock[rank] += spent
    assert clock == pytest.approx(step.loads, rel=1e-9)
    for rank in range(ranks):
        degrees = [each.degree for each in step.of_rank(rank)]
        assert degrees == sorted(degrees, reverse=True)


@pytest.mark.parametrize(("samples", "ranks", "most"), [(64, 8, 65_536), (256, 16, 131_072), (1024, 64, 262_144)])
def test_ranks_are_even_and_a_step_is_shorter_than_with_one_degree_for_all(samples, ranks, most):
    """The tail of long contexts; where communication is free, one degree for all costs only what it leaves uneven."""
    rng = np.random.default_rng(samples)
    lengths = np.minimum((np.exp(rng.normal(7.6, 1.4, samples)) + 50).astype(int), most)
    lengths[0] = most
    step = dynamic(lengths, 8192, ranks, by_degree(ranks, COST))
    assert step.imbalance_ratio < 1.02
    degree = most // 8192
    static = pack(lengths, most, ranks // degree, by_degree(ranks, COST)[degree], align=2 * degree)
    laid = prepared(lengths, most, align=2 * degree)
    assert max(step.loads) < 1.01 * figures(static, laid, most, by_degree(ranks, COST)[degree]).dearest


def test_dearer_groups_are_formed_only_where_they_are_needed():
    """Where a rank saves nothing by sharing a sample, none is shared that need not be."""
    dear = {1: Cost(token_s=1.0), 2: Cost(token_s=1.0), 4: Cost(token_s=2.0)}
    assert [each.degree for each in dynamic([8] * 8, 10, 4, dear).groups] == [1] * 8
    assert [each.degree for each in dynamic([19, 8, 8, 8], 10, 4, dear).groups] == [2, 1, 1, 1]


def test_a_lone_sample_is_given_to_all_ranks():
    (group,) = dynamic([100], 100, 4).groups
    assert (group.degree, group.rank_tokens) == (4, 26), "100 tokens in 8 pieces: 104"


@pytest.mark.parametrize(
    ("lengths", "limit", "ranks", "words"),
    [
        ([], 10, 4, "no lengths"), ([0], 10, 4, "sample 0 has 0 tokens"), ([41], 10, 4, "does not fit on 4 ranks of 10"),
        ([41], 10, 7, "does not fit on 4 ranks of 10"), ([20], 11, 4, "no multiple of 2 x tp = 2"), ([5], 10, 0, "0 ranks"),
    ],
)
def test_what_no_groups_hold(lengths, limit, ranks, words):
    with pytest.raises(InputError, match=words):
        dynamic(lengths, limit, ranks)
    with pytest.raises(InputError, match="the cost of groups of 2 ranks is missing"):
        dynamic([20], 10, 4, {1: Cost()})
