"""``docs/replay.md`` and its picture from the results of ``benchmarks.replay``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.commit import commit_of
from benchmarks.replay_cells import SCHEMES
from meshwright.catalog.calibrations import calibration_table
from meshwright.report.svg import BLUE, GREEN, GREY, GRID, INK, MUTED, ORANGE, PURPLE, RED, Drawing
from meshwright.words import percent

if TYPE_CHECKING:
    from benchmarks.replay import Result

FEW, THIRD = 15, 3.0
COLOURS = {
    f"model, without the {SCHEMES[0]}": BLUE, f"model, without the {SCHEMES[1]}": GREEN, "the order believed first": ORANGE,
    "grid": GREY, "random": INK, "Optuna TPE": PURPLE, "Optuna GP": RED,
}
HEAD = """# The tuner on recorded runs

`python -m benchmarks.replay --write` wrote this page; it keeps its parts in `--cache` and goes on where a call was ended, and
`--minutes` bounds the ways that throw dice: the column of seeds says how many were replayed on every cell. `meshwright tune` runs
against every cell of the corpus that has at least twenty measured layouts: it asks for a layout, is told what was recorded,
failures included, and stops when its rule says so. The calibration has not seen the rows of the cell, and once more none of its
model (infinitesimal jackknife, as everywhere in docs/accuracy.md); the scales of the tuner's prior
(`src/meshwright/measure/tuning/scales.yaml`) are learnt for each model without its cells, so that nothing here was fitted to what
it is judged by. *Near* is within 2 % of the fastest layout of the cell, or within its own noise where it was measured repeatedly.
Failed rows of the corpus do not say why they failed: the tuner is told `unknown`, never `oom`. Before the first trial recorded runs
of the same device, framework and precision are asked (`src/meshwright/evidence/fit/kin.py`), none of the cell, or of its model.
*The order believed first* is that before any trial, kin asked, tried without learning. Random and Optuna's samplers know no model:
what they have done is kept whatever is fitted since, and nothing is asked of them behind the first layout near the best; Optuna's
have sixty trials, and what they have not found by then counts as 61. The grid is in the order of its degrees, data parallelism
outermost.
"""
MADE = "These figures are of commit {commit} and its calibration of {dated}.\n"


TAIL = """
## What does it

- *Recorded runs of kin.* Where the formulas misjudge one layout beside another, they do so for the next model of nearly the same
  size. What the calibration leaves of runs of the same device, framework and precision is taken for a smooth function of model, job
  and layout, and foretells the cell's. It is asked only where kin foretell each other: leaving out one of their cases at a time,
  the others must foretell at least a fifth of how its layouts differ. On vTrain's small models it is three quarters to nine tenths,
  also without the model: their errors, 10 to 12 % of a step that waits for launches, fall to 1 to 3 %. On nanotron's sweeps it is
  nothing, and nothing is moved. All kin here are of one source each: how far they carry elsewhere nobody has measured.
- *Scales.* Learnt with that, they know cells whose predictions are good and cells where they are not (Student's t of less than one
  degree): after some trials the tuner knows which it has, and stops sooner in both.
- *Runs that escape.* Of the pipelines whose messages should all stall for a cause that the cost model names, two to five runs in a
  hundred take the time of one whose messages do not (`escape` of the scales, counted without the model). Such a layout is tried
  before one that is surely no better; a run that escaped is set aside and moves none of its neighbours; and that others may escape
  is no reason to go on: what one run escapes the next may not.

## Where it falls short, and why

- *nanotron-llama-1B on 512 devices*: what the model takes to be fastest took four to sixteen times its prediction, as most of the
  cell did; the best took a third of its prediction, and a quarter of the same layout with half the micro-batch: of 47 pipelines
  that stall there it is the one that did not. Nobody ran it twice: whoever trains with it may stall as the others did.
- Tried, and not in: to weigh that all predictions of a cell are worse than usual against that its trials stalled one after another
  (several widths of the prior, the likeliest taken). With the calibration of 2026-11-23 it found that cell's best after 8 trials
  without the cell, and after 16 without the model, and was slower in the other noisy ones: 90th percentile 6 both ways.
