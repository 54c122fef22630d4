"""Pipelines of nanotron that take one of two times, told from recorded runs: ``python -m benchmarks.stalls [--write]``.

Each recorded pipeline is predicted by the fit without its fold, once as if nothing but named causes made messages stall and once as
if every message did; the run belongs to the nearer. ``--write`` makes ``docs/nanotron-stalls.md``. A CPU minute, kept as
``benchmarks.few_shot`` keeps its pass.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.left_out import LeftOut
from meshwright.catalog.calibrations import calibration_table
from meshwright.estimate import estimate
from meshwright.evidence.fit.fitters import predictor_of
from meshwright.evidence.rows.run import Run
from meshwright.perf.stalls import all_stalled_s
from meshwright.words import percent

Floats = NDArray[np.float64]
RIDGE = 1.0
"""Weight of the pull of a slope to nought, in runs, on features of spread one."""
PAGE = Path(__file__).parents[1] / "docs" / "nanotron-stalls.md"
FEATURES = {
    "nodes": lambda run: math.log2(run.layout.world / run.case.cluster.devices_per_node),
    "tp": lambda run: math.log2(run.layout.tensor_parallel),
    "pp": lambda run: math.log2(run.layout.pipeline_parallel),
    "dp": lambda run: math.log2(run.layout.data_parallel),
    "micro-batches": lambda run: math.log2(run.layout.num_microbatches),
    "micro-batch": lambda run: math.log2(run.layout.microbatch_sequences),
    "zero0": lambda run: float(run.layout.zero_stage == 0),
}
SETS = (("nodes",), ("zero0",), ("nodes", "zero0"), ("nodes", "pp", "zero0"), tuple(FEATURES))
FOLDS: dict[str, Callable[[Run], object]] = {
    "model": lambda run: run.row.model, "nodes": lambda run: run.layout.world,
    "model and nodes": lambda run: (run.row.model, run.layout.world),
}


@dataclass(frozen=True)
class Told:
    """A recorded pipeline that no named cause makes stall."""

    run: Run
    usual: float
    """log(measured / predicted), nothing stalled."""
    stalled: float
    """The same, every message stalled."""
    held_usual: bool
    held_either: bool

    @property
    def stalls(self) -> bool:
        """Which of the two it took."""
        return abs(self.stalled) < abs(self.usual)


def told(cache: Path) -> list[Told]:
    """Every recorded pipeline between nodes of the corpus for which both times are known and differ."""
    left_out = LeftOut(cache)
    (_, held, _), runs, found = left_out.fit, left_out.runs, []
    case_of = predictor_of(calibration_table("shipped"))
    for index, run in enumerate(runs):
        if not run.case.implementation.message_handshake or run.step_s is None or run.layout.pipeline_parallel == 1:
            continue
        if run.layout.world <= run.case.cluster.devices_per_node:
            continue
        case = case_of(run)
        known = estimate(case, run.layout)
        if known.stall is None or known.interval is None or known.stall.either_s is None:
            continue
        every_s = float(all_stalled_s(float(run.layout.pipeline_parallel), float(run.layout.num_microbatches),
                                      case.calibration.constants))
        usual_s = math.exp(held.step[index])
        low, high = (end / known.step_s * usual_s for end in known.interval.step_s)
        most = high / usual_s * (usual_s + every_s)
        found.append(Told(
            run=run, usual=math.log(run.step_s / usual_s), stalled=math.log(run.step_s / (usual_s + every_s)),
            held_usual=low <= run.step_s <= high, held_either=low <= run.step_s <= most,
        ))
    return found


def chances(rows: Sequence[Told], names: Sequence[str], fold_of: Callable[[Run], object]) -> tuple[Floats, Floats]:
    """Chance of a stall by a logistic of some features, and the mean, each from the other folds."""
    raw = np.array([[FEATURES[name](each.run) for name in names] for each in rows])
    design = np.column_stack([np.ones(len(rows)), (raw - raw.mean(axis=0)) / np.maximum(raw.std(axis=0), 1e-9)])
    stalls, folds = np.array([each.stalls for each in rows], dtype=float), [fold_of(each.run) for each in rows]
    by_layout, mean = np.zeros(len(rows)), np.zeros(len(rows))
    for fold in set(folds):
        out = np.array([each == fold for each in folds])
        slopes = logistic(design[~out], stalls[~out])
        by_layout[out], mean[out] = 1.0 / (1.0 + np.exp(-design[out] @ slopes)), stalls[~out].mean()
    return by_layout, mean


def logistic(design: Floats, outcome: Floats) -> Floats:
    """Slopes of a logistic regression with a ridge on all but the first, by Newton's method."""
    slopes, ridge = np.zeros(design.shape[1]), RIDGE * np.eye(design.shape[1])
    ridge[0, 0] = 0.0
    for _ in range(40):
        chance = 1.0 / (1.0 + np.exp(-design @ slopes))
        curve = design.T @ (design * (chance * (1.0 - chance))[:, None]) + ridge + 1e-9 * np.eye(len(slopes))
        slopes = slopes + np.linalg.solve(curve, design.T @ (outcome - chance) - ridge @ slopes)
    return np.asarray(slopes)


