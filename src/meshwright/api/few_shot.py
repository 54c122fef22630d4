"""What a few own runs did to the calibration that they refine, gathered for one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.next_run import NextRun
    from meshwright.domain.calibration import CalibrationTable
    from meshwright.evidence.fit.few_shot import Conflict, Moved
    from meshwright.evidence.rows.reading import RowsRead
    from meshwright.evidence.rows.run import Run

FEW = 12
"""Own runs up to which the next one to measure is searched for: with more, `tune` is what chooses."""


class FewShot(Value, frozen=True, kw_only=True):
    """What own runs did to the calibration that they refine."""

    n: int
    """Runs that it was refined by."""
    moved: tuple[Moved, ...]
    interval_ratio_before: float | None
    """Upper over lower end of the interval of the step, for layouts like the own ones."""
    interval_ratio_after: float | None
    conflicts: tuple[Conflict, ...]
    next_run: NextRun | None
    """None where no plans are to be told apart, or runs are many."""


def few_shot(
    readings: Sequence[RowsRead], runs: Sequence[Run], odd: Sequence[Conflict], base: CalibrationTable, refined: CalibrationTable
) -> FewShot:
    """What the runs did to ``base``; ``odd``: those that were left out because nature forbids them."""
    from meshwright.api.next_run import next_run
    from meshwright.evidence.fit.few_shot import contradictions, interval_ratio, moved

    timed = [run for run in runs if run.step_s]
    return FewShot(
        n=sum(bool(run.step_s or run.memory_bytes) for run in runs), moved=tuple(moved(runs, base, refined)),
        interval_ratio_before=interval_ratio(timed, base), interval_ratio_after=interval_ratio(timed, refined),
        conflicts=(*unread(readings), *odd, *contradictions(runs, base)),
        next_run=next_run(runs, refined) if len(runs) <= FEW else None,
    )


def unread(readings: Sequence[RowsRead]) -> list[Conflict]:
    """Rows that were not read as runs of a machine, each with its reason; the first of many."""
    from meshwright.errors import Message
    from meshwright.evidence.fit.few_shot import Conflict

    found = [
        (each.id or f"line {each.line}", each.reason) for reading in readings for each in reading.skipped
    ] + [(row.id, why) for reading in readings for row, why in reading.impossible]
    return [
        Conflict(rows=(name,), physics=True, why=Message("few-shot.unread", "{id}: {why}", {"id": name, "why": why}))
        for name, why in found[:FEW]
    ]
