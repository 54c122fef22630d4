"""A user's own runs on top of a calibration: seconds, a handful of rows, and everything else stays as it was."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.calibration import OWN, Freedom, Offsets
from meshwright.estimate import estimate
from meshwright.evidence.fit.calibrate import NORMAL_90, features_of, outside
from meshwright.evidence.fit.likeness import distance, words
from meshwright.evidence.fit.linear import Runs, key_of
from meshwright.evidence.fit.noise import FLOOR
from meshwright.evidence.fit.pooling import ceilings_of
from meshwright.evidence.fit.sharing import KNOWN, Own, Shared, shared
from meshwright.evidence.fit.solve import fit
from meshwright.evidence.fit.spread import rescaled, widened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.calibration import CalibrationTable
    from meshwright.evidence.fit.calibrate import Progress
    from meshwright.evidence.rows.run import Run

LEVEL = "cell"
"""Own runs teach about their device under their framework in their precision, nothing else."""
MANY = 120
"""Timed runs from which a fit tells what is each run's own by itself: the posterior of a few has little to add, and its matrices
grow. Our judgement."""


def own_freedoms(freedoms: Sequence[Freedom], shares: Mapping[str, float]) -> tuple[Freedom, ...]:
    """All levels of pooling in one: how far constants of somebody whom a calibration does not know may be from what it says.

        sd = share sqrt(sum over levels of sd^2)

    ``shares``: of constants; 1 for one that is not named.
    """
    return tuple(
        replace(each, spreads={LEVEL: shares.get(each.name, 1.0) * math.sqrt(sum(sd**2 for sd in each.spreads.values()))})
        for each in freedoms
    )


def calibrate_on_top(
    base: CalibrationTable, runs: Sequence[Run], freedoms: Sequence[Freedom], *, groups: Sequence[str], fold_of: Sequence[int],
    name: str, version: str, provenance: Mapping[str, str], progress: Progress | None = None,
) -> CalibrationTable:
    """A calibration that knows some more runs; their cases must carry ``base``, which is the prior.

    ``freedoms``: as ``own_freedoms`` has them.
    Shapes:  ``groups`` and ``fold_of`` over the runs.
    Holds:   deterministic; offsets of other cells are those of ``base``.
    """
    timed = [index for index, run in enumerate(runs) if run.step_s]
    common = shared(seen_by(base, [runs[index] for index in timed], freedoms)) if 0 < len(timed) <= MANY else None
    shares = dict.fromkeys(base.seen.get(LEVEL, {}), KNOWN)
    whole = fit(
        _without_own_part(runs, timed, common), freedoms, groups=groups, shares=shares,
        step_noise=None if common is None else FLOOR, progress=progress,
    )
    held, _ = outside(whole, np.array(fold_of, dtype=np.int64), progress)
    features, weights = features_of(whole, held), np.square(whole.weight)
    step = base.step if common is None else widened(base.step, common.half_width, [features[index] for index in timed])
    measured = np.array([math.log(run.step_s) if run.step_s else math.nan for run in runs])
    found, errors = [], {}
    for kind, scale, residual in (("step", step, measured - held.step), ("memory", base.memory, held.residuals(whole)[1])):
        chosen = np.flatnonzero(np.isfinite(residual))
        if len(chosen):
            errors[f"own_median_{kind}_error_ratio"] = round(math.expm1(float(np.median(np.abs(residual[chosen])))), 4)
        own = [features[index] for index in chosen]
        found.append(rescaled(scale, residual[chosen], own, weights[chosen]) if len(chosen) else scale)
    seen = {level: dict(values) for level, values in base.seen.items()}
    for index, run in enumerate(runs):
        if not run.failed:
            for level, value in whole.runs.keys[whole.runs.key_of[index]].values().items():
                if value:
                    seen.setdefault(level, {})[value] = seen.get(level, {}).get(value, 0) + 1
    return replace(
        base, name=name, version=version, offsets=added(base.offsets, _as_own(whole.named_offsets())),
        step=found[0], memory=found[1], seen=seen, provenance={**base.provenance, **provenance},
        diagnostics={**base.diagnostics, "own_runs": float(len(runs)), "own_rounds": float(whole.rounds), **errors},
    )


def seen_by(base: CalibrationTable, runs: Sequence[Run], freedoms: Sequence[Freedom]) -> Own:
    """Runs as a calibration sees them that has none of them; their cases carry it; ``freedoms``: as ``own_freedoms`` has them."""
    space = Runs(runs, [each.name for each in freedoms])
    linear = space.linear(np.zeros((len(space.keys), len(freedoms))), ceilings_of(freedoms, space.keys))
    spreads = np.array([each.spreads[LEVEL] for each in freedoms])
    found = [estimate(run.case, run.layout) for run in runs]
    cells, models = ([key_of(run).values()[LEVEL] for run in runs], [run.case.model for run in runs])
    return Own(
        error=space.log_step - np.log([each.step_s for each in found]), by=linear.step_by * spreads,
        spread=np.array([math.log(each.interval.step_s[1] / each.step_s) / NORMAL_90 if each.interval else 0.0 for each in found]),
        cell=np.array([cells.index(each) for each in cells]), model=np.array([models.index(each) for each in models]),
        known=np.array([bool(base.seen.get(LEVEL, {}).get(each)) for each in cells]),
        distance=distance(np.array([[*words(run.layout), math.log2(run.layout.world)] for run in runs])),
    )


def _without_own_part(runs: Sequence[Run], timed: Sequence[int], common: Shared | None) -> list[Run]:
    """Runs as they would have been without what is each one's own."""
    found = list(runs)
    if common is not None:
        for index, error in zip(timed, common.error, strict=True):
            found[index] = replace(runs[index], step_s=estimate(runs[index].case, runs[index].layout).step_s * math.exp(error))
    return found


def _as_own(fitted: Mapping[str, Offsets]) -> dict[str, Offsets]:
    return {name: replace(offsets, by_level={OWN: offsets.by_level.get(LEVEL, {})}) for name, offsets in fitted.items()}


def added(base: Mapping[str, Offsets], more: Mapping[str, Offsets]) -> dict[str, Offsets]:
    """Offsets of both, summed where both have one."""
    result = dict(base)
    for name, offsets in more.items():
        old = base.get(name)
        levels = {level: dict(values) for level, values in old.by_level.items()} if old else {}
        for level, values in offsets.by_level.items():
            for value, offset in values.items():
                known = levels.setdefault(level, {}).get(value, 0.0)
                levels[level][value] = round(known + offset, 5)
        result[name] = replace(offsets, by_level=levels)
    return result
