"""Cells of recorded runs, failures included, and a chooser that runs against them instead of hardware."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Protocol

import numpy as np

from meshwright.domain.label import label
from meshwright.domain.layout import Overlap
from meshwright.errors import fault, nearest
from meshwright.evidence.fit.likeness import KNOBS
from meshwright.evidence.rows.groups import CELL, cell_key, group_key, settings_key
from meshwright.evidence.rows.reading import Refused, read_row
from meshwright.evidence.rows.table import shipped_table
from meshwright.measure.outcome import Outcome
from meshwright.measure.tuning.beliefs import Subject, beliefs
from meshwright.measure.tuning.running import Ran, implied
from meshwright.search import layout_refusals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.evidence.fit.fitters import Predictor
    from meshwright.evidence.rows.run import Run
    from meshwright.evidence.rows.table import Table
    from meshwright.measure.tuning.beliefs import Beliefs

    Floats = NDArray[np.float64]

NEAR = 0.02
"""A layout within this of the best is as good, unless the cell's own noise is larger."""
LEAST = 2
"""Measured layouts that make a cell."""
OUT_OF_MEMORY = re.compile(r"(^|; )(status=)?(oom|out of memory)\b", re.IGNORECASE)
"""Notes that class a failure; others leave it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A layout that somebody ran, or tried to."""

    label: str
    case: Case
    layout: Layout
    outcome: Outcome
    id: str
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCell:
    """Layouts that answer one question, in the order of the file."""

    id: str
    key: tuple[str, ...]
    candidates: tuple[Recorded, ...]
    noise_ratio: float
    """Median difference of re-measurements from their middle; 0 where nothing was measured twice."""
    known: int
    """Layouts whose configuration stands in the shipped corpus, too."""

    @property
    def measured(self) -> int:
        """Layouts that ran."""
        return sum(each.outcome.measured for each in self.candidates)

    @property
    def best(self) -> Recorded:
        """The fastest."""
        return min((each for each in self.candidates if each.outcome.measured), key=lambda each: each.outcome.step_s or 0.0)

    def beliefs(self, predictor: Predictor, features: Features) -> Beliefs:
        """What a calibration thinks of its layouts."""
        kept: dict[str, Case] = {}
        subjects = []
        for each in self.candidates:
            case = kept.setdefault(repr(each.case), predictor(each.run))
            legal = not layout_refusals(case, features, each.layout)
            subjects.append(Subject(case=case, layout=each.layout, reading=each.run.reading, legal=legal))
        return beliefs(subjects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a chooser did with a cell."""

    tried: tuple[Recorded, ...]
    """In their order, to the stop."""
    regret_by_trial: tuple[float, ...]
    """1 - throughput of the best so far over that of the best of the cell; 1 before anything ran."""
    trials_to_near: int | None
    """Trials until a layout as good as the best was found, had it gone on; None where it never was."""
    implied_failures: int
    """Trials that failed though an earlier failure needed no more of any term of memory."""
    stopped: str

    @property
    def best(self) -> Recorded | None:
        """The fastest that was tried."""
        ran = [each for each in self.tried if each.outcome.measured]
        return min(ran, key=lambda each: each.outcome.step_s or 0.0) if ran else None


class Chooser(Protocol):
    """Ask and tell."""

    def ask(self) -> Recorded | None:
        """The next one."""

    def tell(self, candidate: Recorded, outcome: Outcome) -> None:
        """What came of it."""

    @property
    def stopped(self) -> str:
        """Why it stopped."""


def cells(table: Table) -> tuple[RecordedCell, ...]:
    """Every cell with two measured layouts or more, those with most first; flagged rows are left out.

    Errors:  ``InputError`` where there is none.
    """
    rows: defaultdict[tuple[str, ...], list[Run]] = defaultdict(list)
    for row in table.rows:
        found = read_row(row)
        if not isinstance(found, Refused) and not row.flag and (found.step_s or found.failed):
            rows[cell_key(row)].append(found)
    shipped = {group_key(row) for row in shipped_table().rows}
    found_cells = [_cell(key, own, shipped) for key, own in rows.items()]
    several = sorted((each for each in found_cells if each.measured >= LEAST), key=lambda each: -each.measured)
    if not several:
        raise fault("replay.cells", "no two measured layouts of one case: nothing to tune", path=table.path)
    return tuple(several)


def cell_of(every: Sequence[RecordedCell], wanted: str, path: str) -> RecordedCell:
    """A cell by its identifier, or by a part of it that no other has.

    Errors:  ``InputError`` for none and for several.
    """
    exact = [each for each in every if each.id == wanted]
    found = exact or [each for each in every if wanted.lower() in each.id.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise fault("replay.several", "{wanted!r} is part of {number} cells: {some}", path=path, wanted=wanted, number=len(found),
                    some=", ".join(each.id for each in found[:5]))
    raise fault("replay.cell", "no cell {wanted!r}{hint}", path=path, wanted=wanted,
                hint=nearest(wanted, [each.id for each in every]))


def _cell(key: tuple[str, ...], runs: Sequence[Run], shipped: set[tuple[str, ...]]) -> RecordedCell:
    by: defaultdict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        by[settings_key(run.row)].append(run)
    noise: list[float] = []
    found: list[Recorded] = []
    labels: set[str] = set()
    for same in by.values():
        steps = [run.step_s for run in same if run.step_s]
        if len(steps) > 1:
            middle = median(steps)
            noise += [abs(each / middle - 1.0) for each in steps]
        name = label(replace(same[0].layout, stage_layers=None, overlap=Overlap()))
        name = name if name not in labels else f"{name} ({same[0].id})"
        labels.add(name)
        found.append(Recorded(
            label=name, case=same[0].case, layout=same[0].layout, outcome=outcome_of(same), id=same[0].id, run=same[0],
        ))
    return RecordedCell(
        id="/".join(each for each in key if each), key=key, candidates=tuple(found), noise_ratio=median(noise) if noise else 0.0,
        known=sum(group_key(each.run.row) in shipped for each in found),
    )


def outcome_of(runs: Sequence[Run]) -> Outcome:
    """What rows of one layout measured: medians, or how it failed.

    Holds:   a failure is out of memory only where its notes begin with that; sources rarely separate it from other causes.
    """
    steps = [run.step_s for run in runs if run.step_s]
    if not steps:
        by_memory = any(OUT_OF_MEMORY.search(run.row.notes) for run in runs)
        return Outcome(status="oom" if by_memory else "unknown", evidence=runs[0].row.notes)
    step_s, memory = median(steps), [run.memory_bytes for run in runs if run.memory_bytes]
    batch, world = runs[0].case.batch, runs[0].layout.world
    return Outcome(
        status="ok", step_s=step_s, tokens_per_s_per_device=batch.tokens / step_s / world,
        memory_peak_bytes=median(memory) if memory else None, device_s=step_s * world,
    )


def replayed(
    cell: RecordedCell, known: Beliefs, chooser: Chooser, *, onward: Chooser | None = None, most: int | None = None
) -> Replayed:
    """Let a chooser run against a cell, until it stops or ``most`` trials are done.

    ``onward``: the same chooser without a rule to stop, which says how many trials a layout as good as the best would have taken.
    """
    tried, regret = _run(cell, chooser, most)
    near = _first_near(cell, regret)
    if near is None and onward is not None:
        near = trials_to_near(cell, onward)
    place = {each.label: index for index, each in enumerate(cell.candidates)}
    failures: list[Ran] = []
    again = 0
    for each in tried:
        if each.outcome.measured:
            continue
        again += bool(implied(known, failures, unknown=True)[place[each.label]])
        cause = True if each.outcome.status == "oom" else None if each.outcome.status == "unknown" else False
        failures.append(Ran(candidate=place[each.label], stalled=0.0, failed=True, by_memory=cause))
    return Replayed(
        tried=tuple(tried), regret_by_trial=tuple(regret), trials_to_near=near, implied_failures=again, stopped=chooser.stopped,
    )


def trials_to_near(cell: RecordedCell, chooser: Chooser, most: int | None = None) -> int | None:
    """Trials until a layout as good as the best was tried: nothing is asked for behind it. None where it never was."""
    return _first_near(cell, _run(cell, chooser, most, to_near=True)[1])


def _run(
    cell: RecordedCell, chooser: Chooser, most: int | None, *, to_near: bool = False
) -> tuple[list[Recorded], list[float]]:
    best, fastest = float(cell.best.outcome.step_s or 0.0), float("inf")
    tried: list[Recorded] = []
    regret: list[float] = []
    while len(tried) < (most or len(cell.candidates)) and (candidate := chooser.ask()) is not None:
        chooser.tell(candidate, candidate.outcome)
        tried.append(candidate)
        if candidate.outcome.measured:
            fastest = min(fastest, candidate.outcome.step_s or fastest)
        regret.append(1.0 - best / fastest)
        if to_near and _near(cell, regret[-1]):
            break
    return tried, regret


def _first_near(cell: RecordedCell, regret: Sequence[float]) -> int | None:
    return next((number for number, each in enumerate(regret, start=1) if _near(cell, each)), None)


def _near(cell: RecordedCell, regret: float) -> bool:
    return regret <= max(NEAR, cell.noise_ratio) + 1e-12


def words_of(known: Beliefs) -> list[Mapping[str, float]]:
    """The knobs of every candidate by name: what a sampler that knows no model is told."""
    return [dict(zip(KNOBS, map(float, row), strict=True)) for row in known.words]


def grid_order(cell: RecordedCell) -> list[Recorded]:
    """A grid over the knobs, the first degree outermost."""

    def place(each: Recorded) -> tuple[int, ...]:
        one = each.layout
        return (one.data_parallel, one.tensor_parallel, one.pipeline_parallel, one.microbatch_sequences, one.zero_stage)

    return sorted(cell.candidates, key=place)


def cell_words(key: tuple[str, ...]) -> Mapping[str, str]:
    """The columns that a cell has in common."""
    return dict(zip(CELL, key, strict=True))

