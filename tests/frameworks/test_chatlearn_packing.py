"""ChatLearn's packing against docs/sources.md#chatlearn, and against ChatLearn's own functions where they are."""

from __future__ import annotations

import ast
import random
import warnings
from fractions import Fraction
from math import ceil, exp
from pathlib import Path

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
    safe_limit,
    sequences_for,
    worst_tokens,
)

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


@examples(200)
@given(st.integers(1, 16), st.integers(64, 40_000), st.sampled_from([1, 2, 4, 16, 64, 128]), st.integers(1, 8))
def test_the_safe_limit_is_the_largest_whose_worst_micro_batch_fits(size, sequence, multiple, times):
    limit = safe_limit(size * sequence, multiple)
    assert limit * headroom_ratio(multiple) <= size * sequence < (limit + 1) * headroom_ratio(multiple)


@given(st.integers(1, 16), st.integers(64, 40_000), st.integers(1, 8))
def test_the_written_limit_packs_what_the_plan_assumes_and_is_read_back(size, sequence, times):
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
