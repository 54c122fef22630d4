"""The command that fits the constants of anchored memory: it finds what pairs were drawn from."""

import numpy as np
import pytest
from benchmarks.anchor_constants import DEGREES, Pairs, conditioned, likeliest, loss, ninety, scaled_errors, variances

from meshwright.domain.estimate import StageMemory
from meshwright.estimate.anchor import FIXED, MULTIPLE, SHARED, Probe, inferred

TRUE = (0.3, 0.15, 0.8)


def _pairs(varying, states, errors, models=None, allocated=1e6):
    """Pairs whose peaks are so large that errors are small shares of them, and whose allocator holds nothing else."""
    peaks = np.full(np.shape(varying), allocated)
    return Pairs(models or ("a",) * np.shape(varying)[1], varying, states, errors, peaks, peaks, np.zeros(peaks.shape))


def _drawn(count, seed=3):
    random = np.random.default_rng(seed)
    varying, states = random.lognormal(2.0, 0.8, (2, count)), random.lognormal(2.0, 0.8, (2, count))
    probe, run, both = variances(TRUE, _pairs(varying, states, np.zeros((2, count))))
    first = np.sqrt(probe) * random.standard_normal(count)
    second = both / probe * first + np.sqrt(run - both**2 / probe) * random.standard_normal(count)
    tails = np.sqrt(random.chisquare(DEGREES, count) / DEGREES)
    return _pairs(varying, states, np.array([first, second]) / tails, tuple("abcd"[index % 4] for index in range(count)))


def test_the_shares_that_pairs_were_drawn_with_come_out():
    drawn = _drawn(4000)
    found = likeliest(drawn)
    assert found == pytest.approx(TRUE, rel=0.15)
    assert loss(found, drawn) <= loss(TRUE, drawn)
    assert all(
        loss([share * (factor if place == number else 1.0) for number, share in enumerate(found)], drawn) >= loss(found, drawn)
        for place in range(3) for factor in (0.99, 1.01)
    )
    quantile, count = ninety(drawn)
    assert count == 4000
    assert quantile == pytest.approx(2.132, abs=0.15)  # of a t of four degrees, two-sided


def test_the_interval_with_a_probe_is_as_wide_as_ninety_says():
    """10 GiB of 16 reserved, half as wide again for what no probe shows: hypot(0.5 x 6/16, n x 1/16) holds a factor of 1.4."""
    pair = Pairs(
        ("a",), *(np.array([[one], [other]]) for one, other in ((8.0, 4.0), (3.0, 5.0), (0.0, 4.0), (10.0, 10.0), (16.0, 16.0),
                                                               (0.5, 0.5)))
    )
    _, (scale,) = conditioned(TRUE, pair)
    (scales,) = scaled_errors(TRUE, pair)
    assert np.hypot(0.5 * 6.0 / 16.0, scales * scale / 16.0) == pytest.approx(np.log(1.4))


def test_pairs_have_the_covariance_of_what_probes_infer():
    """8 and 4 GiB of activations beside 3 and 5 GiB of states: the standard deviation that is left, by both ways."""
    probe, run = (
        StageMemory(parameters=states, gradients=0.0, optimizer=0.0, activations=varying, temporary=0.0, overhead=0.0)
        for varying, states in ((8.0, 3.0), (4.0, 5.0))
    )
    shown = Probe(stage=0, predicted=probe, peak_bytes=13.0, same=False)
    inferred_error, inferred_left = inferred([run], [shown])
    pair = _pairs(np.array([[8.0], [4.0]]), np.array([[3.0], [5.0]]), np.array([[2.0], [0.0]]))
    mean, left = conditioned((MULTIPLE, FIXED, SHARED), pair)
    assert [mean[0], left[0]] == pytest.approx([inferred_error[0], inferred_left[0]], rel=1e-9)
