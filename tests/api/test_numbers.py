"""Numbers with suffixes, every one of them."""

import pytest

from meshwright.api.numbers import sequence, share, size, tokens
from meshwright.errors import InputError


@pytest.mark.parametrize(("suffix", "factor"), [
    ("", 1), ("B", 1), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("G", 2**30),
    ("M", 2**20), ("m", 2**20), ("g", 2**30),
])
def test_every_suffix_of_a_size(suffix, factor):
    number = 12.5e9 if factor == 1 else 12.5
    assert size(f"{number}{suffix}") == size(f" {number} {suffix} ") == number * factor


@pytest.mark.parametrize(("suffix", "binary", "decimal"), [
    ("k", 2**10, 1e3), ("M", 2**20, 1e6), ("K", 2**10, 1e3), ("m", 2**20, 1e6),
])
def test_suffixes_of_sequences_are_binary_and_those_of_tokens_decimal(suffix, binary, decimal):
    assert sequence(f"12{suffix}") == 12 * binary
    assert tokens(f"1.5{suffix}") == 1.5 * decimal


def test_suffixes_that_only_one_of_them_has():
    assert sequence("1G") == 2**30
    assert [tokens(f"15{suffix}") for suffix in "BbTt"] == [15e9, 15e9, 15e12, 15e12]


@pytest.mark.parametrize("parse", [tokens, sequence, share])
def test_a_fault_shows_the_word_as_it_was_written(parse):
    for word in ("15TT", "8kk", "9%%", "xM"):
        with pytest.raises(InputError) as raised:
            parse(word)
        assert repr(word) in str(raised.value)


def test_a_bare_number_of_bytes_that_nobody_means_is_a_slip():
    with pytest.raises(InputError, match="as in 60GiB"):
        size("60")
    assert size("60e9") == 60e9
