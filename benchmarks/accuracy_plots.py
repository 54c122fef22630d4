"""The pictures of ``docs/accuracy.md``."""

from __future__ import annotations

from collections import defaultdict
from math import log, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING

from benchmarks.regimes import disjoint_sets, regimes, with_failures
from meshwright.evidence.score.metrics import reliability
from meshwright.report.charts import Axis, Frame, log_axis, quantile
from meshwright.report.svg import BLUE, GREEN, GREY, INK, MUTED, ORANGE, RED, Drawing
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.evidence.score.scored import Scored
    from meshwright.report.svg import Point

WIDTH = 1000.0
BAND, WASH = 1.25, "#e8f1e6"
CROWDED = 6.0
FACTORS = (0.1, 0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 10.0)
COLUMNS, PANEL, GAP_X, GAP_Y, LEFT, TOP = 4, 178.0, 62.0, 72.0, 52.0, 92.0
LEAST_SHOWN, LEAST_JUDGED = 3, 30
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
LEVEL, LOW_AIM, HIGH_AIM, LEAST_AIM = 0.9, 0.87, 0.94, 0.80
"""Coverage that is aimed at: of all rows between two bounds, of every larger set at least the third."""


def steps_picture(rows: Sequence[Scored], source: str) -> Drawing:
    """Predicted against measured step time, a panel for each set."""
    found = [(name, [row for row in inside if row.timed]) for name, inside in disjoint_sets(rows)]
    return _scatters(
        found, "Step time: predicted against measured", "s", source,
        lambda row: (row.measured_step_s or 1.0, row.predicted_step_s or 1.0),
    )


def memory_picture(rows: Sequence[Scored], source: str) -> Drawing:
    """Predicted against measured memory, a panel for each set."""
    found = [(name, [row for row in inside if row.sized]) for name, inside in disjoint_sets(rows)]
    gib = 2.0**30
    return _scatters(
        found, "Memory of a device: predicted against measured", "GiB", source,
        lambda row: ((row.measured_memory_bytes or gib) / gib, (row.predicted_memory_bytes or gib) / gib),
    )


