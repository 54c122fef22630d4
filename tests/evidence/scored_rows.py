"""Scored rows made by hand, and hypothesis strategies of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.draws import examples

from meshwright.evidence.rows.row import Row, row_of
from meshwright.evidence.score.scored import Scored

steady = examples(60)
"""The same examples every time."""
BASE = {
    "status": "ok", "task": "pretrain", "framework": "nanotron", "framework_version": "0.4", "model": "m", "gpu": "h100-80g-sxm",
    "n_gpus": "8", "precision": "bf16", "seq": "4096", "gbs": "256", "mbs": "1", "tp": "1", "pp": "1",
}


def row(**cells: str) -> Row:
    """A row of the schema."""
    return row_of(BASE | cells)


def scored(id_: str = "a-1", measured: float | None = 1.0, predicted: float | None = 1.0, **more: Any) -> Scored:
    """A scored row; ``cells`` are cells of its row."""
    cells = more.pop("cells", {})
    values = {
        "id": id_, "line": 2, "row": row(id=id_, **cells), "status": "ok", "predicted_step_s": predicted,
        "measured_step_s": measured, "predicted_memory_bytes": None, "measured_memory_bytes": None, "fit_probability": 1.0,
        "device": "h100-sxm",
    }
    return Scored(**(values | more))


seconds = st.floats(min_value=1e-3, max_value=1e3)


@st.composite
def scored_rows(draw: st.DrawFn, min_size: int = 1, max_size: int = 25, cell: bool = False) -> list[Scored]:
    """Rows of any outcome; ``cell``: all of one cell, with distinct or repeated settings."""
    found = []
    for index in range(draw(st.integers(min_size, max_size))):
        failed = draw(st.booleans()) and draw(st.booleans())
        predicted = draw(st.one_of(st.sampled_from([1.0, 2.0]), seconds))
        mbs = str(draw(st.integers(1, 12))) if cell else str(draw(st.integers(1, 3)))
        cells = {"mbs": mbs} if cell else {"mbs": mbs, "model": draw(st.sampled_from(["m", "n"]))}
        low, high = sorted((draw(seconds), draw(seconds)))
        found.append(
            scored(
                f"{'fail' if failed else 'a'}-{index}", None if failed else draw(seconds), predicted, cells=cells,
                status="failed" if failed else "ok", fit_probability=draw(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])),
                step_interval_s=draw(st.sampled_from([None, (low, high)])), ideal_s=draw(seconds),
                measured_memory_bytes=None if failed else draw(seconds), predicted_memory_bytes=draw(seconds),
            )
        )
    return found
