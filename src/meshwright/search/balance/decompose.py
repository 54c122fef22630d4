"""Measured peaks of stages, taken apart into what a layer, the ends and every stage hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.domain.balance import Body, End
from meshwright.errors import InputError, Message
from meshwright.readers.sapp.layer_file import LayerFile
from meshwright.readers.sapp.treatments import BACKWARD_OVER_FORWARD, backward_times
from meshwright.search.balance.dependence import HARD_CONDITION, hard_to_tell, reasons, said
from meshwright.search.balance.equations import (
    CONSTANT,
    HEAD,
    PARAMETERS,
    TAIL,
    Equations,
    condition_of,
    equations,
    flights,
    row,
    unknowns,
)
from meshwright.search.balance.student import two_sided
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.dry_runs import DryRuns, StagePeak
    from meshwright.search.balance.equations import Floats

ROUNDING_MB = 0.5
"""Peaks are printed in whole MB."""
GUESSES = 96
"""Fullest moments drawn at random, where a schedule has several."""
MOMENTS = 20
"""Times that the fullest moments of stages are chosen anew, where a schedule has several."""


class Component(Value, frozen=True, kw_only=True):
    """One memory and how sure it is."""

    name: str
    value_mb: float
    sensitivity: float
    """MB that it moves for an error of 1 MB in every peak (root of the sum of squares)."""
    standard_error_mb: float | None = None
    """None where as many peaks as unknowns leave nothing to judge by."""
    interval_mb: tuple[float, float] | None = None
    """95 %."""


class Residual(Value, frozen=True, kw_only=True):
    """What a peak is above (positive) or below its fit."""

    peak: StagePeak
    residual_mb: float
    judged: bool
    """Whether other peaks speak for the same unknowns; an end that was measured once is met whatever it says."""


class Decomposition(Value, frozen=True, kw_only=True):
    """What one layer, the ends and every middle stage hold."""

    runs: DryRuns
    components: tuple[Component, ...]
    """Parameters of a layer, its activations by treatment, the constant where it was fitted, head and tail."""
    residuals: tuple[Residual, ...]
    exact: bool
    """As many peaks as unknowns; else least squares."""
    condition: float
    """Of the equations with columns scaled to length 1."""
    warnings: tuple[Message, ...] = ()

    def component(self, name: str) -> Component | None:
        """A component by its name, None where it was not fitted."""
        return next((each for each in self.components if each.name == name), None)

    def value_mb(self, name: str) -> float:
        """A memory by name, 0 where it was not fitted."""
        found = self.component(name)
        return found.value_mb if found else 0.0

    @property
    def rms_mb(self) -> float:
        """Root mean square of the residuals that can be judged, 0 where none can."""
        judged = [each.residual_mb**2 for each in self.residuals if each.judged]
        return float(np.sqrt(np.mean(judged))) if judged else 0.0

    @property
    def max_residual_mb(self) -> float:
        """Largest distance of a peak from its fit."""
        return max(abs(each.residual_mb) for each in self.residuals)

    @property
    def freedom(self) -> int:
        """Peaks beyond the unknowns."""
        return len(self.residuals) - len(self.components)

    @property
    def margin_mb(self) -> float:
        """What a bound should be lowered by: 95 % of peaks of stages like the measured lie within it, all measured ones do.

        0 if exact, where nothing is known.

        max(max |r|, t s),   s^2 = sum r^2 / (peaks - unknowns)
        """
        if not self.freedom:
            return 0.0
        spread = float(np.sqrt(sum(each.residual_mb**2 for each in self.residuals) / self.freedom))
        return max(self.max_residual_mb, two_sided(self.freedom) * spread)


def decompose(runs: DryRuns, *, constant: bool | None = None, force: bool = False) -> Decomposition:
    """Memories from peaks, by solving or by least squares.

    ``constant``: whether middle stages hold one; None: if the peaks are enough to tell, as SAPP does. ``force`` keeps
    negative components and ``InputError`` says what they would be without it.

    Units:   MB.
    Source:  docs/sources.md#dry-run-decomposition; SAPP ``utils/compute_memory.py`` (whose head and tail hold the constant, too).
    Holds:   a constant that would be negative is left out where nobody asked for one and none of the others is negative then.
    Errors:  unknowns that the peaks do not determine, in words; negative components without ``force``.
    """
    asked, constant = constant, _enough(runs) if constant is None else constant
    system = equations(runs, constant=constant)
    if faults := reasons(system):
        raise InputError(faults)
    system, values = _solved(runs, constant=constant)
    if faults := reasons(system):  # at the moments that are fullest, which only the answer shows
        raise InputError(faults)
    found = _decomposition(system, values)
    negative = [each for each in found.components if each.value_mb < -1e-6 * max(peak.peak_mb for peak in runs.peaks)]
    if negative and not force:
        if asked is None and [each.name for each in negative] == [CONSTANT] and (plain := _without_constant(runs, negative[0])):
            return plain
        raise InputError([_refused(runs, each) for each in negative])
    return found


def _without_constant(runs: DryRuns, constant: Component) -> Decomposition | None:
    """The memories without a constant, and that one would be negative; None where another memory is negative then."""
    system, values = _solved(runs, constant=False)
    if reasons(system) or values.min() < 0.0:
        return None
    found = _decomposition(system, values)
    left_out = Message(
        "decompose.no_constant", "{name} would be {value:.0f} MB, and no memory is negative: it is left out; without one all peaks "
        "are met within {off:.0f} MB",
        {"name": said(CONSTANT), "value": constant.value_mb, "off": float(np.abs(_peaks(runs) - system.matrix @ values).max())},
        runs.source,
    )
    return replace(found, warnings=(left_out, *found.warnings))


def _enough(runs: DryRuns) -> bool:
    """Whether there are peaks for a constant, too: SAPP's number, said of the whole system."""
    return runs.stages > 2 and len(runs.peaks) >= len(unknowns(runs.treatments, constant=True))


