"""Rows of NVIDIA's tables that their own neighbours contradict: no prediction from the settings can meet both."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from benchmarks.worst import KNOBS, settings
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.evidence.score.scored import Scored

SOURCE = "nv"
SAME = ("model", "task", "precision")
OTHERS = ("framework_version", "n_gpus", "gbs", "seq", *(knob for knob in KNOBS if knob != "dp"))
OFF, WELL, APART = 1.25, 1.2, 1.25
"""How far off a row must be, how well its neighbour is predicted, and how far their efficiencies lie apart."""
MAX_DIFFERENT = 6


def contradictions(rows: Sequence[Scored]) -> list[tuple[str, str, str, str]]:
    """Row, its settings with predicted over measured, its neighbour with that of its own, and what differs; the worst first."""
    timed = [row for row in rows if row.timed and row.source == SOURCE and row.mfu]
    found = []
    for row in sorted(timed, key=lambda each: (-abs(log(each.step_ratio)), each.id)):
        if abs(log(row.step_ratio)) <= log(OFF):
            break
        other = _neighbour(row, timed)
        if other is not None:
            apart = (other.mfu or 1.0) / (row.mfu or 1.0)
            found.append((
                f"`{row.id}`", f"{settings(row)} ({row.row.framework_version})",
                f"MFU {percent(row.mfu)}, predicted / measured {row.step_ratio:.2f}",
                f"`{other.id}` reaches {apart:.2f} times its MFU, predicted / measured {other.step_ratio:.2f}; differs in "
                + (", ".join(f"{name} {other.row.word(name) or 'blank'}" for name in _different(row, other)) or "nothing"),
            ))
    return found


def _neighbour(row: Scored, timed: Sequence[Scored]) -> Scored | None:
    """The row of the same model and device that differs in fewest columns; None where it does not contradict."""
    others = [
        each for each in timed
        if each.id != row.id and each.device == row.device and all(each.row.cell(name) == row.row.cell(name) for name in SAME)
        and len(_different(row, each)) <= MAX_DIFFERENT and abs(log(each.step_ratio)) <= log(WELL)
        and abs(log((each.mfu or 1.0) / (row.mfu or 1.0))) > log(APART)
    ]
    return min(others, key=lambda each: (len(_different(row, each)), abs(log(each.step_ratio)), each.id), default=None)


def _different(row: Scored, other: Scored) -> tuple[str, ...]:
    return tuple(name for name in OTHERS if (row.row.word(name) or "1") != (other.row.word(name) or "1"))
