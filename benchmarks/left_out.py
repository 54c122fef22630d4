"""The fit that ships, and calibrations without some of its rows: what ``benchmarks.replay`` and ``benchmarks.few_shot`` ask.

One pass over the corpus at the offsets that ship gives every derivative; leaving rows out is the infinitesimal jackknife from
there (``evidence.fit.solve.refit``), as everywhere in docs/accuracy.md. The pass takes a minute and is kept, by corpus and
calibration.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.catalog.calibrations import calibration_table, freedoms, held_out_provenance, table_text
from meshwright.domain.calibration import CalibrationTable
from meshwright.evidence.fit.bounded import room_of
from meshwright.evidence.fit.calibrate import Outside, outside, table, unseen_effects
from meshwright.evidence.fit.linear import Runs
from meshwright.evidence.fit.pooling import ceilings_of, pooling
from meshwright.evidence.fit.solve import Fit, _shares, phases_of, refit
from meshwright.evidence.fit.spread import Unseen
from meshwright.evidence.rows.groups import folds
from meshwright.evidence.rows.reading import read_runs
from meshwright.evidence.rows.run import Run
from meshwright.evidence.rows.table import shipped_table


@dataclass(frozen=True)
class LeftOut:
    """The shipped corpus and its fit; the folder that keeps what takes minutes."""

    cache: Path

    @cached_property
    def runs(self) -> Sequence[Run]:
        """Every run of the corpus that can be read."""
        return read_runs(shipped_table()).runs

    @cached_property
    def stamp(self) -> str:
        """Of the corpus, the freedoms of the constants, and the offsets that ship."""
        known = sorted(held_out_provenance(shipped_table().digest).items())
        return sha256(f"{known}{table_text(calibration_table('shipped'))}".encode()).hexdigest()[:12]

    @cached_property
    def fit(self) -> tuple[Fit, Outside, Unseen]:
        """The fit with its out-of-fold predictions, and what says how wide intervals of the unseen are."""

        def made() -> tuple[Fit, Outside, Unseen]:
            whole = shipped_fit(self.runs)
            held, _ = outside(whole, np.array(folds([run.row for run in self.runs], "grouped")))
            return whole, held, unseen_effects(whole, held)

        return kept(self.cache / f"whole-{self.stamp}.pickle", made)  # type: ignore[no-any-return]

    def without(self, members: Sequence[bool], name: str) -> CalibrationTable:
        """A calibration that has not seen these rows."""
        (whole, held, unseen), rest = self.fit, ~np.array(members, dtype=bool)
        return table(whole, refit(whole, rest), held, rest, unseen, name=f"without {name}", version="0", provenance={})

    def predicted_without(self, members: Sequence[bool]) -> NDArray[np.float64]:
        """log step of every run by the linear model of a fit that has not seen these rows."""
        whole, rest = self.fit[0], ~np.array(members, dtype=bool)
        moved = whole.pool.multipliers(refit(whole, rest)) - whole.pool.multipliers(whole.offsets)
        return np.asarray(whole.linear.step + whole.corrections + (whole.linear.step_by * moved[whole.runs.key_of]).sum(axis=1))


def shipped_fit(runs: Sequence[Run]) -> Fit:
    """The fit that ships, with its derivatives: one pass over the runs instead of a search."""
    free, shipped = freedoms(), calibration_table("shipped")
    space = Runs(runs, [each.name for each in free])
    ceilings = ceilings_of(free, space.keys)
    pool = replace(pooling(free, space.keys), room=room_of(space, ceilings))
    known = [shipped.offsets.get(each.name) for each in free]
    offsets = np.array([
        found.by_level.get(level, {}).get(value, 0.0) if (found := known[number]) else 0.0 for number, level, value in pool.columns
    ])
    multipliers = pool.multipliers(offsets)
    return Fit(
        runs=space, pool=pool, offsets=offsets, ceilings=ceilings, weight=_shares(["\x1f".join(run.group) for run in runs]),
        linear=space.linear(multipliers, ceilings), phases=phases_of(space, pool), rounds=0,
        converged=True, corrections=space.corrections(multipliers, ceilings, np.isfinite(space.log_step)),
    )


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """What was made before, or made now and kept."""
    if path.exists():
        return pickle.loads(path.read_bytes())
    found = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(found))
    return found
