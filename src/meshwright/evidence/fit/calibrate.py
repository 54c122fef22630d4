"""From measured runs to a calibration: constants, intervals, and the likelihood that a layout runs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.calibration import CalibrationTable
from meshwright.domain.uncertainty import OTHER, FitCurve
from meshwright.estimate.certainty import regime, shape_of
from meshwright.evidence.fit.solve import Fit, fit, refit
from meshwright.evidence.fit.spread import (
    FRAMEWORK,
    GROUP,
    LAUNCH,
    MODEL,
    SHARED,
    SIZE,
    Elsewhere,
    Unseen,
    fit_curve,
    fit_scale,
    informed,
    weighted_quantile,
)
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.calibration import Freedom
    from meshwright.domain.uncertainty import Scale
    from meshwright.evidence.rows.run import Run

    Floats = NDArray[np.float64]
    Progress = Callable[[str, int, int], None]

LEAST_CELL = 5
LARGEST_EFFECT = 7.0
"""Of a kind of launch on widths, as a log: a factor of a thousand."""
LEAST_FAILED = 30
"""Failed runs from which a framework gets a curve of its own."""
DEFAULT_CURVE = FitCurve(edge=-0.05, width=0.05, failures=0.02)
"""Without any failed run: half of the layouts run at 95 % of the memory."""
NORMAL_90 = 1.645
"""Half-width of a 90 % interval, in standard deviations."""
LOGISTIC = math.sqrt(3.0) / math.pi
"""Width of a logistic of standard deviation one."""


class Outside(Value, frozen=True):
    """Predictions of every run by a fit that had not seen its group; log units."""

    step: Floats
    memory: Floats
    reserved: Floats

    def residuals(self, whole: Fit) -> tuple[Floats, Floats]:
        """log(measured / predicted) of step time and memory; NaN where nothing was measured."""
        return whole.runs.log_step - self.step, whole.runs.log_memory - self.memory


def outside(whole: Fit, fold_of: NDArray[np.int64], progress: Progress | None = None) -> tuple[Outside, dict[int, Floats]]:
    """Out-of-fold predictions, and the offsets of every fold.

    Shapes:  ``fold_of`` over the runs.
    Holds:   the predictions are the model's own; the offsets are those of ``refit``.
    """
    space = whole.runs
    step, memory, reserved = (np.full(len(space.runs), np.nan) for _ in range(3))
    offsets: dict[int, Floats] = {}
    folds = np.unique(fold_of)
    for done, fold in enumerate(folds):
        members = fold_of == fold
        offsets[int(fold)] = refit(whole, ~members)
        found = space.predict(whole.pool.multipliers(offsets[int(fold)]), whole.ceilings, members)
        step[members], memory[members], reserved[members] = found.step[members], found.memory[members], found.reserved[members]
        if progress:
            progress("held-out fits", done + 1, len(folds))
    return Outside(step=step, memory=memory, reserved=reserved), offsets


def calibrate(
    runs: Sequence[Run], freedoms: Sequence[Freedom], *, groups: Sequence[str], fold_of: Sequence[int], name: str, version: str,
    provenance: Mapping[str, str], progress: Progress | None = None,
) -> CalibrationTable:
    """A calibration from runs; failed ones teach where memory ends.

    Shapes:  ``groups`` and ``fold_of`` over the runs: what re-measures what, and which fold holds it out.
    Holds:   deterministic.
    """
    whole = fit(runs, freedoms, groups=groups, progress=progress)
    folds = np.array(fold_of, dtype=np.int64)
    held, _ = outside(whole, folds, progress)
    unseen = unseen_effects(whole, held, progress)
    return table(
        whole, whole.offsets, held, np.ones(len(runs), dtype=bool), unseen, name=name, version=version, provenance=provenance
    )


def table(
    whole: Fit, offsets: Floats, held: Outside, use: NDArray[np.bool_], unseen: Unseen, *, name: str, version: str,
    provenance: Mapping[str, str],
) -> CalibrationTable:
    """The calibration of some offsets, its certainty judged by the out-of-fold predictions of the runs in ``use``."""
    step, memory = scales(whole, held, use, unseen)
    residuals = held.residuals(whole)
    good = [np.abs(each[use & np.isfinite(each)]) for each in residuals]
    diagnostics = {
        "runs": float(use.sum()), "offsets": float(len(offsets)), "rounds": float(whole.rounds),
        "converged": float(whole.converged),
        "median_step_error_ratio": float(np.expm1(np.median(good[0]))) if len(good[0]) else 0.0,
        "median_memory_error_ratio": float(np.expm1(np.median(good[1]))) if len(good[1]) else 0.0,
    }
    return CalibrationTable(
        name=name, version=version, offsets=whole.pool.offsets_by_name(offsets), step=step, memory=memory,
        fits=curves(whole, held, use, memory), ranking_ratio=ranking_ratio(whole, held, use),
        seen=_seen(whole, use), provenance=provenance,
        diagnostics={key: round(value, 4) for key, value in diagnostics.items()},
    )


def scales(whole: Fit, held: Outside, use: NDArray[np.bool_], unseen: Unseen) -> tuple[Scale, Scale]:
    """Widths of the intervals of step time and memory.

    Holds:   of a cell without runs the step's is wider, memory's is not: few of its constants are fitted, and a source left out is
             predicted as well as a run is (docs/accuracy.md).
    """
    features = features_of(whole, held)

    def scale_of(residual: Floats, elsewhere: Mapping[str, Elsewhere], launches: Mapping[str, float]) -> Scale:
        chosen = np.flatnonzero(np.isfinite(residual) & use)
        own = [features[index] for index in chosen]
        return fit_scale(residual[chosen], own, np.square(whole.weight[chosen]), elsewhere=elsewhere, launches=launches)

    step, memory = held.residuals(whole)
    return scale_of(step, _of(unseen.step, use), unseen.launch), scale_of(memory, {}, {})


def _of(elsewhere: Mapping[str, Elsewhere], use: NDArray[np.bool_]) -> dict[str, Elsewhere]:
    return {name: each.of(use) for name, each in elsewhere.items()}


def features_of(whole: Fit, held: Outside) -> list[Mapping[str, str]]:
    """The regime of every run, as its out-of-fold prediction sees it."""
    mfu, reserved = np.exp(whole.runs.log_ideal - held.step), np.exp(held.reserved)
    return [
        regime(run.case, run.layout, mfu_ratio=float(mfu[index]), reserved_bytes=float(reserved[index]))
        for index, run in enumerate(whole.runs.runs)
    ]


def curves(whole: Fit, held: Outside, use: NDArray[np.bool_], memory: Scale) -> dict[str, FitCurve]:
    """Fit curves by framework: its own where it has failed runs, else the usual edge, as wide as its error of memory.

    Runs that ended well alone do not say where memory ends: they never move an edge.
    """
    runs = whole.runs.runs
    ran = np.array([not run.failed for run in runs])
    ratio = held.reserved - np.log([run.case.cluster.device.memory_bytes for run in runs])
    family = np.array([run.case.implementation.family for run in runs])
    weights = np.square(whole.weight)
    found: dict[str, FitCurve] = {}
    for name in np.unique(family):
        members = (family == name) & use
        if int((~ran[members]).sum()) >= LEAST_FAILED:
            found[str(name)] = fit_curve(ratio[members], ran[members], weights[members])
    shared = next(iter(found.values())) if found else DEFAULT_CURVE
    known, features = np.isfinite(whole.runs.log_memory), features_of(whole, held)

    def widened(half_width: float) -> FitCurve:
        width = max(shared.width, LOGISTIC * half_width / NORMAL_90)
        return replace(shared, edge=DEFAULT_CURVE.edge, width=round(width, 4))

    for name in np.unique(family):
        members = np.flatnonzero((family == name) & use & known)
        if str(name) not in found and len(members) >= LEAST_CELL:
            found[str(name)] = widened(float(np.median([memory.half_width(features[index]) for index in members])))
    found[OTHER] = widened(memory.half_width({}))
    return found


def ranking_ratio(whole: Fit, held: Outside, use: NDArray[np.bool_]) -> float:
    """Relative error of the ratio of two layouts of one case.

        sqrt(2) x median distance of residuals from the middle of their case

    Holds:   cases with at least five measured layouts; 3 % (re-measurements of one layout) where there are none.
    """
    residual = held.residuals(whole)[0]
    cases: dict[object, list[int]] = {}
    for index in np.flatnonzero(np.isfinite(residual) & use):
        run = whole.runs.runs[index]
        cases.setdefault((run.case.model, run.case.cluster.num_devices, whole.runs.key_of[index], run.case.batch), []).append(
            int(index)
        )
    away = [
        abs(residual[index] - float(np.median(residual[members])))
        for members in cases.values() if len(members) >= LEAST_CELL for index in members
    ]
    return round(math.expm1(math.sqrt(2.0) * float(np.median(away))), 4) if away else 0.03


def unseen_effects(whole: Fit, held: Outside, progress: Progress | None = None) -> Unseen:
    """What intervals of a size, a model, a cell, a framework or a kind of launch without runs are learnt from: predictions by fits
    without each source, each number of devices and each model, and how launches were predicted by fits without their kind.

    ``held``: predictions of all runs by fits without their re-measurements, which say how wide the others' intervals are.
    """
    runs = whole.runs.runs
    sources, sizes, models, configurations = (np.unique(names, return_inverse=True)[1] for names in (
        [run.source for run in runs], [run.layout.world for run in runs], [shape_of(run.case.model) for run in runs],
        ["\x1f".join(run.group) for run in runs],
    ))
    strangers = _elsewhere(whole, held, sources, sources, progress)
    step = {
        SIZE: _elsewhere(whole, held, sizes, configurations, progress),
        MODEL: _elsewhere(whole, held, models, configurations, progress), GROUP: strangers, FRAMEWORK: strangers,
    }
    return Unseen(step=step, launch=_unseen_launches(whole, held, step))


def _elsewhere(
    whole: Fit, held: Outside, kin: NDArray[np.int64], voices: NDArray[np.int64], progress: Progress | None
) -> Elsewhere:
    """Every run as a fit without its kin predicts it, over how wide an interval a scale without its kin gives it, and what is
    hidden from that scale.

    Shapes:  ``kin`` and ``voices`` over the runs.
    Holds:   kin that are all runs are judged by their own scale.
    """
    usual, own, weights = held.residuals(whole)[0], features_of(whole, held), np.square(whole.weight)
    left_out, _ = outside(whole, kin, progress)
    features, scores, known = features_of(whole, left_out), np.abs(left_out.residuals(whole)[0]), np.isfinite(usual)
    hidden = {name: np.zeros(len(scores)) for name in SHARED}
    for each in np.unique(kin[known]):
        members = known & (kin == each)
        others = np.flatnonzero(known & ~members) if (known & ~members).any() else np.flatnonzero(known)
        theirs = [own[index] for index in others]
        scale = informed(fit_scale(usual[others], theirs, weights[others]), theirs, weights[others], SHARED)
        for index in np.flatnonzero(members):
            scores[index] /= scale.half_width(features[index])
            for name, part in scale.hidden(features[index]).items():
                hidden[name][index] = part
    return Elsewhere(scores=scores, hidden=hidden, weights=weights, voices=voices)


def _unseen_launches(whole: Fit, held: Outside, elsewhere: Mapping[str, Elsewhere]) -> dict[str, float]:
    """The effect of each kind of launch but the usual one by which a fit and a scale without it would have held nine of ten.

        effect = quantile of 0.9 of the least effects at which each |r| lies within its interval, at least 0

    Holds:   a kind whose runs come from one source says how such runs of another may differ only as far as they do from all others.
    """
    features, usual = features_of(whole, held), held.residuals(whole)[0]
    kinds = np.array([feature[LAUNCH] for feature in features])
    known, weights = np.isfinite(whole.runs.log_step), np.square(whole.weight)
    names, counts = np.unique(kinds[known], return_counts=True)
    found: dict[str, float] = {}
    for name in names[counts < counts.max()]:
        members, others = known & (kinds == name), np.flatnonzero(known & (kinds != name))
        without = whole.pool.multipliers(refit(whole, kinds != name))
        residual = whole.runs.log_step - whole.runs.predict(without, whole.ceilings, members).step
        scale = fit_scale(
            usual[others], [features[index] for index in others], weights[others], elsewhere=_of(elsewhere, kinds != name)
        )
        needed = np.array([effect_needed(scale, features[index], abs(residual[index])) for index in np.flatnonzero(members)])
        found[str(name)] = round(weighted_quantile(needed, weights[members], 0.9), 4)
    return found


def effect_needed(scale: Scale, features: Mapping[str, str], size: float) -> float:
    """The least effect of a launch, from 0 to ``LARGEST_EFFECT``, at which an interval holds an error of this size, by halving."""
    low, high = 0.0, LARGEST_EFFECT

    def holds(effect: float) -> bool:
        return replace(scale, effects={**scale.effects, LAUNCH: {OTHER: effect}}).half_width(features) >= size

    if holds(low):
        return low
    for _ in range(20):
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _seen(whole: Fit, use: NDArray[np.bool_]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for index in np.flatnonzero(use):
        if whole.runs.runs[index].failed:
            continue
        for level, value in whole.runs.keys[whole.runs.key_of[index]].values().items():
            if value:
                counts.setdefault(level, Counter())[value] += 1
    return {level: dict(sorted(values.items())) for level, values in counts.items()}
