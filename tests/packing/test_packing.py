"""Packing: nothing lost, no limit broken, ranks even; held to hand values, to the exact search and to the bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.errors import InputError
from meshwright.packing import Cost, best_fit, exact, figures, levelled, lower_bound, pack, prepared
from meshwright.packing.bins import split_to
from meshwright.packing.buckets import bucketed, bucketed_tokens, padded_tokens
from meshwright.packing.context import alignment, document_pieces, dynamic_degrees
from meshwright.packing.drawn import distribution

COST = Cost(token_s=20_000.0, square_s=1.0)
LENGTHS = st.lists(st.integers(1, 100), min_size=1, max_size=60)


def lognormal(rng, count):
    return np.minimum(np.exp(rng.normal(7.3, 0.8, count)).astype(int) + 64, 8000)


def bimodal(rng, count):
    return np.where(rng.random(count) < 0.7, rng.integers(100, 600, count), rng.integers(3000, 8000, count))


def heavy(rng, count):
    return np.minimum((rng.pareto(1.1, count) * 300 + 50).astype(int), 8192)


def uniform(rng, count):
    return rng.integers(1, 8193, count)


DRAWN = pytest.mark.parametrize("drawn", [lognormal, bimodal, heavy, uniform], ids=lambda each: each.__name__)


def flat(ranks):
    return [item for rank in ranks for each in rank for item in each]


@given(LENGTHS, st.integers(100, 400))
def test_best_fit_holds_all_samples_under_the_limit(lengths, limit):
    sizes = np.array(lengths)
    bins = best_fit(sizes, limit)
    assert sorted(item for each in bins for item in each) == list(range(len(lengths)))
    assert all(sizes[each].sum() <= limit for each in bins)
    assert lower_bound(sizes, limit) <= len(bins) <= 11 / 9 * lower_bound(sizes, limit) * 3 / 2 + 1


def one_by_one(lengths, limit):
    """Best fit decreasing as its definition says it."""
    rooms = []
    for length in sorted(lengths, reverse=True):
        fits = [room for room in rooms if room >= length]
        if fits:
            rooms.remove(min(fits))
        rooms.append((min(fits) if fits else max(limit, length)) - length)
    return sorted(rooms)


@given(LENGTHS, st.integers(50, 200))
def test_alike_samples_at_once_are_best_fit_one_by_one(lengths, limit):
    sizes = np.array(lengths)
    rooms = sorted(max(limit, int(sizes[each[0]])) - int(sizes[each].sum()) for each in best_fit(sizes, limit))
    assert rooms == one_by_one(lengths, limit)


def all_partitions(lengths, limit):
    """The fewest micro-batches by trying every way: an oracle of the oracle."""
    best = len(lengths)

    def place(index, rooms):
        nonlocal best
        if len(rooms) >= best:
            return
        if index == len(lengths):
            best = len(rooms)
            return
        for at, room in enumerate(rooms):
            if room >= lengths[index]:
                place(index + 1, [*rooms[:at], room - lengths[index], *rooms[at + 1:]])
        place(index + 1, [*rooms, limit - lengths[index]])

    place(0, [])
    return best


@examples(40)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_the_exact_search_is_exact(lengths):
    sizes = np.array(lengths)
    bins = exact(sizes, 20)
    assert len(bins) == all_partitions(lengths, 20)
    assert sorted(item for each in bins for item in each) == list(range(len(lengths)))
    assert all(sizes[each].sum() <= 20 for each in bins)


@examples(60)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=18), st.integers(1, 2))
def test_the_bound_holds_and_few_samples_are_packed_as_well_as_can_be(lengths, ranks):
    sizes = np.array(lengths)
    least = len(exact(sizes, 100))
    assert lower_bound(sizes, 100) <= least <= len(best_fit(sizes, 100))
    if len(lengths) >= ranks:
        assert sum(map(len, pack(sizes, 100, ranks, equal=False))) == max(least, ranks)


@pytest.mark.parametrize(
    ("lengths", "limit", "bound"),
    [([6, 6, 6, 4], 10, 3), ([5, 5, 5], 10, 2), ([7, 7, 3, 3], 10, 2), ([60, 60, 50, 50, 45], 100, 4), ([11, 3], 10, 2)],
)
def test_the_bound_by_hand(lengths, limit, bound):
    """60, 60, 50, 50, 45: nothing goes beside the two above the half, and 145 of the rest are two; the sum says three."""
    assert lower_bound(np.array(lengths), limit) == bound


def test_best_fit_by_hand_where_it_is_not_best():
    sizes = np.array([6, 5, 4, 4, 3, 3, 3, 2])
    assert [len(each) for each in (best_fit(sizes, 10), exact(sizes, 10))] == [4, 3]
    assert sum(map(len, pack(sizes, 10))) == 3


@examples(60)
@given(LENGTHS, st.integers(100, 300), st.integers(1, 4), st.integers(1, 2), st.sampled_from([1, 4, 16]))
def test_a_pack_keeps_limit_counts_and_alignment_and_is_the_same_again(lengths, limit, ranks, multiple, align):
    limit = limit // align * align
    if align > 1 and -(-max(lengths) // align) * align > limit:
        return
    try:
        dealt = pack(lengths, limit, ranks, COST, multiple=multiple, align=align)
    except InputError as error:
        assert "samples do not make" in str(error)
        return
    sizes = prepared(lengths, limit, align=align)
    assert sorted(flat(dealt)) == list(range(len(lengths)))
    assert len({len(rank) for rank in dealt}) == 1 and len(dealt[0]) % multiple == 0
    assert all(each and sizes[each].sum() <= limit for rank in dealt for each in rank)
    assert all(sorted(each) == each for rank in dealt for each in rank)
    first = [[int(sizes[each].sum()) for each in rank] for rank in dealt]
    assert first == [sorted(rank, reverse=True) for rank in first]
    assert dealt == pack(lengths, limit, ranks, COST, multiple=multiple, align=align)


@DRAWN
@pytest.mark.parametrize(("count", "ranks"), [(256, 4), (2048, 8)])
def test_micro_batches_are_few_and_ranks_are_even(drawn, count, ranks):
    sizes = drawn(np.random.default_rng(5), count)
    dealt = pack(sizes, 8192, ranks, COST)
    found = figures(dealt, sizes, 8192, COST)
    shared = -(-lower_bound(sizes, 8192) // ranks) * ranks
    assert found.microbatches <= max(shared * 1.01, shared + ranks if count < 1000 else 0)
    assert found.overflows == 0 and found.most_tokens <= 8192
    assert found.imbalance_ratio < 1.0002, "the target is 1.02"
    free = figures(pack(sizes, 8192, ranks, COST, equal=False), sizes, 8192, COST)
    assert free.microbatches <= 1.01 * lower_bound(sizes, 8192) + 1
    assert free.imbalance_ratio < 1.02


def test_cost_decides_who_gets_what():
    """Two ranks, one long sample and four short ones: even in tokens, or even in squares."""
    lengths = [400, 100, 100, 100, 100]
    tokens, squares = (pack(lengths, 800, 2, cost) for cost in (None, Cost(token_s=0.0, square_s=1.0)))
    assert sorted(sum(lengths[item] for item in rank[0]) for rank in tokens) == [400, 400]
    assert sorted(map(len, (rank[0] for rank in squares))) == [1, 4]
    assert COST.of_microbatch(np.array([100, 200])) == pytest.approx(20_000 * 300 + 100**2 + 200**2)
    assert COST.crossover_tokens() == 20_000


@DRAWN
def test_more_room_never_needs_more_micro_batches(drawn):
    sizes = drawn(np.random.default_rng(3), 300)
    counts = [sum(map(len, pack(sizes, limit, 1))) for limit in (8192, 10_000, 16_384, 65_536)]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize(("oversize", "most", "over"), [("truncate", 10, 0), ("alone", 25, 1)])
def test_what_is_longer_than_the_limit(oversize, most, over):
    lengths = [25, 5, 5, 4]
    with pytest.raises(InputError, match=r"1 of 4 samples are longer than 10 tokens, the longest has 25"):
        pack(lengths, 10)
    dealt = pack(lengths, 10, 1, oversize=oversize)
    found = figures(dealt, prepared(lengths, 10, oversize=oversize), 10)
    assert (found.most_tokens, found.overflows, found.microbatches) == (most, over, 3)
    assert [0] in dealt[0]


@pytest.mark.parametrize(
    ("lengths", "asked", "words"),
    [
        ([], {}, "no lengths"), ([0, 5], {}, "sample 0 has 0 tokens"), ([5, -3], {}, "sample 1 has -3 tokens"),
        ([1.5], {}, "whole numbers"), ([5], {"align": 16}, "100 tokens are no multiple of 16; 96 or 112 would be"),
        ([5], {"data_parallel": 2}, "1 samples do not make the 2 micro-batches that 2 ranks need"),
        ([5], {"data_parallel": 0}, "both must be at least 1"), ([5], {"align": 0}, "both must be at least 1"),
        ([5], {"max_tokens": "abc"}, "max_tokens is abc: a whole number"), ([5], {"max_tokens": 1.5}, "max_tokens is 1.5"),
        ([5], {"max_tokens": float("inf")}, "max_tokens is inf"), ([5], {"max_tokens": 2**70}, "is the most"),
        ([2**62, 2**62], {"oversize": "alone"}, "a sample of 4,611,686,018,427,387,904 tokens: 68,719,476,736 is the most"),
        ([5, 6], {"data_parallel": 1.5}, "data_parallel is 1.5"), ([5], {"data_parallel": None}, "data_parallel is null"),
        ([5], {"cost": 3}, "a meshwright.packing.Cost is needed"), ([5], {"cost": Cost(token_s=float("nan"))}, "is no number"),
        ([5], {"cost": Cost(token_s=-1.0)}, "costs less than nothing"), ([5], {"cost": Cost(square_s=1e308)}, "is no number"),
    ],
)
def test_what_cannot_be_packed_is_said(lengths, asked, words):
    with pytest.raises(InputError) as caught:
        pack(lengths, **{"max_tokens": 100, **asked})
    assert words in str(caught.value)


def test_levelled_and_split_by_hand():
    costs = np.array([5.0, 4, 3, 3])
    assert levelled(np.array([5, 4, 3, 3]), costs, 2) == [[0, 3], [1, 2]]
    assert levelled(np.array([5, 4, 3, 3]), costs, 2, 8) == [[0, 3], [1, 2]]
    assert levelled(np.array([5, 4, 3, 3]), costs, 2, 7) is None
    assert split_to(np.array([0, 0, 1, 1]), 3, costs).tolist() == [0, 2, 1, 1]


@given(LENGTHS, st.integers(100, 400))
def test_buckets_stay_within_the_limit_with_their_padding(lengths, limit):
    sizes = np.array(lengths)
    bins = bucketed(sizes, limit)
    assert sorted(item for each in bins for item in each) == list(range(len(lengths)))
    assert all(len(each) * sizes[each].max() <= limit for each in bins)
    assert sizes.sum() <= bucketed_tokens(sizes, limit) <= padded_tokens(sizes)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([1, 2, 4]))
def test_every_rank_of_context_parallelism_sees_as_much_of_every_document(parts, degree):
    documents = [2 * degree * part for part in parts]
    pieces = document_pieces(documents, degree)
    seen = sorted(token for rank in pieces for first, end in rank for token in range(first, end))
    assert seen == list(range(sum(documents)))
    before = np.concatenate([np.arange(tokens) + 0.5 for tokens in documents])
    pairs = [sum(before[first:end].sum() for first, end in rank) for rank in pieces]
    assert np.ptp(pairs) < 1e-9, "causal attention is even"
    assert len({sum(end - first for first, end in rank) for rank in pieces}) == 1


def test_alignment_and_degrees_of_context_parallelism():
    assert [alignment(*degrees) for degrees in ((1, 1), (8, 1), (1, 2), (8, 4))] == [1, 16, 4, 64]
    assert dynamic_degrees(np.array([1, 1000, 1001, 4000, 4001, 90_000]), 1000, 16).tolist() == [1, 1, 2, 4, 8, 16]
    with pytest.raises(InputError, match="a document of 6 tokens is no multiple of 2 x cp = 4"):
        document_pieces([6], 2)


def test_distributions_are_drawn_as_they_say():
    drawn = distribution("lognormal:median=1500,sigma=0.8,max=8192,n=4000").draw()
    assert (len(drawn), int(drawn.max()) <= 8192) == (4000, True)
    assert float(np.median(drawn)) == pytest.approx(1500, rel=0.05)
    assert np.std(np.log(drawn[drawn < 8192])) == pytest.approx(0.75, abs=0.07)
    assert np.array_equal(drawn, distribution("lognormal:median=1500,sigma=0.8,max=8192,n=4000").draw(0))
    assert not np.array_equal(drawn, distribution("lognormal:n=4000").draw(1))
    low = distribution("bimodal:low=500,high=6000,share=0.7,n=3000").draw()
    assert float((low < 2000).mean()) == pytest.approx(0.7, abs=0.03)
    assert distribution("fixed:max=7,n=3").draw().tolist() == [7, 7, 7]
    assert int(distribution("uniform:min=5,max=9,n=99").draw().min()) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lognorml", "did you mean lognormal?"), ("lognormal:mean=3", "'mean' is no parameter of lognormal: median, sigma, max, n"),
        ("lognormal:median=x", "median='x' is not a number"), ("uniform:n=0", "n=0 is no whole number"),
        ("fixed:n=1e9", "is not a number"),
        ("uniform:n=1.5", "n=1.5 is no whole number"), ("lognormal:median=9000", "median=9000 is not between 1 and max=8192"),
        ("lognormal:sigma=99", "sigma=99 is more than 10"), ("bimodal:share=2", "share=2 is more than 1"), ("", "'' is none of"),
        ("fixed:max=99999999999", "is no length from 1"), ("fixed:n=100000000", "is no whole number from 1 to 10,000,000"),
    ],
)
def test_distributions_that_make_no_sense(text, words):
    with pytest.raises(InputError) as caught:
        distribution(text)
    assert words in str(caught.value)