def _scatters(
    found: Sequence[tuple[str, Sequence[Scored]]], title: str, unit: str, source: str, pair: Callable[[Scored], Point]
) -> Drawing:
    shown = [(name, inside) for name, inside in found if len(inside) >= LEAST_SHOWN]
    count = -(-len(shown) // COLUMNS)
    draw = Drawing(width=WIDTH, height=TOP + count * (PANEL + GAP_Y) - 18, title=title)
    draw.text(LEFT - 36, 26, title, size=16, bold=True)
    draw.text(LEFT - 36, 44, f"{source}; {unit}, logarithmic; band: within 25 %; dots by measured MFU:", colour=MUTED)
    x = LEFT + 384
    for words, _, colour in _MFU_COLOURS:
        draw.circle(x, 40, 4, fill=colour)
        draw.text(x + 8, 44, words, colour=MUTED)
        x += 6.2 * len(words) + 30
    for place, (name, inside) in enumerate(shown):
        pairs = [pair(row) for row in inside]
        axis = log_axis([value for both in pairs for value in both])
        left, top = LEFT + place % COLUMNS * (PANEL + GAP_X), TOP + place // COLUMNS * (PANEL + GAP_Y)
        frame = Frame(drawing=draw, left=left, top=top, width=PANEL, height=PANEL, across=axis, up=axis)
        off = fmean(abs(y / x - 1.0) for x, y in pairs)
        factor = median(max(y / x, x / y) for x, y in pairs)
        frame.ground(name, f"{len(pairs)} rows, MAPE {percent(off)}, median factor {factor:.2f}")
        frame.diagonal_band(BAND, WASH)
        size = 4.5 if len(pairs) < 150 else 3.5
        for low, high, colour in reversed(_mfu_bands()):
            frame.dots([pair(row) for row in inside if low <= (row.mfu or 0.0) < high], colour, size=size, opacity=0.7)
    draw.text(LEFT - 36, draw.height - 8, "across: measured; up: predicted", colour=MUTED)
    return draw


_MFU_COLOURS = (("under 10 %", 0.10, RED), ("10 - 30 %", 0.30, ORANGE), ("over 30 %", 9.0, BLUE))


def _mfu_bands() -> list[tuple[float, float, str]]:
    edges = [0.0, *(high for _, high, _ in _MFU_COLOURS)]
    return [(low, high, colour) for low, (_, high, colour) in zip(edges, _MFU_COLOURS, strict=False)]


def regimes_picture(rows: Sequence[Scored], source: str) -> Drawing:
    """Residuals of the step time by regime: a box each, kinds of regimes in two columns."""
    kinds: dict[str, list[tuple[str, list[float]]]] = defaultdict(list)
    for each in regimes([row for row in rows if row.timed]):
        kinds[each.kind].append((each.name, [row.step_ratio for row in each.rows]))
    kinds = {kind: found for kind, found in kinds.items() if len(found) > 1}
    line, head, pad = 19.0, 30.0, 12.0
    heights = {kind: head + line * len(found) + pad for kind, found in kinds.items()}
    columns: tuple[list[str], list[str]] = ([], [])
    for kind in kinds:
        shorter = min(columns, key=lambda names: sum(heights[each] for each in names))
        shorter.append(kind)
    height = 92 + max(sum(heights[each] for each in names) for names in columns) + 26
    draw = Drawing(width=WIDTH, height=height, title="Residuals of the step time by regime")
    draw.text(16, 26, "Step time: predicted over measured, by regime", size=16, bold=True)
    draw.text(
        16, 44, f"{source}; box: quartiles with the median, whiskers: 5 % to 95 % of the rows; green: within 25 %", colour=MUTED
    )
    reach = _reach([ratios for found in kinds.values() for _, ratios in found])
    factors = [each for each in FACTORS if 1 / reach <= each <= reach and (reach < CROWDED or each not in (0.8, 1.25))]
    axis = Axis(low=1 / reach, high=reach, log=True)
    for column, names in enumerate(columns):
        left, y = 16 + column * 496, 74.0
        frame = Frame(drawing=draw, left=left + 150, top=y, width=240, height=height - y - 40, across=axis, up=Axis(low=0, high=1))
        (low, _), (high, _) = frame.at(1 / BAND, 0), frame.at(BAND, 0)
        draw.rectangle(low, y, high - low, frame.height, WASH)
        for each in factors:
            x = frame.at(each, 0)[0]
            draw.text(x, y - 6, f"{each:g}", size=10, colour=MUTED, anchor="middle")
            draw.line([(x, y), (x, y + frame.height)], GREY if each == 1.0 else "#e4e7eb", width=1.0)
        draw.text(left + 464, y - 6, "MAPE", size=10, colour=MUTED, anchor="end")
        draw.text(left + 430, y - 6, "rows", size=10, colour=MUTED, anchor="end")
        for kind in names:
            draw.rectangle(left, y + 8, 464, line - 2, "#f3f4f6")
            draw.text(left + 4, y + 21, kind, size=11, bold=True)
            y += head
            for name, ratios in kinds[kind]:
                draw.text(left + 144, y + 9, name, size=10.5, anchor="end")
                off = fmean(abs(each - 1.0) for each in ratios)
                frame.box(ratios, y + 5, height=11, colour=BLUE if off <= 0.15 else ORANGE if off <= 0.3 else RED)
                draw.text(left + 430, y + 9, f"{len(ratios)}", size=10, colour=MUTED, anchor="end")
                draw.text(left + 464, y + 9, percent(off, 0), size=10, anchor="end")
                y += line
            y += pad
    return draw


def _reach(boxes: Sequence[Sequence[float]]) -> float:
    """The factor up to which residuals are drawn: the whiskers of nine boxes in ten, between 2 and 10."""
    ends = sorted(max(quantile(each, 0.95), 1.0 / quantile(each, 0.05)) for each in map(sorted, boxes))
    return min(10.0, max(2.0, 1.15 * quantile(ends, 0.9)))


def coverage_picture(rows: Sequence[Scored], source: str) -> Drawing:
    """What intervals and probabilities are worth: nominal against observed."""
    draw = Drawing(width=WIDTH, height=446, title="Coverage of the intervals and reliability of the probability to run")
    draw.text(16, 26, "Do intervals and probabilities hold?", size=16, bold=True)
    draw.text(16, 44, f"{source}; bars: twice the standard error of so many rows", colour=MUTED)
    _levels(draw, rows)
    _sets_at_the_level(draw, rows)
    _reliability(draw, rows)
    return draw


def _shares(label: str) -> Axis:
    return Axis(low=0.0, high=1.0, ticks=tuple((each / 5, f"{each * 20} %") for each in range(6)), label=label)


def _levels(draw: Drawing, rows: Sequence[Scored]) -> None:
    """Nominal against observed coverage of the step time at several levels, all rows and each larger set."""
    low = Axis(low=0.3, high=1.0, ticks=tuple((each / 10, f"{each * 10} %") for each in (4, 6, 8, 10)), label="nominal")
    up = Axis(low=0.3, high=1.0, ticks=low.ticks, label="observed")
    frame = Frame(drawing=draw, left=62, top=96, width=250, height=250, across=low, up=up)
    frame.ground("Step-time intervals", "grey: sets of 30 rows or more; blue: all rows")
    frame.line([(0.3, 0.3), (1.0, 1.0)], MUTED, width=1.0, dash="3 3")
    bounded = [row for row in rows if row.timed and row.step_interval_s]
    if not bounded:
        draw.text(frame.left + 125, frame.top + 128, "no intervals: uncalibrated", colour=MUTED, anchor="middle")
        return
    held = {level: _held(bounded, level) for level in LEVELS}
    for _, inside in disjoint_sets(rows):
        ids = [row.id for row in inside if row.timed and row.step_interval_s]
        if len(ids) >= LEAST_JUDGED:
            frame.line([(level, fmean(held[level][each] for each in ids)) for level in LEVELS], GREY, width=1.0, opacity=0.8)
    points = [(level, fmean(held[level].values())) for level in LEVELS]
    frame.line(points, BLUE, width=2.5)
    frame.dots(points, BLUE, size=7, opacity=1.0)


def _held(rows: Sequence[Scored], level: float) -> dict[str, bool]:
    """Whether the interval of a level holds each row; other levels than 0.9 stretch it by what the other folds' rows need."""
    scores: dict[str, float] = {}
    for row in rows:
        assert row.step_interval_s is not None
        half = log(row.step_interval_s[1] / row.step_interval_s[0]) / 2.0
        scores[row.id] = abs(log(row.step_ratio)) / half
    result: dict[str, bool] = {}
    for fold in sorted({row.fold for row in rows}):
        others = sorted(scores[row.id] for row in rows if row.fold != fold) or sorted(scores.values())
        stretch = 1.0 if level == LEVEL else quantile(others, level)
        result |= {row.id: scores[row.id] <= stretch for row in rows if row.fold == fold}
    return result


def _sets_at_the_level(draw: Drawing, rows: Sequence[Scored]) -> None:
    """Coverage of the 90 % intervals by set, with the error that so many rows have."""
    found = [("every row", list(rows)), *disjoint_sets(rows)]
    lines = []
    for name, inside in found:
        step = [_inside(row.step_interval_s, row.measured_step_s) for row in inside if row.timed and row.step_interval_s]
        memory = [_inside(row.memory_interval_bytes, row.measured_memory_bytes) for row in inside
                  if row.sized and row.memory_interval_bytes]
        if step or memory:
            lines.append((name, step, memory))
    ticks = tuple((each / 10, f"{each * 10}") for each in range(5, 11))
    axis = Axis(low=0.5, high=1.0, ticks=ticks, label="% that hold at nominal 90 %")
    frame = Frame(drawing=draw, left=556, top=96, width=140, height=300, across=axis, up=Axis(low=0, high=1))
    frame.ground("90 % intervals by set", "dot: step time; ring: memory")
    (low, _), (high, _) = frame.at(LOW_AIM, 0), frame.at(HIGH_AIM, 0)
    draw.rectangle(low, frame.top, high - low, frame.height, WASH)
    height = frame.height / max(len(lines), 1)
    for place, (name, step, memory) in enumerate(lines):
        y = frame.top + (place + 0.5) * height
        draw.text(frame.left - 8, y + 3.5, f"{name} ({len(step) or len(memory)})", size=10, anchor="end", bold=name == "every row")
        for values, colour, shift in ((step, BLUE, -2.0), (memory, ORANGE, 3.0)):
            if values:
                share, error = fmean(values), 2.0 * sqrt(LEVEL * (1.0 - LEVEL) / len(values))
                ends = (frame.at(share - error, 0)[0], y + shift), (frame.at(share + error, 0)[0], y + shift)
                draw.segments([ends], colour, width=1.0)
                draw.circle(frame.at(share, 0)[0], y + shift, 3.5, fill=colour if colour == BLUE else "#fff", stroke=colour)


def _inside(bounds: tuple[float, float] | None, value: float | None) -> bool:
    return bounds is not None and value is not None and bounds[0] <= value <= bounds[1]


def _reliability(draw: Drawing, rows: Sequence[Scored]) -> None:
    """Of the rows that were given about p, the share that ran."""
    frame = Frame(drawing=draw, left=762, top=96, width=218, height=250, across=_shares("given a probability to run"),
                  up=_shares("of these ran"))
    frame.ground("Probability to run", "where failures are published; with the number of rows")
    frame.line([(0.0, 0.0), (1.0, 1.0)], MUTED, width=1.0, dash="3 3")
    for each in reliability(with_failures(rows)):
        error = 2.0 * sqrt(max(each.ran_ratio * (1.0 - each.ran_ratio), 0.25 / each.n) / each.n)
        frame.line([(each.mean_probability, each.ran_ratio - error), (each.mean_probability, each.ran_ratio + error)], GREEN)
        x, y = frame.at(each.mean_probability, each.ran_ratio)
        draw.circle(x, y, 2.5 + min(sqrt(each.n) / 6.0, 9.0), fill=GREEN, stroke="#fff", width=1.0)
        draw.text(x, y + (22 if each.ran_ratio > 0.5 else -14), str(each.n), size=9, colour=INK, anchor="middle")
