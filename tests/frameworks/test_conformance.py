"""Every adapter keeps the promises of ``meshwright.testing`` at each of its releases, with as many plans that it can write."""

from __future__ import annotations

import pytest
from tests.draws import FUZZ, draws

from meshwright.frameworks import framework, frameworks
from meshwright.testing import conformance

RELEASES = [f"{name}@{release}" for name in frameworks() for release in framework(name).releases]
PROMISES = [
    pytest.param(test, id=f"{name}-{promise}")
    for name in RELEASES for promise, test in conformance(name, examples=draws(9), seed=FUZZ or None).items()
]


@pytest.mark.parametrize("promise", PROMISES)
def test_an_adapter_keeps_its_promises(promise):
    promise()
