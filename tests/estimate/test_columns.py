"""One layout alone and the same layout in a column give the same figures, in the same order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.domain.layout import Full
from meshwright.estimate import evaluate
from meshwright.estimate.many import evaluate_many
from meshwright.search.finalists import layout_of_row
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.plan import overlap_for
from meshwright.search.space import Pins, make_space
from strategies import EVERYTHING, cases, examples, layouts, small_case

STRIDE = 251
CLOSE = {"rtol": 1e-9, "atol": 0.0}


def _alone(case, chosen) -> tuple[np.ndarray, np.ndarray]:
    found = [evaluate(case, layout) for layout in chosen]
    return np.array([float(each.time.step_s) for each in found]), np.array(
        [float(each.memory.reserved_bytes.max()) for each in found]
    )


@examples(25)
@given(cases(), st.data())
def test_many_layouts_of_every_sort_agree_with_each_alone(case, data):
    chosen = [data.draw(layouts(case)) for _ in range(data.draw(st.integers(1, 6)))]
    steps, sizes = evaluate_many(case, chosen)
    alone = _alone(case, chosen)
    np.testing.assert_allclose(steps, alone[0], **CLOSE)
    np.testing.assert_allclose(sizes, alone[1], **CLOSE)
    reversed_steps, _ = evaluate_many(case, chosen[::-1])
    assert list(reversed_steps[::-1]) == pytest.approx(list(steps), rel=1e-14)


def test_uneven_stages_and_recomputed_layers_agree_with_each_alone():
    case = small_case("llama3-8b", layers=10, devices=4, batch=8)
    base = next(iter(_grid(case, 1)))
    base = replace(
        base,
        tensor_parallel=1,
        sequence_parallel=False,
        context_parallel=1,
        data_parallel=1,
        pipeline_parallel=4,
        num_microbatches=8,
        microbatch_sequences=1,
        optimizer_shards=1,
        gradient_shards=1,
        parameter_shards=1,
        schedule="1f1b",
        virtual_stages=1,
    )
    chosen = [
        base,
        replace(base, stage_layers=((2, 3, 3, 2),)),
        replace(base, stage_layers=((1, 4, 4, 1),)),
        replace(base, recompute=Full(layers=2)),
        replace(base, recompute=Full(layers=((3, 2, 1, 0),))),
        replace(base, stage_layers=((4, 3, 2, 1),), recompute=Full()),
        replace(base, schedule="interleaved", virtual_stages=2, recompute=Full(layers=((2, 1, 1, 0), (0, 1, 1, 0)))),
    ]
    steps, sizes = evaluate_many(case, chosen)
    alone = _alone(case, chosen)
    np.testing.assert_allclose(steps, alone[0], **CLOSE)
    np.testing.assert_allclose(sizes, alone[1], **CLOSE)
    assert len(set(np.round(steps, 12))) > 4


def _grid(case, every: int):
    overlap = overlap_for(case, "equivalent")
    space = make_space(case, EVERYTHING, case.cluster.num_devices, Pins())
    for rows in evaluate_grid(space, Counts(), overlap=overlap, bound=False):
        for index in range(0, len(rows), every):
            yield layout_of_row(space, rows, index, overlap)


@pytest.mark.parametrize("name", [
    "llama3-8b", "deepseek-v3", "gemma2-9b", "mixtral-8x7b", "qwen3-next-80b-a3b", "nemotron-3-super-120b-a12b",
    "deepseek-v4-flash", "falcon-h1-34b", "glm-5.2", "gemma3n-e2b",
])
def test_rows_of_a_larger_grid_agree_with_each_alone_and_keep_their_order(name):
    case = small_case(name, layers=8 if name.startswith("nemotron") else 6, devices=16, batch=32, sequence=4096)
    overlap = overlap_for(case, "equivalent")
    space = make_space(case, EVERYTHING, 16, Pins())
    chosen, steps, sizes = [], [], []
    for rows in evaluate_grid(space, Counts(), overlap=overlap, bound=False):
        for index in range(0, len(rows), STRIDE):
            chosen.append(layout_of_row(space, rows, index, overlap))
            steps.append(float(rows.step_s[index]))
            sizes.append(float(rows.reserved_bytes[index]))
    assert len(chosen) >= 10
    alone = _alone(case, chosen)
    np.testing.assert_allclose(steps, alone[0], **CLOSE)
    np.testing.assert_allclose(sizes, alone[1], **CLOSE)
    order, own = np.argsort(steps, kind="stable"), np.argsort(alone[0], kind="stable")
    np.testing.assert_allclose(np.array(alone[0])[order], np.array(alone[0])[own], **CLOSE)
    many = evaluate_many(case, chosen)
    np.testing.assert_allclose(many[0], alone[0], **CLOSE)
    np.testing.assert_allclose(many[1], alone[1], **CLOSE)
