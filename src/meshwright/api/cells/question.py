"""What each predicted cell asks: a case with who runs it, made by the one constructor of cases, and what comes of it."""

from __future__ import annotations

from dataclasses import fields, replace
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any

from meshwright.api.cells.cell import batch_of, predicted
from meshwright.api.fields import Faults
from meshwright.search.first import First, first_plan
from meshwright.search.linearity import baseline
from meshwright.value import Value
from meshwright.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.cases import Setup
    from meshwright.api.cells.cell import Cell, Grade
    from meshwright.api.cells.measured import Measured
    from meshwright.api.fields import Values
    from meshwright.api.measuring.subject import Subject
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.model import Model
    from meshwright.domain.training import Batch
    from meshwright.errors import Message
    from meshwright.search.result import SearchOptions
    from meshwright.search.runner import Runner

Linearity = tuple[float, int]
"""Tokens per second and device of a baseline, and its devices."""


class Question(Value, frozen=True, kw_only=True):
    """One cell before it is answered."""

    series: str
    case: Case
    features: Features
    runner: Runner
    program: str
    """Who runs it, and at which release."""
    options: SearchOptions
    never: tuple[Message, ...] = ()
    """Why it trains none of it, whatever the layout."""
    packed: tuple[Question, ...] = ()
    """The same samples in packs of other caps and numbers, of which ``plan`` takes the one of the shortest expected step."""

    @property
    def place(self) -> tuple[str, str, int]:
        """Where the answer stands."""
        return self.series, self.case.cluster.device.name, self.case.cluster.num_devices

    @property
    def key(self) -> str:
        """What the answer depends on, as a digest: nothing else is asked of what was kept."""
        said = (self.series, self.case, self.features, self.options, self.program, __version__,
                *(each.case.batch for each in self.packed))
        return sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:24]

    def answer(self, grade: Grade) -> Cell:
        """The cell: what ``plan`` lists first, or by the grid alone; its linearity left out."""
        first, case = self._first(coarse=grade == "coarse")
        return predicted(first, case, series=self.series, grade=grade)

    def _first(self, *, coarse: bool) -> tuple[First, Case]:
        """The first plan, or why there is none, and the case that it is of.

        Of packs as ``plan`` chooses (``api/packed_search.py``): the shortest expected step, the smallest cap where nothing fits.
        """
        if self.never:
            return First(best=None, refusal=self.never[0]), self.case
        if not self.packed:
            return first_plan(self.case, self.features, self.options, self.runner, coarse=coarse), self.case
        found = [each._first(coarse=coarse) for each in self.packed]
        searched = [each for each in found if each[0].refusal is None] or found[:1]
        return min(searched, key=lambda each: inf if each[0].best is None else each[0].best.expected_step_s)

    def under(self, cell: Cell) -> Question:
        """The question in the packs of its cell."""
        return next((each for each in self.packed if batch_of(each.case) == cell.batch), self)


def of_setup(series: str, given: Setup, options: SearchOptions, batches: Sequence[Batch] = ()) -> Question:
    """What a request names; ``batches``: the packs that its samples may be in."""
    from meshwright.api.legality import never_trains

    own = given.framework
    packed = [replace(given.case, batch=each) for each in batches]
    return Question(
        series=series, case=given.case, features=own.features, runner=own, program=f"{own.name}@{own.version}", options=options,
        never=tuple(never_trains(given)),
        packed=tuple(
            of_setup(series, replace(given, case=case, framework=own.for_case(case)), options) for case in packed
        ),
    )


def of_subject(series: str, given: Subject, options: SearchOptions) -> Question:
    """What trials of a store are of."""
    return Question(
        series=series, case=given.case, features=given.features, runner=given.runner, program=given.title, options=options
    )


def of_runs(found: Measured, options: SearchOptions) -> Question | None:
    """What measured runs are of, with the calibration that ships and the memory that a trainer may use.

    None where they say too little, or the device does not compute in their numbers.
    Their framework is asked where it is known here, else the default one.
    """
    from meshwright.api.cases import Setup
    from meshwright.catalog.calibrations import calibration
    from meshwright.domain.case import Case
    from meshwright.frameworks import default_for, framework, frameworks

    run = found.case
    if run is None or not run.training.precision.runs_on(run.cluster.device):
        return None
    known = calibration("shipped", run.cluster, framework=run.implementation.family, precision=run.training.precision.name)
    usual: Any = {each.name: each.default for each in fields(Case)}["memory_ratio"]
    case = replace(run, calibration=known, memory_ratio=usual)
    name = next((each for each in frameworks() if run.implementation.family == each), default_for(case.training.task))
    own = framework(name)
    return of_setup(found.cell.series, Setup(case=case, framework=own.for_case(case), request={}), options)


def drafts(
    values: Values, models: Sequence[tuple[str, str | Model]], sizes: Sequence[tuple[str, int]], faults: Faults
) -> Iterator[tuple[str, Setup]]:
    """The case of every model on every size, model by model; what is wrong is noted in ``faults``, each thing once.

    ``models``: the name of each row and what is loaded; ``sizes``: ``nodes`` or ``devices`` with how many.
    """
    from meshwright.api.cases import drafted

    said = set(map(str, faults.messages))
    read: dict[str, Any] = {}
    for series, model in models:
        for name, number in sizes or (("", 0),):
            own = Faults()
            own.failed, own.places = set(faults.failed), faults.places
            sized = {name: number} if name else {}
            draft = drafted({**values, **read, "model": model, **sized}, own)
            faults.note(each for each in own.messages if str(each) not in said)
            said |= set(map(str, own.messages))
            if draft.setup is None:
                break  # the next size would say the same again
            if draft.setup.samples is not None:  # their file is read once
                read = {"samples": draft.setup.samples}
            yield series, draft.setup


def linearity_of(widest: Question) -> Linearity | None:
    """What the cells of a row are compared with, as ``plan`` has it; None where the framework runs none on whole nodes.

    ``widest``: the row's question of most devices.
    """
    if widest.never:
        return None
    found = baseline(widest.case, widest.features, widest.runner)
    return None if found is None else (float(found.tokens_per_s_per_device), found.devices)


def with_linearity(cell: Cell, linearity: Linearity | None) -> Cell:
    """The cell with its linearity, where it has a speed, and there is something to compare it with."""
    if linearity is None or cell.tokens_per_s_per_device is None or cell.devices < linearity[1]:
        return cell
    told: dict[str, Any] = {
        "linearity_ratio": cell.tokens_per_s_per_device / linearity[0], "linearity_baseline_devices": linearity[1],
    }
    return replace(cell, **told)
