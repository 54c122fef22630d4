"""How far constants move for somebody whom a calibration does not know: ``python -m benchmarks.own_shares``.

Prints the block ``own`` of ``catalog/data/constants.yaml``. Each source of the corpus is left out whole, and what its errors say of
each constant's spread is summed over sources.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.left_out import LeftOut, kept
from meshwright.catalog.calibrations import freedoms
from meshwright.domain.calibration import CalibrationTable
from meshwright.evidence.fit import own, sharing
from meshwright.evidence.fit.fitters import predictor_of
from meshwright.evidence.fit.noise import FLOOR
from meshwright.evidence.rows.run import Run

LEAST_RUNS, MOST = 12, 150
"""Measured steps of a source that is asked; configurations of it, drawn."""
ROUNDS, AS_THEY_ARE, LEAST_SAID = 6, 1.0, 0.3
"""Of the fixed point; voices that say a constant's spread is right as it is; voices below which nobody asks others."""
OF_MEMORY = frozenset({
    "expert_headroom_ratio", "context_bytes", "communicator_bytes", "fragmentation_ratio", "run_ahead_ratio", "pressure_edge_ratio",
})
"""What peaks teach: steps have no say in how far it moves."""


def sources(left_out: LeftOut) -> dict[str, list[Run]]:
    """Timed runs by source, where there are enough."""
    found: dict[str, list[Run]] = {}
    for run in left_out.runs:
        if run.step_s:
            found.setdefault(run.source, []).append(run)
    return {name: found[name] for name in sorted(found) if len(found[name]) >= LEAST_RUNS}


def seen(left_out: LeftOut) -> dict[str, sharing.Own]:
    """Each source as the calibration without it sees it, one run of a configuration."""
    names, found = np.array([run.source for run in left_out.runs]), {}
    for name, runs in sources(left_out).items():

        def made(name: str = name, runs: Sequence[Run] = runs) -> sharing.Own:
            return _seen(name, runs, left_out.without(names == name, name))

        found[name] = kept(left_out.cache / f"seen-{name}-{left_out.stamp}.pickle", made)
    return found


def _seen(name: str, runs: Sequence[Run], base: CalibrationTable) -> sharing.Own:
    random, case = np.random.default_rng(int(sha256(name.encode()).hexdigest()[:8], 16)), predictor_of(base)
    asked = list({run.group: run for run in (runs[index] for index in random.permutation(len(runs)))}.values())[:MOST]
    return own.seen_by(base, [replace(run, case=case(run)) for run in asked], own.own_freedoms(freedoms(), {}))


def learnt(owns: Iterable[sharing.Own]) -> dict[str, float]:
    """Shares of the spreads by which the errors of some sources are likeliest.

        share <- share sqrt((n0 + sum over sources of w E[z^2]) / (n0 + sum of w r)),   r = sum over cells of 1 - Var z

    Symbols: z what a constant moved in a cell, over its spread; Var its posterior variance, so that r is how much the cell says;
             w = 1 / sqrt(most r of any constant): a source with thirty cells is no thirty voices; n0 ``AS_THEY_ARE``.
    Holds:   1 for constants of memory and where sources say less than ``LEAST_SAID``.
    Source:  variance components by expectation and maximisation: Dempster, Laird and Rubin 1977, 4.4, with r for n (Gull and
             MacKay's number of well-determined parameters, MacKay 1992).
    """
    known, names = list(owns), [each.name for each in freedoms()]
    share, information = np.ones(len(names)), np.zeros(len(names))
    for _ in range(ROUNDS):
        moved, information = np.zeros(len(names)), np.zeros(len(names))
        for each in known:
            size, said = _moved(replace(each, by=each.by * share))
            voice = 1.0 / max(1.0, math.sqrt(said.max()))
            moved, information = moved + voice * size, information + voice * said
        share = share * np.sqrt(np.clip((AS_THEY_ARE + moved) / (AS_THEY_ARE + information), 0.25, 4.0))
    return {name: float(f"{each:.2g}") for name, each, said in zip(names, share, information, strict=True)
            if said >= LEAST_SAID and name not in OF_MEMORY}


def _moved(own: sharing.Own) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each constant: z^2 and what the source says of it, both summed over cells; of the likeliest precision."""
    best = (-math.inf, np.zeros((0, 0)))
    for precision, chance in sharing.PRECISIONS.items():
        noise = np.square(precision * sharing.OWN * own.spread) + FLOOR**2
        inverse, evidence = sharing._robust(own.error, sharing._covariances(own, 1.0, precision)[0], noise)
        best = max(best, (evidence + math.log(chance), inverse), key=lambda each: each[0])
    by, inverse = own.by * np.where(own.known, sharing.KNOWN, 1.0)[:, None], best[1]
    size, said = np.zeros(by.shape[1]), np.zeros(by.shape[1])
    for cell in np.unique(own.cell):
        here = by * (own.cell == cell)[:, None]
        size, said = size + np.square(here.T @ (inverse @ own.error)), said + np.einsum("ik,ij,jk->k", here, inverse, here)
    return size, said


def block(shares: Mapping[str, float]) -> str:
    """Lines of ``constants.yaml``."""
    return "\n".join(["own:", *(f"  {name}: {share:g}" for name, share in shares.items())])


def main() -> int:
    """Print the block."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "meshwright-few-shot")
    print(block(learnt(seen(LeftOut(parser.parse_args().cache)).values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
