"""Where layers stand: PyTorch numbers stages, the layout counts by chunk and rank, and both must mean the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from benchmarks.parity import DENSE
from hypothesis import given
from hypothesis import strategies as st

from meshwright.domain.layout import Layout
from meshwright.engine.stages import places
from meshwright.estimate.split import chunk_kinds

MODEL = replace(DENSE, pattern=(0,) * 12)


def test_rounds_go_around_and_a_v_goes_back() -> None:
    rounds = Layout(pipeline_parallel=2, virtual_stages=2, num_microbatches=4, stage_layers=((1, 2), (3, 6)))
    assert [(p.index, p.layers) for p in places(MODEL, rounds, 0)] == [(0, range(1)), (2, range(3, 6))]
    assert [(p.index, p.layers) for p in places(MODEL, rounds, 1)] == [(1, range(1, 3)), (3, range(6, 12))]
    back = replace(rounds, schedule="dualpipev")
    assert [(p.index, p.layers) for p in places(MODEL, back, 0)] == [(0, range(1)), (3, range(9, 12))]
    assert [(p.index, p.layers) for p in places(MODEL, back, 1)] == [(1, range(1, 3)), (2, range(3, 9))]
    assert [p.first for p in places(MODEL, back, 0)] == [True, False]
    assert [p.last for p in places(MODEL, back, 0)] == [False, True]


@given(st.integers(1, 4), st.booleans(), st.data())
def test_stages_hold_what_the_cost_model_counts(pp: int, folded: bool, data: st.DataObject) -> None:
    chunks = 2 if folded else data.draw(st.integers(1, 3))
    cuts = sorted(data.draw(st.lists(st.integers(0, 12), min_size=pp * chunks - 1, max_size=pp * chunks - 1)))
    counts = np.diff([0, *cuts, 12])
    split = tuple(tuple(int(n) for n in counts[chunk * pp : (chunk + 1) * pp]) for chunk in range(chunks))
    pattern = tuple(data.draw(st.lists(st.integers(0, 1), min_size=12, max_size=12)))
    model = replace(MODEL, kinds=MODEL.kinds * 2, pattern=pattern)
    layout = Layout(
        pipeline_parallel=pp, virtual_stages=chunks, num_microbatches=8, stage_layers=split,
        schedule="dualpipev" if folded else "1f1b",
    )
    kinds = chunk_kinds(model, split, folded=folded)
    seen: list[int] = []
    for stage in range(pp):
        for place in places(model, layout, stage):
            here = [pattern[layer] for layer in place.layers]
            assert [here.count(kind) for kind in (0, 1)] == list(kinds[place.chunk, stage])
            seen += place.layers
    assert sorted(seen) == list(range(12))
