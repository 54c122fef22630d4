"""ChatLearn's packing against docs/sources.md#chatlearn, and against ChatLearn's own functions where they are."""

from __future__ import annotations

import ast
import random
import warnings
from fractions import Fraction
from math import ceil, exp
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles_run import needs, source
from tests.draws import examples

from meshwright.frameworks.chatlearn.packing import (
    fitting_bins,
    headroom_ratio,
    level_bins,
    limit_for,
    packed,
    padded_tokens,
    padding_multiple,
    sequences_for,
    worst_tokens,
    written_for,
)
from meshwright.packing.modes.chatlearn import chatlearn, kept_limit, most_tokens

LENGTHS = st.lists(st.integers(1, 9000), min_size=1, max_size=60)


@given(LENGTHS, st.integers(1, 10_000))
def test_the_first_pass_keeps_every_sample_and_fills_no_bin_to_the_brim(lengths, limit):
    bins = fitting_bins(lengths, limit)
    assert sorted(length for each in bins for length in each) == sorted(lengths)
    assert all(sum(each) < limit or len(each) == 1 for each in bins)


@given(LENGTHS, st.integers(1, 70))
def test_the_second_pass_keeps_every_sample_in_the_bins_it_is_given(lengths, count):
    bins = level_bins(lengths, count)
    assert len(bins) == count
    assert sorted(length for each in bins for length in each) == sorted(lengths)
    sums = [sum(each) for each in bins]
    assert sums == sorted(sums, reverse=True), "the first micro-batch is the peak"
    assert max(sums) <= ceil(sum(lengths) / count) + max(lengths), "no bin gets a sample while another is emptier"


def test_an_exact_fit_opens_a_bin():
    assert fitting_bins([4096, 4096], 8192) == ((4096,), (4096,))
    assert fitting_bins([4096, 4095], 8192) == ((4096, 4095),)


def test_a_sample_above_the_limit_has_a_bin_of_its_own():
    assert (9000,) in fitting_bins([9000, 10, 20], 8192)


def test_the_second_pass_looks_at_no_limit():
    lengths, limit = [30, 30, 20, 20, 20], 61
    assert fitting_bins(lengths, limit) == ((30, 30), (20, 20, 20))
    assert packed(lengths, limit) == ((30, 20, 20), (30, 20)), "70 tokens, although 61 is the limit"


def test_more_bins_of_others_level_a_rank_out():
    lengths = [100] * 8
    assert max(map(sum, packed(lengths, 401))) == 400 > max(map(sum, packed(lengths, 401, most_bins=4))) == 200


def rank_batches(count, samples=64, seed=1):
    """Unpadded lengths of some rank batches: exp(N(7.3, 0.8)) + 64, at most 8000, as section 6 measured with."""
    rng = random.Random(seed)
    for _ in range(count):
        yield [min(8000, round(exp(rng.gauss(7.3, 0.8))) + 64) for _ in range(samples)]


@pytest.mark.parametrize(
    ("multiple", "samples", "count", "share_over"),
    [(1, 64, 300, 0.253), (16, 64, 300, 0.311), (64, 64, 300, 0.520), (1, 16, 300, 0.042)],
)
def test_the_measured_shares_above_the_limit(multiple, samples, count, share_over):
    worst = [max(padded_tokens(each, multiple) for each in packed(lengths, 8192)) for lengths in rank_batches(count, samples)]
    over = sum(tokens > 8192 for tokens in worst) / count
    assert over == pytest.approx(share_over, abs=0.09)  # three standard deviations of so many batches
    assert max(worst) <= worst_tokens(8192, multiple)


def test_groups_that_take_the_maximum_are_over_less_often():
    lists = list(rank_batches(240))
    alone = sum(max(map(sum, packed(lengths, 8192))) > 8192 for lengths in lists)
    together = 0
    for start in range(0, len(lists), 8):
        group = lists[start : start + 8]
        most = max(len(fitting_bins(lengths, 8192)) for lengths in group)
        together += sum(max(map(sum, packed(lengths, 8192, most_bins=most))) > 8192 for lengths in group)
    assert together < alone / 2


def test_head_room_is_at_least_seven_percent():
    assert headroom_ratio(1) == headroom_ratio(64) == Fraction(107, 100)
    assert headroom_ratio(256) > headroom_ratio(128) > headroom_ratio(64)
    assert padding_multiple(8, 4) == 64


