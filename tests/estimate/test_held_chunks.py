"""What chunked stages hold is the same whatever other pipelines were asked about before and beside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.estimate import held_chunks as module
from meshwright.perf.schedules import SCHEDULES

ROWS = (0, 0, 1, 1)
"""Which stage a row is of: the first, or the last."""
PIPELINES = st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(2, 5)).map(lambda each: (each[0] * each[1], *each[1:]))
"""Micro-batches, stages, chunks."""


def columns(pipelines):
    rows = [(m, p, v, *(0 if row == 0 else p - 1 for row in ROWS)) for m, p, v in pipelines]
    return np.array(rows, dtype=np.int64).reshape(len(rows), 3 + len(ROWS)).T


def fullest(held, weights):
    """What every row of every pipeline holds at most, where chunk c weighs so much."""
    return np.einsum("mcrp,c->mrp", held, weights[: held.shape[1]]).max(axis=0)


@given(asked=st.lists(st.lists(PIPELINES, max_size=6), min_size=1, max_size=4),
       weights=st.lists(st.integers(0, 9), min_size=5, max_size=5), kept=st.sampled_from((300, 2**20)))
def test_what_was_asked_before_does_not_matter(asked, weights, kept):
    formula, weights = SCHEDULES["interleaved"].held_until_weight, np.array(weights, dtype=np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEPT_CELLS", kept)
        for pipelines in asked:
            own = columns(pipelines)
            held = module.held_chunks("interleaved", own)
            assert held.shape[1:] == (own[2].max(initial=1), len(ROWS), len(pipelines))
            for number, (m, p, v) in enumerate(pipelines):
                alone = formula(stage=own[3:, number], num_stages=p, num_microbatches=m, num_chunks=v)
                assert (fullest(held, weights)[:, number] == fullest(alone[..., None], weights)[:, 0]).all()
