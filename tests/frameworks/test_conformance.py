"""Every adapter keeps the promises of ``meshwright.testing``, at its default release and at those with another surface."""

from __future__ import annotations

import pytest

from meshwright.frameworks import framework, frameworks
from meshwright.testing import conformance

RELEASES = [
    f"{name}@{release}" for name in frameworks() for release in framework(name).releases if release != framework(name).version
]
CASES = [(name, 30) for name in frameworks()] + [(name, 8) for name in RELEASES]
PROMISES = [
    pytest.param(test, id=f"{name}-{promise}")
    for name, examples in CASES for promise, test in conformance(name, examples=examples).items()
]


@pytest.mark.parametrize("promise", PROMISES)
def test_an_adapter_keeps_its_promises(promise):
    promise()
