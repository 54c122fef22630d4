"""Every adapter keeps the promises of ``meshwright.testing`` at each of its releases, with as many plans that it can write."""

from __future__ import annotations

import pytest
from tests.draws import FUZZ, draws

from meshwright.frameworks import framework, frameworks
from meshwright.testing import conformance

RELEASES = [f"{name}@{release}" for name in frameworks() for release in framework(name).releases]
TURN = 4
"""Beside the release that a framework is asked for by default, each keeps the first promise and one of so many others, in turn."""


def _promises():
    for number, name in enumerate(RELEASES):
        default = framework(name.partition("@")[0]).version
        for place, (promise, test) in enumerate(conformance(name, examples=draws(9), seed=FUZZ or None).items()):
            sampled = name.endswith(f"@{default}") or place == 0 or (number + place) % TURN == 0
            yield pytest.param(test, id=f"{name}-{promise}", marks=() if sampled else pytest.mark.matrix)


@pytest.mark.parametrize("promise", list(_promises()))
def test_an_adapter_keeps_its_promises(promise):
    promise()
