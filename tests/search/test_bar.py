"""What a search leaves out because it can no longer matter: what it keeps is what it would have kept of everything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.catalog import calibration
from meshwright.domain.layout import Overlap
from meshwright.estimate.evaluate import evaluate
from meshwright.search import finalists, grid
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.space import make_space, parse_pins
from strategies import EVERYTHING, MEGATRON, small_case

KEPT = 4


def _pool(case, features, objective, *, near, front, barred, **pins):
    space = make_space(case, features, case.cluster.num_devices, parse_pins(pins))
    pool = Finalists(
        space=space, overlap=Overlap(), objective=objective, capacity_bytes=case.capacity_bytes, keep=KEPT,
        near_wanted=near, front_wanted=front,
    )
    counts = Counts()
    for rows in evaluate_grid(space, counts, overlap=Overlap(), bar=pool if barred else None):
        pool.add(rows)
    return pool, counts


@pytest.mark.parametrize("objective", ["step-time", "memory", "throughput-per-device"])
@pytest.mark.parametrize(("near", "front"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("features", [MEGATRON, EVERYTHING])
@pytest.mark.parametrize("capacity", [0.02, 0.1, 1.0])
def test_the_pools_under_a_bar_are_those_without(monkeypatch, objective, near, front, features, capacity):
    monkeypatch.setattr(finalists, "NEAR", KEPT)
    monkeypatch.setattr(grid, "WHOLE", 0)
    case = small_case(layers=6, devices=8, batch=16)
    device = replace(case.cluster.device, memory_bytes=int(case.cluster.device.memory_bytes * capacity))
    case = replace(case, cluster=replace(case.cluster, device=device))
    (whole, every), (barred, some) = (
        _pool(case, features, objective, near=near, front=front, barred=barred) for barred in (False, True)
    )
    assert barred.best == whole.best
    assert barred.near == whole.near
    assert barred.front == whole.front
    assert (some.legal, some.possible, some.rejected) == (every.legal, every.possible, every.rejected)
    assert some.evaluated + some.bounded == every.evaluated + every.bounded == every.legal
    assert some.evaluated < every.evaluated or not every.fitting


def test_a_bar_is_beyond_nothing_that_it_would_keep():
    case = small_case(layers=4, devices=8, batch=8)
    pool, _ = _pool(case, MEGATRON, "step-time", near=True, front=True, barred=True)
    kept = [*pool.best, *(each for band in pool.near for each in band), *pool.front]
    step_s, reserved = (np.array([getattr(each, name) for each in kept]) for name in ("step_s", "reserved_bytes"))
    assert not pool.beyond(step_s, reserved).any()
    assert not pool.beyond(0.5 * step_s, 0.9 * reserved).any()
    assert pool.beyond(1e6 * step_s, 1e6 * reserved).all()


def test_the_pools_under_a_bar_are_those_without_where_a_layout_takes_one_of_two_times(monkeypatch):
    monkeypatch.setattr(finalists, "NEAR", KEPT)
    monkeypatch.setattr(grid, "WHOLE", 0)
    case = small_case(layers=4, devices=16, batch=32, implementation="nanotron")
    case = replace(case, calibration=calibration("shipped", case.cluster, framework="nanotron", precision="bf16"))
    (whole, every), (barred, some) = (
        _pool(case, EVERYTHING, "step-time", near=True, front=True, barred=barred, pp="2") for barred in (False, True)
    )
    assert (barred.best, barred.near, barred.front) == (whole.best, whole.near, whole.front)
    assert some.evaluated + some.bounded == every.evaluated == every.legal
    assert some.evaluated < every.evaluated
    usual = [float(evaluate(case, each.layout).time.step_s) for each in whole.front]
    assert any(each.step_s > step_s * 1.001 for each, step_s in zip(whole.front, usual, strict=True))
