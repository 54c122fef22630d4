"""``docs/few-shot.md`` and its picture from the results of ``benchmarks.few_shot``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING

from benchmarks import anchor_constants
from benchmarks.few_shot import BETWEEN, CHOSEN, DRAWS, GIVEN, LEAST_RUNS, SCORED, coverage, error, width
from benchmarks.few_shot_memory import pairs, section
from meshwright.report.svg import BLUE, GREY, GRID, INK, MUTED, ORANGE, Drawing
from meshwright.words import percent

if TYPE_CHECKING:
    from benchmarks.few_shot import Told

    Found = Mapping[str, Sequence[Told]]

TARGET = 0.06
HEAD = f"""# A few runs of one's own

`python -m benchmarks.few_shot --write` wrote this page. `meshwright calibrate --runs my-runs.csv` is given 0, 1, 3 or 5 runs
of somebody whom the calibration does not know: each source of the corpus with at least {LEAST_RUNS} measured steps is left
out whole (jackknife at the offsets that ship, as everywhere in [accuracy.md](accuracy.md)), {DRAWS} times some of its rows
are drawn, and up to {SCORED} other rows, never a re-measurement of a drawn one, are predicted with what `calibrate` made of
them. Rows are drawn from the whole source, so that three runs of one with thirty devices and frameworks leave most of it
unknown; *own cell* counts only rows whose device, framework and precision an own run has. *Chosen*: the three that `calibrate`
names where rows have no result yet, of at most {BETWEEN} configurations, in place of drawn ones, beside {DRAWS * SCORED} others.
"""


def page(found: Found) -> str:
    """The whole page."""
    parts = [HEAD, "## In short\n", summary(found), "![Error and intervals by own runs](few-shot.svg)\n"]
    anchored = pairs()
    memory = ["\n" + section(anchored), anchor_constants.section(anchor_constants.pairs())] if anchored else []
    return "\n".join([*parts, "## Source by source\n", sources_table(found), said(found).rstrip("\n"), *memory])


def summary(found: Found) -> str:
    """All sources together, each one voice."""
    head = ["own runs", "step: median error, median over sources", "mean over sources", "own cell, median over sources",
            "90 % interval holds", "mean log-width"]
    lines = [f"| {' | '.join(head)} |", "|" + "---:|" * len(head)]
    for count, chosen in [*((count, False) for count in GIVEN), (CHOSEN, True)]:
        cell = [value for told in found.values() if not math.isnan(value := error(told, count, same=True, chosen=chosen))]
        errors = [error(told, count, chosen=chosen) for told in found.values()]
        holds, widths = ([figure(told, count, chosen=chosen) for told in found.values()] for figure in (coverage, width))
        lines.append(
            f"| {count}{', chosen' if chosen else ''} | {percent(median(errors))} | {percent(fmean(errors))} "
            f"| {percent(median(cell)) if cell else ''} | {percent(fmean(holds))} | {fmean(widths):.2f} |"
        )
    return "\n".join([*lines, f"| *target, 3* | {percent(TARGET)} | | | 88-92 % | not wider |"]) + "\n"


def middle(found: Found, count: int) -> float:
    """Median over sources of their median errors."""
    return median(error(told, count) for told in found.values())


def sources_table(found: Found) -> str:
    """A line for each source."""
    lines = ["| source | " + " | ".join(f"error, {count}" for count in GIVEN) + " | one factor leaves | "
             + " | ".join(f"holds, {count}" for count in GIVEN) + " | " + " | ".join(f"width, {count}" for count in GIVEN) + " |",
             "|---|" + "---:|" * (3 * len(GIVEN) + 1)]
    for name, told in found.items():
        figures = [*(percent(error(told, count)) for count in GIVEN), percent(floor(told)),
                   *(percent(coverage(told, count), 0) for count in GIVEN), *(f"{width(told, count):.2f}" for count in GIVEN)]
        lines.append(f"| {name} | " + " | ".join(figures) + " |")
    return "\n".join(lines) + "\n"


def floor(told: Sequence[Told]) -> float:
    """Median error of a source that would be left were all its predictions moved by the best single factor."""
    errors = [each.error for each in told if each.own == 0]
    centre = median(errors)
    return math.expm1(median(abs(each - centre) for each in errors))


def floor_of_cells(told: Sequence[Told]) -> float:
    """Median error that would be left of a source were each row moved by the median error of all others of its cell."""
    cells: dict[str, list[float]] = {}
    for each in told:
        if each.own == 0:
            cells.setdefault(each.cell, []).append(each.error)
    left = [abs(error - median([*errors[:place], *errors[place + 1:]])) for errors in cells.values() if len(errors) > 1
            for place, error in enumerate(errors)]
    return math.expm1(median(left)) if left else math.nan


def chosen_words(found: Found) -> str:
    """What choosing gives over drawing."""
    both = {name: (error(told, CHOSEN, chosen=True), error(told, CHOSEN)) for name, told in found.items()}
    better, middle_chosen = sum(one < other for one, other in both.values()), median(one for one, _ in both.values())
    return (
        f"Runs that are chosen before any is run leave {percent(middle_chosen)} (median over sources), and less than drawn ones in "
        f"{better} of {len(both)} sources."
    )


def said(found: Found) -> str:
    """What the figures mean."""
    three, worse = middle(found, 3), [name for name, told in found.items() if error(told, 3) > error(told, 0) + 0.005]
    verdict = "met" if three <= TARGET else f"missed: {percent(three)}"
    left = percent(median(floor(told) for told in found.values()))
    cells = percent(median(value for told in found.values() if not math.isnan(value := floor_of_cells(told))))
    return f"""## What it says