@st.composite
def rank_lengths(draw):
    """Samples of some ranks: of any length, of two, short ones beside few long ones, or Graham's worst for so many machines."""
    longest, count = draw(st.integers(1, 600)), draw(st.integers(1, 48))
    machines = draw(st.integers(2, 9))
    graham = [part for length in range(machines, 2 * machines) for part in (length, length)] + [machines]
    scale = max(1, longest // (2 * machines))
    any_length = st.lists(st.integers(1, longest), min_size=count, max_size=count)
    two = st.lists(st.sampled_from([1, longest, max(1, longest // 2), max(1, longest // 3)]), min_size=count, max_size=count)
    worst = st.just([min(longest, length * scale) for length in graham])
    rank = st.one_of(any_length, two, worst)
    return longest, draw(st.lists(rank, min_size=1, max_size=3))


@examples(300)
@given(rank_lengths(), st.integers(1, 5), st.sampled_from([1, 2, 16, 64]), st.floats(0.3, 1.2))
def test_no_micro_batch_of_chatlearn_exceeds_what_the_written_limit_keeps(drawn, size, multiple, share):
    """Whatever the lengths up to the longest, alone or with the counts of other ranks, padded behind each sample."""
    longest, ranks = drawn
    samples = max(map(len, ranks))
    tokens = max(size * longest, -(-longest // multiple) * multiple)
    limit = kept_limit(tokens, longest, samples, multiple)
    assert most_tokens(limit, longest, samples, multiple) <= tokens
    whatever = samples * (-(-longest // multiple) * multiple) <= tokens  # all fit into one, so that any limit keeps it
    assert samples < 2 or whatever or tokens < most_tokens(limit + 1, longest, samples, multiple)
    most = max(len(fitting_bins(each, limit)) for each in ranks)
    for each in ranks:
        for agreed in (0, most):
            assert max(padded_tokens(inside, multiple) for inside in packed(each, limit, most_bins=agreed)) <= tokens
    other = max(2, int(share * longest))
    for each in ranks:
        fullest = max(padded_tokens(inside, multiple) for inside in packed(each, other))
        assert fullest <= most_tokens(other, longest, len(each), multiple)


@examples(60)
@given(st.integers(1, 16), st.lists(st.integers(1, 8000), min_size=4, max_size=80), st.sampled_from([1, 2, 4]))
def test_the_mode_keeps_what_the_written_limit_promises(multiple, lengths, ranks):
    longest, samples = 8000, -(-len(lengths) // ranks)
    tokens = -(-16_000 // multiple) * multiple
    sizes = np.array(lengths)
    dealt = chatlearn(sizes, kept_limit(tokens, longest, samples, multiple), ranks)
    assert max(padded_tokens(sizes[each].tolist(), multiple) for rank in dealt for each in rank) <= tokens


def test_the_bound_is_reached():
    """Graham's worst, which best fit packs to the brim: 4/3 - 1/(3n) of what fitted."""
    for machines in (2, 3, 6, 12):
        lengths = [part for length in range(machines + 1, 2 * machines) for part in (length, length)] + [machines] * 3
        fullest = max(map(sum, packed(lengths, 3 * machines + 1)))
        assert fullest == 4 * machines - 1 <= most_tokens(3 * machines + 1, 2 * machines - 1, len(lengths)) == 4 * machines
    assert max(padded_tokens(each, 16) for each in packed([1] * 8, 9)) == most_tokens(9, 3, 8, 16) == 8 * 16
    assert most_tokens(100, 30, 1) == most_tokens(1, 30, 64) == 30, "a sample alone"


@given(st.integers(1, 16), st.integers(64, 40_000), st.integers(1, 8), st.sampled_from([1, 2, 16]))
def test_the_written_limit_is_read_back(size, sequence, times, multiple):
    samples = size * times
    limit = kept_limit(size * sequence, sequence, samples, multiple)
    found = written_for(limit, sequence, samples, multiple)
    assert found == size or kept_limit(found * sequence, sequence, samples, multiple) == limit


@given(st.integers(1, 16), st.integers(64, 40_000), st.integers(1, 8))
def test_the_full_limit_packs_the_longest_samples_as_planned(size, sequence, times):
    """8 sequences of 8,192 tokens need more than 65,536: under 61,248 only 7 of them would share a micro-batch."""
    limit = limit_for(size, sequence)
    assert set(map(len, packed([sequence] * size * times, limit))) == {size}
    assert max(map(len, fitting_bins([sequence] * size * times, limit - 1))) == max(size - 1, 1)
    assert sequences_for(limit, sequence, size * times) == size


@given(st.integers(1, 70_000), st.integers(64, 40_000), st.integers(1, 64))
def test_a_limit_is_read_as_no_more_sequences_than_it_packs(limit, sequence, batch):
    """8,192 tokens hold 2 sequences of 3,072, not 4."""
    size = sequences_for(limit, sequence, batch)
    assert batch % size == 0
    assert size <= max(map(len, fitting_bins([sequence] * batch, limit)))


@pytest.mark.oracle
@needs("chatlearn")
def test_it_is_what_chatlearn_does():
    import numpy

    text = Path(source("chatlearn"), "chatlearn/algorithm/grpo_utils/packing_utils.py").read_text()
    wanted = [node for node in ast.parse(text).body if getattr(node, "name", "") in {"bin_packing", "bin_packing_fix_bin"}]
    theirs = {"np": numpy, "List": list, "warnings": warnings}
    exec(compile(ast.Module(body=wanted, type_ignores=[]), "packing_utils", "exec"), theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a sample above the limit
        for number, lengths in enumerate(rank_batches(100, samples=24, seed=9)):
            limit = 2000 + 100 * number
            _, first = theirs["bin_packing"](lengths, limit)
            assert [list(each) for each in fitting_bins(lengths, limit)] == first
            _, second = theirs["bin_packing_fix_bin"](lengths, len(first))
            assert sorted(map(sum, level_bins(lengths, len(first)))) == sorted(map(sum, second))