def _solved(runs: DryRuns, *, constant: bool) -> tuple[Equations, Floats]:
    """The equations at those moments that their own answer finds fullest, and the answer; the best where there are several.

    Which moment is fullest depends on the answer; from several guesses it is chosen anew until it stays.
    """
    moments = flights(runs)
    rows = [
        np.array([row(runs, peak, moment, constant=constant) for moment in moments[peak.stage]], dtype=np.float64)
        for peak in runs.peaks
    ]
    sizes = [len(each) for each in rows]
    most, draw = max(sizes, default=1), np.random.default_rng(0)
    guesses = [[min(guess, size - 1) for size in sizes] for guess in range(most)]
    drawn = ([int(draw.integers(size)) for size in sizes] for _ in range(GUESSES if most > 1 else 0))
    best = min((_settled(rows, _peaks(runs), guess) for guess in chain(guesses, drawn)), key=_Settled.place)
    return equations(runs, constant=constant, chosen=best.chosen), best.values


class _Settled(NamedTuple):
    """Where choosing the fullest moments anew ended: an answer at certain moments."""

    changing: bool
    off_mb: float
    """The largest distance from a peak."""
    chosen: list[int]
    values: Floats
    condition: float

    def place(self) -> tuple[bool, float, bool, float]:
        """Less is better: what settled and meets the peaks, no memory negative; of several, what leaves most open."""
        return self.changing, max(self.off_mb, ROUNDING_MB), bool(self.values.min() < -ROUNDING_MB), -self.condition


def _settled(rows: list[Floats], peaks: Floats, chosen: list[int]) -> _Settled:
    """The answer at the moments that it finds fullest itself, as far as choosing them anew comes to an end.

    ``rows``: for each peak the equation of each moment, ``[moment, unknown]``.
    """
    for _ in range(MOMENTS):
        matrix = np.stack([each[pick] for each, pick in zip(rows, chosen, strict=True)])
        lengths = np.linalg.norm(matrix, axis=0)
        lengths = np.where(lengths > 0, lengths, 1.0)
        values = np.linalg.lstsq(matrix / lengths, peaks, rcond=None)[0] / lengths
        before, fullest = chosen, [int((each @ values).argmax()) for each in rows]
        if fullest == before:
            break
        chosen = fullest
    return _Settled(fullest != before, float(np.abs(peaks - matrix @ values).max()), before, values, condition_of(matrix))


def _peaks(runs: DryRuns) -> Floats:
    return np.array([peak.peak_mb for peak in runs.peaks], dtype=np.float64)


