"""Predicted beside measured, cell by cell: is the layout that was predicted to be best the one that measured best, and if not?"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from meshwright.api.cells.cell import degrees
from meshwright.estimate.single import estimate
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.api.cells.cell import Cell
    from meshwright.api.cells.measured import Measured
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

KNOBS = {
    "dp": "data_parallel", "tp": "tensor_parallel", "cp": "context_parallel", "pp": "pipeline_parallel", "vp": "virtual_stages",
    "ep": "expert_parallel", "etp": "expert_tensor_parallel", "mb": "microbatch_sequences", "zero": "zero_stage",
    "recompute": "recompute",
}
"""What two layouts are compared by: words of a label, and fields of a cell's layout."""
Verdict = Literal["same", "within", "other", "only predicted", "only measured", "neither"]


class Difference(Value, frozen=True, kw_only=True):
    """One cell, predicted and measured. Times in seconds; None is not known."""

    series: str
    device: str
    devices: int
    verdict: Verdict
    """``same`` layout; another that the model cannot tell from its own first (``within``: it fits, and its predicted step is not
    above the interval of the first's); an ``other`` one; or one side has no layout."""
    predicted_label: str | None = None
    measured_label: str | None = None
    changes: Mapping[str, tuple[Any, Any]] | None = None
    """Knob -> predicted and measured best, where they differ."""
    predicted_step_s: float | None = None
    """Of the layout that is predicted to be best."""
    interval_s: tuple[float, float] | None = None
    measured_step_s: float | None = None
    """Of the layout that measured best."""
    measured_layout_step_s: float | None = None
    """What is predicted for the layout that measured best."""
    measured_layout_interval_s: tuple[float, float] | None = None
    measured_layout_fits: bool | None = None
    measured_layout_fit_probability: float | None = None
    """Plans are ranked by the step over this: one with a shorter step may stand behind."""
    holds: bool | None = None
    """Whether the best measured step lies in the interval that is predicted for its layout."""
    tried_step_s: float | None = None
    """What the layout that is predicted to be best measured, where it was run (the median of several runs)."""
    tried_failed: bool = False
    """It was tried, and no run of it worked."""
    regret_ratio: float | None = None
    """1 - best measured step over that of the layout which is predicted to be best."""
    ran: int = 0
    failed: int = 0


def difference(case: Case, cell: Cell, found: Measured | None) -> Difference:
    """What sets a prediction and the runs of one cell apart."""
    measured = None if found is None else found.cell
    run = {} if measured is None or measured.run is None else measured.run
    own: dict[str, Any] = {
        "series": cell.series, "device": cell.device, "devices": cell.devices, "predicted_label": cell.label,
        "predicted_step_s": cell.step_s, "interval_s": _interval(cell), "ran": run.get("ran", 0), "failed": run.get("failed", 0),
        "measured_label": measured.label if measured else None, "measured_step_s": measured.step_s if measured else None,
    }
    if measured is None or measured.label is None or cell.label is None or cell.layout is None:
        there = measured is not None and measured.label is not None
        verdict: Verdict = "only measured" if there else "only predicted" if cell.label is not None else "neither"
        return Difference(**own, **_tried(cell, found, None), verdict=verdict, **_said(case, found))
    own |= _tried(cell, found, measured.step_s)
    assert measured.layout is not None and found is not None, "a measured label has degrees"
    mine, theirs = dict(cell.layout), dict(measured.layout)
    changes = {word: (mine.get(name), theirs.get(name)) for word, name in KNOBS.items() if _differ(mine, theirs, name)}
    said = _said(case, found)
    return Difference(**own, **said, changes=changes, verdict="same" if not changes else _near(cell, said))


def _near(cell: Cell, said: Mapping[str, Any]) -> Verdict:
    """Whether the model can tell the layout that measured best from its own first."""
    interval, step_s = _interval(cell), said.get("measured_layout_step_s")
    within = interval is not None and step_s is not None and said.get("measured_layout_fits") and step_s <= interval[1]
    return "within" if within else "other"


def _interval(cell: Cell) -> tuple[float, float] | None:
    return None if cell.interval is None else (cell.interval["step_s"][0], cell.interval["step_s"][1])


def _differ(mine: Mapping[str, Any], theirs: Mapping[str, Any], name: str) -> bool:
    """Whether two layouts differ in a knob that both say."""
    return name in mine and name in theirs and None not in (mine[name], theirs[name]) and mine[name] != theirs[name]


def _said(case: Case, found: Measured | None) -> dict[str, Any]:
    """What is predicted for the layout that measured best."""
    if found is None or found.fastest is None:
        return {}
    each = estimate(case, found.fastest.layout)
    interval = None if each.interval is None else tuple(float(end) for end in each.interval.step_s)
    step_s = found.cell.step_s
    return {
        "measured_layout_step_s": float(each.step_s), "measured_layout_interval_s": interval,
        "measured_layout_fits": bool(each.fits), "measured_layout_fit_probability": float(each.fit_probability),
        "holds": None if interval is None or step_s is None else interval[0] <= step_s <= interval[1],
    }


def _tried(cell: Cell, found: Measured | None, best_s: float | None) -> dict[str, Any]:
    """What came of the layout that is predicted to be best, where somebody ran it."""
    if found is None or cell.layout is None:
        return {}
    same = [run for run in found.runs if _alike(run.layout, cell.layout)]
    steps = [run.step_s for run in same if not run.failed and run.step_s]
    if not steps:
        return {"tried_failed": bool(same)}
    step_s = median(steps)
    return {"tried_step_s": step_s, "regret_ratio": None if best_s is None else max(0.0, 1.0 - best_s / step_s)}


def _alike(layout: Layout, wanted: Mapping[str, Any]) -> bool:
    own = degrees(layout)
    return all(own[name] == wanted.get(name) for name in KNOBS.values())
