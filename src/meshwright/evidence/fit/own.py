"""A user's own runs on top of a calibration: seconds, a handful of rows, and everything else stays as it was."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.calibration import OWN, Freedom, Offsets
from meshwright.evidence.fit.calibrate import features_of, outside
from meshwright.evidence.fit.solve import fit
from meshwright.evidence.fit.spread import rescaled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.calibration import CalibrationTable
    from meshwright.evidence.fit.calibrate import Progress
    from meshwright.evidence.rows.run import Run

LEVEL = "cell"
"""Own runs teach about their device under their framework in their precision, nothing else."""


def own_freedoms(freedoms: Sequence[Freedom]) -> tuple[Freedom, ...]:
    """All levels of pooling in one: how far a cell may be from its kin.

    sd = sqrt(sum over levels of sd^2)
    """
    return tuple(
        replace(freedom, spreads={LEVEL: math.sqrt(sum(each**2 for each in freedom.spreads.values()))}) for freedom in freedoms
    )


def calibrate_on_top(
    base: CalibrationTable, runs: Sequence[Run], freedoms: Sequence[Freedom], *, groups: Sequence[str], fold_of: Sequence[int],
    name: str, version: str, provenance: Mapping[str, str], progress: Progress | None = None,
) -> CalibrationTable:
    """A calibration that knows some more runs; their cases must carry ``base``, which is the prior.

    Shapes:  ``groups`` and ``fold_of`` over the runs.
    Holds:   deterministic; offsets of other cells are those of ``base``.
    """
    whole = fit(runs, own_freedoms(freedoms), groups=groups, progress=progress)
    held, _ = outside(whole, np.array(fold_of, dtype=np.int64), progress)
    features, weights = features_of(whole, held), np.square(whole.weight)
    found, errors = [], {}
    for kind, scale, residual in zip(("step", "memory"), (base.step, base.memory), held.residuals(whole), strict=True):
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