- *nanotron-llama-8B on 512 devices* and *1B on 64* are as noisy: single runs, of which many differ by less than their noise.
"""


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    made = MADE.format(commit=commit_of(), dated=calibration_table("shipped").version)
    parts = [
        HEAD, made, "## Trials until a layout near the best was tried\n", ways_table(results), "\n![Share of cells](replay.svg)\n",
        "## The rule to stop\n", stops_table(results), "\n## Cell by cell\n", cells_table(results), TAIL,
    ]
    return "\n".join(parts)


def ways_table(results: Sequence[Result]) -> str:
    """Median, 90th percentile and worst of every way, all seeds alike."""
    by: defaultdict[str, list[Result]] = defaultdict(list)
    for each in results:
        by[each.way].append(each)
    lines = ["| what chooses | cells | seeds | median | 90th percentile | worst |", "|---|---:|---:|---:|---:|---:|"]
    for way, found in by.items():
        near = np.concatenate([each.near for each in found])
        most = f"{near.max():g}" if not way.startswith("Optuna") or near.max() <= 60 else "not in 60"
        tail = np.quantile(near, 0.9, method="higher")
        lines.append(f"| {way} | {len(found)} | {len(found[0].near)} | {np.median(near):g} | {tail:g} | {most} |")
    lines.append("| *aim* | | | 1 | 4 | 12 |")
    return "\n".join(lines) + "\n"


def stops_table(results: Sequence[Result]) -> str:
    """How early the rule stops, and what it leaves behind."""
    lines = [
        "| calibration without | cells | trials, median | stopped before 15 trials or a third of the cell | before both | "
        "a layout better beyond the noise was left | failures tried that an earlier one implied |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for scheme in SCHEMES:
        found = [each for each in results if each.replayed and each.cell.scheme == scheme]
        stops = np.array([len(each.replayed.tried) for each in found if each.replayed])
        thirds = np.array([len(each.cell.cell.candidates) / THIRD for each in found])
        left = sum(left_behind(each) for each in found)
        again = sum(each.replayed.implied_failures for each in found if each.replayed)
        lines.append(
            f"| the {scheme} | {len(found)} | {np.median(stops):g} | {percent(np.mean((stops < FEW) | (stops < thirds)), 0)} "
            f"| {percent(np.mean((stops < FEW) & (stops < thirds)), 0)} | {left} | {again} |"
        )
    lines.append("| *aim* | | | 80% | | at most 2 | |")
    return "\n".join(lines) + "\n"


def left_behind(each: Result) -> bool:
    """Whether a layout better than the best tried by more than the noise was not tried."""
    assert each.replayed is not None
    return each.replayed.regret_by_trial[-1] > max(0.02, each.cell.cell.noise_ratio)


def cells_table(results: Sequence[Result]) -> str:
    """A line for each cell."""
    others = {(each.way, each.cell.cell.id): each for each in results if each.replayed is None}
    names = list(dict.fromkeys(way for way, _ in others))
    lines = [
        "| " + " | ".join([
            "cell", "layouts", "measured", *(f"near, without the {scheme}" for scheme in SCHEMES), "stopped", "regret at the stop",
            *(f"{way}, median" for way in names),
        ]) + " |",
        "|---|---:|---:|" + "---:|" * (len(SCHEMES) + 2 + len(names)),
    ]
    model = {(each.cell.cell.id, each.cell.scheme): each for each in results if each.replayed is not None}
    for id_ in dict.fromkeys(each for each, _ in model):
        own = [model[id_, scheme] for scheme in SCHEMES]
        key, cell = own[0].cell.cell.key, own[0].cell.cell
        near = [str(each.near[0]) for each in own]
        stops = ", ".join(str(len(each.replayed.tried)) for each in own if each.replayed)
        regret = ", ".join(percent(each.replayed.regret_by_trial[-1]) for each in own if each.replayed)
        rest = [f"{np.median(others[way, id_].near):g}" for way in names]
        name = f"{key[2]}, {key[5]} devices, batch {key[7]}"
        words = [name, str(len(cell.candidates)), str(cell.measured), *near, stops, regret, *rest]
        lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def picture(results: Sequence[Result]) -> str:
    """Share of cells and seeds in which a layout near the best was tried, by the number of trials."""
    width, height, left, bottom, most = 760.0, 380.0, 60.0, 330.0, 40
    draw = Drawing(width=width, height=height, title="Share of cells in which a layout near the best was tried, by trials")

    def x(trials: float) -> float:
        return left + (trials - 1) / (most - 1) * 520.0

    def y(share: float) -> float:
        return bottom - share * 270.0

    draw.text(left, 28, "Share of cells in which a layout near the best was tried", size=15, bold=True)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        draw.line([(left, y(share)), (x(most), y(share))], GRID)
        draw.text(left - 8, y(share) + 4, percent(share, 0), anchor="end", colour=MUTED)
    for trials in (1, 5, 10, 20, 30, 40):
        draw.text(x(trials), bottom + 18, str(trials), anchor="middle", colour=MUTED)
    draw.text(x(most), bottom + 36, "trials", anchor="end", colour=MUTED)
    for number, way in enumerate(dict.fromkeys(each.way for each in results)):
        near = np.concatenate([each.near for each in results if each.way == way])
        points: list[tuple[float, float]] = []
        for trials in range(1, most + 1):
            share = float((near <= trials).mean())
            points += [(x(trials), points[-1][1])] if points else []
            points.append((x(trials), y(share)))
        draw.line(points, COLOURS[way], width=2.0)
        draw.line([(x(most) + 14, 72 + 22 * number), (x(most) + 34, 72 + 22 * number)], COLOURS[way], width=2.0)
        draw.text(x(most) + 40, 76 + 22 * number, way, size=11)
    return str(draw) + "\n"
