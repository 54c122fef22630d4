"""A measured peak of a smaller run as the anchor of another one's memory: the table of ``docs/few-shot.md``.

Pairs of recorded runs of one source that differ in micro-batch, batch or devices alone: the one with the smaller peak stands
for a probe (``--anchor-memory probe/plan.yaml=PEAK``), the other is predicted without and with it, by the calibration of its
held-out fold.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshwright.catalog.calibrations import held_out_tables
from meshwright.domain.estimate import Estimate
from meshwright.estimate import estimate
from meshwright.estimate.anchor import Probe, anchored
from meshwright.evidence.fit.fitters import predictor_of
from meshwright.evidence.rows.groups import folds
from meshwright.evidence.rows.reading import read_runs
from meshwright.evidence.rows.run import Run
from meshwright.evidence.rows.table import shipped_table
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.evidence.fit.fitters import Predictor

ALIKE = ("seq", "tp", "pp", "cp", "zero", "sp", "recompute", "precision")
"""What a probe has in common with the run that it stands for, beside source and model."""
DRAWN = 3
"""Runs of each such family that are predicted, each by one probe."""


@dataclass(frozen=True)
class Anchored:
    """One run's memory without and with a probe."""

    source: str
    errors: tuple[float, float]
    """log(measured / predicted)."""
    half_widths: tuple[float, float]


def families() -> dict[tuple[str, ...], list[tuple[Run, Predictor]]]:
    """Runs that differ in micro-batch, batch or devices alone, each with the fit of its held-out fold; none where these are of
    other rows."""
    table = shipped_table()
    found: defaultdict[tuple[str, ...], list[tuple[Run, Predictor]]] = defaultdict(list)
    if not (tables := held_out_tables(table.digest)):
        return found
    runs, cases = read_runs(table).runs, [predictor_of(each) for each in tables]
    for run, fold in zip(runs, folds([run.row for run in runs], "grouped"), strict=True):
        if run.memory_bytes and "alloc" in run.mem_kind:
            found[run.source, run.row.model, *(run.row.word(key) for key in ALIKE)].append((run, cases[fold]))
    return found


def pairs() -> list[Anchored]:
    """Every drawn pair; none where the shipped held-out fits are of other rows."""
    random, found = np.random.default_rng(0), []
    for members in families().values():
        for index in random.permutation(len(members))[:DRAWN]:
            run, case = members[index]
            smaller = [each for each, _ in members if each.group != run.group and peak(each) < peak(run)]
            if not smaller:
                continue
            probe = smaller[int(random.integers(len(smaller)))]
            plain, small = estimate(case(run), run.layout), estimate(case(probe), probe.layout)
            fullest = max((stage.memory for stage in small.stages), key=lambda memory: memory.allocated_bytes)
            shown = Probe(stage=plain.peak_stage, predicted=fullest, peak_bytes=peak(probe), same=False)
            both = (plain, anchored(case(run), plain, [shown]))
            found.append(Anchored(
                source=run.source, errors=_pair([math.log(peak(run) / each.memory_peak_bytes) for each in both]),
                half_widths=_pair([_half_width(each) for each in both]),
            ))
    return found


def peak(run: Run) -> float:
    """The measured peak of a run."""
    return run.memory_bytes or 0.0


def _pair(values: list[float]) -> tuple[float, float]:
    return values[0], values[1]


def _half_width(found: Estimate) -> float:
    assert found.interval is not None
    low, high = found.interval.memory_peak_bytes
    return math.log(high / low) / 2.0


def section(found: list[Anchored]) -> str:
    """The part of the page."""
    lines = ["## Anchored probes\n",
             "Pairs of recorded runs that differ in micro-batch, batch or devices alone; the one with the smaller peak is the",
             "probe of `estimate --anchor-memory` for the other, which is predicted by the fit of its held-out fold.\n",
             "| source | pairs | error without | with | 90 % interval holds without | with | log-width without | with |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for source in [*sorted({each.source for each in found}), ""]:
        own = [each for each in found if source in ("", each.source)]
        figures = []
        for kind in (0, 1):
            errors, widths = (np.array([each[kind] for each in column]) for column in (
                [each.errors for each in own], [each.half_widths for each in own]))
            off, holds = float(np.median(np.abs(errors))), float((np.abs(errors) <= widths).mean())
            figures.append((percent(math.expm1(off)), percent(holds, 0), f"{2.0 * widths.mean():.2f}"))
        cells = " | ".join(f"{one} | {other}" for one, other in zip(*figures, strict=True))
        lines.append(f"| {source or '*all*'} | {len(own)} | {cells} |")
    error, width = (
        np.array([getattr(each, name) for each in found]) for name in ("errors", "half_widths"))
    less, narrower = np.median(np.abs(error), axis=0), width.mean(axis=0)
    return "\n".join(lines) + f"""

A probe takes the error to {percent(less[1] / less[0], 0)} of what it was (median). Where *without* holds less than 90 %, the
memory's interval was too narrow for these runs before any probe. With a probe it does not rest on that one: it is as wide as
peaks of other layouts of the model leave open (`estimate/anchor.py`), {percent(narrower[1] / narrower[0], 0)} of the width
without. An error of a probe is partly a multiple of its activations and partly fixed: a probe with few activations says little
of a run with many.
"""
