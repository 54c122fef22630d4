"""The interval of a median, against all samples that can be."""

from __future__ import annotations

from itertools import product
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from meshwright.domain.sample import Sample
from meshwright.engine.profile.statistics import FEWEST_BLOCKS, interval_ranks, median_interval, noise_ratio, tight, too_noisy


def coverage(count: int, low: int, high: int) -> float:
    """Share of all patterns of below and above the median in which it lies between two order statistics."""
    held = 0
    for signs in product((0, 1), repeat=count):
        below = count - sum(signs)  # of the values, those under the median come first in order
        held += low < below <= high
    return held / 2**count


def test_the_interval_holds_the_median_so_often_and_no_narrower_one_does() -> None:
    for count in range(1, 13):
        low, high = interval_ranks(count)
        assert low + high == count - 1
        if count < FEWEST_BLOCKS:
            assert low == 0
            assert coverage(count, low, high) < 0.95
            continue
        assert coverage(count, low, high) >= 0.95
        if high - low > 1:
            assert coverage(count, low + 1, high - 1) < 0.95


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40), st.randoms())
def test_the_interval_is_of_the_values_and_around_their_median(values: list[float], random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    middle, low, high = median_interval(values)
    assert median_interval(shuffled) == (middle, low, high)
    assert min(values) <= low <= middle <= high <= max(values)
    assert middle == median(values)
    assert {low, high} <= set(values)


def test_few_blocks_are_never_tight_and_equal_ones_are() -> None:
    assert not tight([1.0] * (FEWEST_BLOCKS - 1), 0.5)
    assert tight([1.0] * FEWEST_BLOCKS, 0.0)
    values = [1.0, 1.1, 1.0, 0.9, 1.0, 1.0]
    assert not tight(values, 0.05)
    assert tight([*values, *[1.0] * 12], 0.05)


def sample(best: float, worst: float, bench: str = "product") -> Sample:
    return Sample(bench=bench, arguments={"size": best}, busy_ranks=2, seconds=best, low_s=best, high_s=worst, best_s=best,
                  worst_s=worst, blocks=6, calls=1)  # type: ignore[arg-type]


def test_noise_is_that_of_products() -> None:
    assert noise_ratio([]) == 1.0
    assert noise_ratio([sample(1.0, 1.2), sample(2.0, 8.0), sample(1.0, 1.4), sample(1.0, 90.0, "pass")]) == 1.4
    assert too_noisy(sample(1.0, 3.5))
    assert not too_noisy(sample(1.0, 2.5))
    assert not too_noisy(sample(1.0, 3.5, "collective"))
