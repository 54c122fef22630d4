"""What own runs moved, in words: a constant of two machines says whose it is."""

from __future__ import annotations

import pytest

from meshwright.api.few_shot import FewShot
from meshwright.evidence.fit.few_shot import Moved
from meshwright.report.few_shot import few_shot_report


@pytest.mark.parametrize("devices", [("h800",), ("h800", "h100-sxm")])
def test_a_constant_of_several_machines_says_whose_it_is(devices):
    moved = tuple(Moved(constant="network_ratio", cell=f"{device}|nanotron|bf16", before=0.5, after=0.6) for device in devices)
    told = repr(list(few_shot_report(FewShot(
        n=2, moved=moved, interval_ratio_before=None, interval_ratio_after=None, conflicts=(), next_run=None,
    ))))
    for device in devices:
        assert (f"{device} nanotron bf16" in told) == (len(devices) > 1)
