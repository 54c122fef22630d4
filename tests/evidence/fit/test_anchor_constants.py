"""The command that fits the constants of anchored memory: it finds what pairs were drawn from."""

import numpy as np
import pytest
from benchmarks.anchor_constants import Pairs, likeliest, loss, ninety, standard_errors, variances

from meshwright.domain.estimate import StageMemory
from meshwright.estimate.anchor import FIXED, MULTIPLE, OWN, SHARED, Probe, inferred

TRUE = (0.3, 0.15, 0.03, 0.8)


def _drawn(count, seed=3):
    random = np.random.default_rng(seed)
    varying, states = random.lognormal(2.0, 0.8, (2, count)), random.lognormal(2.0, 0.8, (2, count))
    empty = Pairs(("a",) * count, varying, states, np.zeros((2, count)))
    probe, run, both = variances(TRUE, empty)
    first = np.sqrt(probe) * random.standard_normal(count)
    second = both / probe * first + np.sqrt(run - both**2 / probe) * random.standard_normal(count)
    return Pairs(tuple("abcd"[index % 4] for index in range(count)), varying, states, np.array([first, second]))


def test_the_shares_that_pairs_were_drawn_with_come_out():
    drawn = _drawn(4000)
    found = likeliest(drawn)
    assert found == pytest.approx(TRUE, rel=0.15)
    assert loss(found, drawn) <= loss(TRUE, drawn)
    assert float(np.std(standard_errors(found, drawn))) == pytest.approx(1.0, abs=0.05)
    quantile, count = ninety(drawn)
    assert count == 4000
    assert quantile == pytest.approx(1.645, abs=0.08)


def test_pairs_have_the_covariance_of_what_probes_infer():
    """8 and 4 GiB of activations beside 3 and 5 GiB of states: the standard deviation that is left, by both ways."""
    probe, run = (
        StageMemory(parameters=states, gradients=0.0, optimizer=0.0, activations=varying, temporary=0.0, overhead=0.0)
        for varying, states in ((8.0, 3.0), (4.0, 5.0))
    )
    shown = Probe(stage=0, predicted=probe, peak_bytes=13.0, same=False)
    (error,), (left,) = inferred([run], [shown])
    pair = Pairs(("a",), np.array([[8.0], [4.0]]), np.array([[3.0], [5.0]]), np.array([[2.0], [error + left]]))
    assert float(standard_errors((MULTIPLE, FIXED, OWN, SHARED), pair)[0]) == pytest.approx(1.0, rel=1e-9)