def _decomposition(system: Equations, values: Floats) -> Decomposition:
    runs = system.runs
    residuals = _peaks(runs) - system.matrix @ values
    freedom = len(residuals) - len(values)
    inverse = np.linalg.pinv(system.scaled) / system.scale[:, None]
    sensitivity = np.sqrt((inverse**2).sum(axis=1))
    judged = np.einsum("pu,up->p", system.matrix, inverse) < 1 - 1e-9
    spread = float(np.sqrt((residuals**2).sum() / freedom)) if freedom else None
    width = two_sided(freedom) if freedom else 0.0
    components = []
    for name, value, each in zip(system.columns, values, sensitivity, strict=True):
        error = None if spread is None else float(spread * each)
        interval = None if error is None else (float(value) - width * error, float(value) + width * error)
        components.append(Component(name=name, value_mb=float(value), sensitivity=float(each), standard_error_mb=error,
                                    interval_mb=interval))
    return Decomposition(
        runs=runs, components=tuple(components), exact=freedom == 0, condition=system.condition,
        residuals=tuple(Residual(peak=peak, residual_mb=float(each), judged=bool(free))
                        for peak, each, free in zip(runs.peaks, residuals, judged, strict=True)),
        warnings=_warnings(system, components, exact=freedom == 0),
    )


def _warnings(system: Equations, components: Sequence[Component], *, exact: bool) -> tuple[Message, ...]:
    found = []
    source = system.runs.source
    if exact:
        found.append(Message("decompose.exact", "as many peaks as unknowns: nothing is left to judge the fit by, its margin is "
                             "unknown; one more stage would tell", {}, source))
    if system.condition > HARD_CONDITION:
        worst = max(components, key=lambda each: each.sensitivity)
        found.append(Message(
            "decompose.condition", "condition {condition:.0f}: {names} are hard to tell apart; peaks rounded to whole MB "
            "alone make {worst} unsure by {error:.0f} MB",
            {"condition": system.condition, "names": ", ".join(map(said, hard_to_tell(system))), "worst": said(worst.name),
             "error": max(1.0, ROUNDING_MB * worst.sensitivity)}, source,
        ))
    found.extend(
        Message("decompose.negative_forced", "{name} {value:.0f} MB: no memory is negative",
                {"name": said(each.name), "value": each.value_mb}, source)
        for each in components if each.value_mb < 0
    )
    return tuple(found)


def _refused(runs: DryRuns, component: Component) -> Message:
    """Why a component is refused, what it would be, and for the constant what the peaks are like without one."""
    text = "{name} would be {value:.0f} MB: no memory is negative{hint}"
    hint = "; more stages, or another split, would tell; force takes it as it is"
    if component.name == CONSTANT:
        system, fitted = _solved(runs, constant=False)
        if fitted.min() >= 0:
            off = float(np.abs(_peaks(runs) - system.matrix @ fitted).max())
            hint = f"; without a constant all peaks are met within {off:.0f} MB; force takes it as it is"
    return Message(
        "decompose.negative", text, {"name": said(component.name), "value": component.value_mb, "hint": hint}, runs.source
    )


def layer_file(
    found: Decomposition, *, layers: int, head_time: float, body_time: float, tail_time: float,
    coefficients: Mapping[str, float] | None = None, name: str = "body",
) -> LayerFile:
    """Memories and forward times as a layer file; backward times by SAPP's conventions.

    The constant stands once: head and tail already hold it, so it is added to middle stages only.
    """
    treatments = found.runs.treatments
    body = Body(
        name=name, layers=layers, forward_time=body_time, backward_times=backward_times(body_time, treatments, coefficients),
        static_memory=found.value_mb(PARAMETERS), activation_memory=tuple(found.value_mb(each) for each in treatments),
    )
    ends = [
        End(forward_time=time, backward_time=BACKWARD_OVER_FORWARD * time, static_memory=found.value_mb(end))
        for time, end in ((head_time, HEAD), (tail_time, TAIL))
    ]
    return LayerFile(
        name=name, treatments=treatments, bodies=(body,), first=ends[0], last=ends[1],
        constant_memory_mb=found.value_mb(CONSTANT), constant_in_ends=True, source=found.runs.source, remarks=found.warnings,
    )