def page(rows: Sequence[Told]) -> str:
    """The whole page."""
    stalls = np.array([each.stalls for each in rows])
    nearer = np.array([min(abs(each.usual), abs(each.stalled)) for each in rows])
    nodes = sorted({each.run.layout.world // each.run.case.cluster.devices_per_node for each in rows})
    lines = [
        "# Pipelines that stall by chance", "",
        "`python -m benchmarks.stalls --write` wrote this page. nanotron's host waits for the size of every pipeline message",
        "before the message. Over many nodes, over TP between nodes and near the memory's edge every message of the recorded",
        "runs stalls (`perf/stalls.py`); of the others most take the predicted time and some that of a run whose every message",
        "stalls.", "",
        f"Of {len(rows)} recorded pipelines between nodes that no named cause makes stall and whose two times differ by more than",
        f"the interval, **{int(stalls.sum())} ({percent(float(stalls.mean()))}) took the second**. The two times are sharp: the",
        f"median run is {percent(float(np.median(nearer)))} from the nearer one, nine of ten within",
        f"{percent(float(np.quantile(nearer, 0.9)))} (log units, each predicted without its fold).", "",
        "| nodes | recorded | stalled |", "|---:|---:|---:|",
    ]
    for count in nodes:
        own = np.array([each.run.layout.world // each.run.case.cluster.devices_per_node == count for each in rows])
        lines.append(f"| {count} | {int(own.sum())} | {int(stalls[own].sum())} ({percent(float(stalls[own].mean()))}) |")
    lines += [
        "", "## Whether a layout foretells it", "",
        "Brier score of a logistic of layout features and of the mean alone, both from the other folds; lower is better.", "",
        "| features | " + " | ".join(f"left out: {name}" for name in FOLDS) + " |", "|---|" + "---:|" * len(FOLDS),
    ]
    means = [np.mean(np.square(chances(rows, SETS[0], fold)[1] - stalls)) for fold in FOLDS.values()]
    lines.append("| *the mean* | " + " | ".join(f"*{each:.4f}*" for each in means) + " |")
    for names in SETS:
        scores = [np.mean(np.square(chances(rows, names, fold)[0] - stalls)) for fold in FOLDS.values()]
        lines.append(f"| {', '.join(names)} | " + " | ".join(f"{each:.4f}" for each in scores) + " |")
    usual, either = (float(np.mean([getattr(each, name) for each in rows])) for name in ("held_usual", "held_either"))
    return "\n".join([
        *lines, "",
        "The chance is one number for all such layouts (`stall_chance`).", "",
        "## What is said", "",
        "`plan`, `estimate` and `explain` say the second time, its chance and the interval over both where the second lies",
        "outside the usual interval.",
        f"Of these runs the usual interval holds {percent(usual)}, the one over both {percent(either)}.",
        "Plans are ranked by the mean over both, `(1 - chance) x usual + chance x stalled`, over the probability to fit",
        "(`expected_step_s`), whether or not the second time is told apart from the usual error.", "",
    ])


def main() -> int:
    """Print or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "meshwright-few-shot")
    given = parser.parse_args()
    text = page(told(given.cache))
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