- The target, {percent(TARGET)} after three own runs, is **{verdict}**. What is left is not one factor: a source moved by the best
  single factor that hindsight can find would still be off by {left} (median over sources, column *one factor leaves*), and with a
  factor for each device, framework and precision, taken from **all** its other runs, by {cells}.
- {chosen_words(found)} `calibrate --runs` names them (`evidence/fit/choice.py`): those with which least is unknown of all rows of
  the file, by what layouts and cases have in common.
- What own runs have in common is told from what is each one's own before anything moves (`evidence/fit/sharing.py`): an error is a
  sum of physical constants, of what all own runs share, of what runs of one model and layouts alike share, and of a part with heavy
  tails that is one run's alone. How far constants may move, and how good predictions of this source are, is summed over: one run
  that is far off moves little of it, three that agree nearly all. Constants of a device, framework and precision that have runs
  already move by a third of what others may.
- Tried on these sources in a linear copy of the above, which has 8.4 % after three runs: a Gaussian process over layouts in what
  is left, a common factor, one of the model or of the device, framework and precision, instead of moved constants or beside them.
  All were worse, 9.0 to 11.9 %, so nothing of it is in.
- Worse with three runs than with none by more than half a point: {", ".join(worse) or "no source"}.
- Intervals are those of that posterior for a layout that differs from the own ones by three doublings, and follow how far the own
  runs were off when each was predicted by the others (`evidence/fit/spread.py`; three runs count 3 / (3 + 15) there). Those
  without own runs are as wide as other sources, left out whole, say of a device, framework and precision that nobody has run.
"""


def picture(found: Found) -> str:
    """Error, coverage and width by the number of own runs: each source thin, all of them thick."""
    draw = Drawing(width=900.0, height=330.0, title="Error, coverage and width of intervals by the number of own runs")
    whole = partial(percent, digits=0)
    panels: tuple[tuple[str, Callable[[Sequence[Told], int], float], float, Callable[[float], str], float | None], ...] = (
        ("Median error of the step", error, 0.35, whole, TARGET), ("90 % interval holds", coverage, 1.0, whole, 0.9),
        ("Mean log-width of the interval", width, 2.0, "{:.1f}".format, None),
    )
    for number, (title, figure, most, words, aim) in enumerate(panels):
        left, bottom, wide, high = 50.0 + 295.0 * number, 270.0, 220.0, 200.0
        draw.text(left, 40, title, size=13, bold=True)
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            draw.line([(left, bottom - share * high), (left + wide, bottom - share * high)], GRID)
            draw.text(left - 6, bottom - share * high + 4, words(share * most), size=10, anchor="end", colour=MUTED)
        for count in GIVEN:
            draw.text(left + wide * count / GIVEN[-1], bottom + 16, str(count), size=10, anchor="middle", colour=MUTED)

        def line(values: Sequence[float], left: float = left, wide: float = wide, high: float = high, most: float = most,
                 bottom: float = bottom) -> list[tuple[float, float]]:
            return [(left + wide * count / GIVEN[-1], bottom - high * min(value / most, 1.0))
                    for count, value in zip(GIVEN, values, strict=True)]

        for told in found.values():
            draw.line(line([figure(told, count) for count in GIVEN]), GREY, width=0.8)
        if aim is not None:
            draw.line(line([aim] * len(GIVEN)), ORANGE, width=1.5)
        whole = median if figure is error else fmean
        draw.line(line([whole([figure(told, count) for told in found.values()]) for count in GIVEN]), BLUE, width=2.5)
    legend = "own runs; grey: each source left out whole, blue: all of them (median, mean, mean), orange: target"
    draw.text(50, 312, legend, size=11, colour=INK)
    return str(draw)
