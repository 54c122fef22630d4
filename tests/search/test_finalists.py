"""Which layouts a search keeps while rows stream past: the best by their key, the earliest of equals."""

import numpy as np
import pytest
from msgspec import structs

from meshwright.domain.layout import Overlap
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, Rows, evaluate_grid
from meshwright.search.space import Pins, make_space
from strategies import MEGATRON, small_case

KEPT = 5


def _rows() -> tuple[object, Rows]:
    case = small_case(layers=2, devices=4, batch=4)
    space = make_space(case, MEGATRON, 4, Pins())
    rows = max(evaluate_grid(space, Counts(), overlap=Overlap(), bound=False), key=len)
    assert len(rows) > 4 * KEPT
    return space, rows


@pytest.mark.parametrize("cuts", [(), (7,), (1, 2, 3, 11)])
@pytest.mark.parametrize("times", ["equal", "falling", "pairs"])
def test_the_best_are_kept_however_the_rows_arrive(cuts, times):
    space, rows = _rows()
    number = len(rows)
    falling = np.arange(number, 0.0, -1.0)
    step_s = {"equal": np.ones(number), "falling": falling, "pairs": falling // 2 + 1.0}[times]
    rows = structs.replace(rows, order=np.arange(number), step_s=step_s, mean_s=step_s, reserved_bytes=np.full(number, 1e9))
    found = Finalists(space=space, overlap=Overlap(), objective="step-time", capacity_bytes=2e9, keep=KEPT)
    for begin, end in zip((0, *cuts), (*cuts, number), strict=True):
        found.add(rows.take(np.arange(begin, end)))
    expected = sorted(range(number), key=lambda place: (step_s[place], place))[:KEPT]
    assert [each.order for each in found.best] == expected
    assert [each.step_s for each in found.best] == step_s[expected].tolist()
