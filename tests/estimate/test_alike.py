"""Layers without experts, computed once for columns that differ in the degrees of experts alone."""

from functools import cache

import numpy as np
import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.case import Case
from meshwright.domain.layout import Full, NoRecompute, Overlap, Selective
from meshwright.estimate.costs import Alike, Settings, WorkCosts, work_costs
from meshwright.estimate.degrees import Degrees
from meshwright.estimate.tables import Table

TREATMENTS = (NoRecompute(), Selective(modules=("core_attn",)), Full())


@cache
def case() -> Case:
    return make_case("deepseek-v3", cluster_for("h800", num_devices=2048), global_batch_sequences=15360, sequence_tokens=4096)


def costs(columns: np.ndarray, alike: Alike | None = None) -> WorkCosts:
    settings = Settings(schedule="1f1b", treatments=TREATMENTS, overlap=Overlap(), context_kind="ring")
    words = ("tp", "sp", "cp", "ep", "etp", "mb", "pp", "dp")
    return work_costs(case(), settings, Degrees.of(dict(zip(words, columns, strict=True))), alike)


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_are_alike_cost_what_each_costs_alone(seed: int) -> None:
    """To the bit, kind by kind, the one with experts among them."""
    drawn = np.random.default_rng(seed)
    tp = 2 ** drawn.integers(0, 4, 64)
    columns = np.stack([
        tp, (tp > 1).astype(np.int64), 2 ** drawn.integers(0, 3, 64), 2 ** drawn.integers(0, 6, 64), np.ones_like(tp),
        2 ** drawn.integers(0, 3, 64), np.full_like(tp, 4), 512 // tp,
    ])
    plain = np.delete(columns, [3, 4], axis=0)
    _, one, like = np.unique(plain, axis=1, return_index=True, return_inverse=True)
    assert len(one) < 64 and len(np.unique(columns, axis=1).T) > len(one)
    every, few = costs(columns), costs(columns, Alike(one=one, like=like.reshape(-1)))
    assert [kind.experts is None for kind in case().model.kinds] == [True, False]
    for whole, gathered in zip(every.kinds, few.kinds, strict=True):
        assert np.array_equal(Table(whole, 64).rows, Table(gathered, 64).rows)
