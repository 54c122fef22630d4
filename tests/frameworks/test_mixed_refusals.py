"""What a framework cannot say of layers that recompute in several ways it refuses in one line, and nothing trips over it."""

from __future__ import annotations

import pytest

from meshwright.domain.layout import Mixed
from meshwright.errors import InputError
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.probe import smaller
from meshwright.testing import any_plans, legal_plans

RELEASES = [f"{name}@{release}" for name in frameworks() for release in framework(name).releases]


@pytest.mark.parametrize("name", RELEASES)
def test_mixtures_are_refused_in_one_line_or_said(name):
    there = framework(name)
    plans = [(case, layout) for case, layout in any_plans(name, 120) if isinstance(layout.recompute, Mixed)]
    assert len(plans) >= 3
    for case, layout in plans:
        refused = [message.id for message in there.check(case, layout) if message.id.endswith(".recompute-mixed")]
        assert len(refused) == (not there.features.recompute_mixed and not there.features.recompute_mixed_first)
        there.overlap(case, layout)
        if refused:
            with pytest.raises(InputError, match="recomputed in different ways"):
                there.write(case, layout)


def test_a_probe_of_mixed_layers_has_the_heaviest_treatment():
    name = next(name for name in RELEASES if framework(name).features.recompute_mixed)
    case, layout = next(iter(legal_plans(name, 1, feature="mixed recompute")))
    found = smaller(framework(name), case, layout)
    assert found is None or not isinstance(found[1].recompute, Mixed)
