"""Names that a misspelt one may have meant are those of the standard library's matcher, of which few are asked."""

from difflib import SequenceMatcher, get_close_matches

from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import NEAR, did_you_mean, most_alike

NAMES = st.text("abc-", max_size=12)


@given(NAMES, NAMES)
def test_no_texts_are_more_alike_than_the_bound(one: str, other: str) -> None:
    ratio = max(SequenceMatcher(None, one, other).ratio(), SequenceMatcher(None, other, one).ratio())
    assert ratio <= most_alike(one, other)


def test_the_bound_counts_letters_in_their_order() -> None:
    assert most_alike("--tensor-parallel", "--tensor-parallel-size") == 2 * 17 / 39
    assert most_alike("abcd", "dcba") == 2 * 1 / 8
    assert most_alike("abcabba", "cbabac") == 2 * 4 / 13
    assert most_alike("", "") == 1.0


@given(NAMES, st.lists(NAMES, unique=True, max_size=12))
def test_names_offered_are_those_of_the_matcher_alone(name: str, known: list[str]) -> None:
    near = get_close_matches(name, sorted(known), n=9, cutoff=NEAR)
    assert did_you_mean(name, known) == (f"; did you mean {', '.join(near[:3])}?" if near else "")
