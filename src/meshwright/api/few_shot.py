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
FIRST, BETWEEN = 3, 1000
"""Rows without a result that are named as the ones to measure; of so many, the first of the file. Our judgement."""


class ToMeasure(Value, frozen=True, kw_only=True):
    """A row without a result that says much about the others."""

    id: str
    label: str
    left_ratio: float
    """What is unknown of the errors of all rows with it and those before it, over what was: root of the mean variance."""


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
    to_measure: tuple[ToMeasure, ...] = ()
    """Of the rows without a result, those that say most about all rows; the most telling first."""


def few_shot(
    readings: Sequence[RowsRead], runs: Sequence[Run], odd: Sequence[Conflict], base: CalibrationTable, refined: CalibrationTable
) -> FewShot:
    """What the runs did to ``base``; ``odd``: those that were left out because nature forbids them."""
    from meshwright.api.next_run import next_run
    from meshwright.evidence.fit.few_shot import contradictions, interval_ratio, moved

    timed = [run for run in runs if run.step_s]
    return FewShot(
        n=sum(run.measured for run in runs), moved=tuple(moved(runs, base, refined)),
        interval_ratio_before=interval_ratio(timed, base), interval_ratio_after=interval_ratio(timed, refined),
        conflicts=(*unread(readings), *odd, *contradictions(runs, base)),
        next_run=next_run(runs, refined) if sum(run.measured for run in runs) <= FEW else None,
        to_measure=to_measure(runs, base),
    )


def to_measure(runs: Sequence[Run], base: CalibrationTable) -> tuple[ToMeasure, ...]:
    """Which of the rows without a result to run first, at most ``FIRST`` of the first ``BETWEEN``; a configuration once.

    ``base``: what predicts them; it has seen none of them.
    """
    from dataclasses import replace

    from meshwright.catalog.calibrations import freedoms, own_shares
    from meshwright.domain.label import label
    from meshwright.evidence.fit.choice import most_telling
    from meshwright.evidence.fit.fitters import predictor_of
    from meshwright.evidence.fit.own import own_freedoms, seen_by

    measured = [run for run in runs if run.step_s]
    known = {run.group for run in measured}
    blank = list({run.group: run for run in reversed(runs) if not (run.measured or run.failed or run.group in known)}.values())
    if not blank:
        return ()
    case = predictor_of(base)
    asked = [replace(run, case=case(run)) for run in [*measured[:BETWEEN], *blank[::-1][:BETWEEN]]]
    seen = seen_by(base, asked, own_freedoms(freedoms(), own_shares()))
    found = most_telling(seen, range(len(asked) - len(blank[:BETWEEN])), FIRST)
    return tuple(
        ToMeasure(id=asked[each.index].id, label=label(asked[each.index].layout), left_ratio=each.left_ratio) for each in found
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
