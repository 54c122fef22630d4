"""What the grid of alternatives leaves out: every question has the winner that it would have had of everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.domain.layout import Overlap
from meshwright.judging import alternatives as judged
from meshwright.judging.alternatives import alternatives
from meshwright.perf.parameters import total_parameters
from meshwright.search import grid
from strategies import EVERYTHING, MEGATRON, small_case


def _asked(monkeypatch, case, features, *, barred):
    """The answers, how many layouts were evaluated, and the winners of the pool in every band."""
    seen, pools = [], []

    class Pool(judged._Pool):
        def __init__(self, *args):
            super().__init__(*args)
            pools.append(self)

        def add(self, columns, step_s, *rest):
            seen.append(len(step_s))
            super().add(columns, step_s, *rest)

    monkeypatch.setattr(grid, "WHOLE", 0 if barred else 10**9)
    monkeypatch.setattr(judged, "_Pool", Pool)
    found = alternatives(case, features, case.cluster.num_devices, Overlap(), total_parameters(case.model))
    return found, sum(seen), pools[0].fastest, pools[0].least


@pytest.mark.parametrize("features", [MEGATRON, EVERYTHING])
@pytest.mark.parametrize("capacity", [0.02, 0.1, 0.4, 1.0])
@pytest.mark.parametrize(("model", "devices"), [("llama3-8b", 16), ("qwen3-30b-a3b", 8)])
def test_winners_under_a_bar_are_those_without(monkeypatch, model, devices, features, capacity):
    case = small_case(model, layers=6, devices=devices, batch=32)
    device = replace(case.cluster.device, memory_bytes=int(case.cluster.device.memory_bytes * capacity))
    case = replace(case, cluster=replace(case.cluster, device=device))
    monkeypatch.setattr(grid, "FIRST_PAIRS", 8)
    every, some = (_asked(monkeypatch, case, features, barred=barred) for barred in (False, True))
    assert every[0] == some[0]
    assert every[2] == some[2]
    assert {name: each for name, each in every[3].items() if (name, judged.FITTING) not in every[2]} == {
        name: each for name, each in some[3].items() if (name, judged.FITTING) not in some[2]
    }
    assert some[1] < every[1] or not every[2]
