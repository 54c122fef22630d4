"""A picture of a pipeline: what stands on its stages, what they do over time, and what they hold meanwhile."""

from __future__ import annotations

from itertools import groupby
from math import ceil, log10
from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.schedules import FORWARD, WEIGHT
from meshwright.report.balance import memory_word, time_word
from meshwright.report.pipeline_view import memory_steps, pipeline_view
from meshwright.report.svg import BLUE, GREEN, GRID, INK, MUTED, ORANGE, PAPER, RED, Drawing, short
from meshwright.report.windows import Widths, Window, windows
from meshwright.words import percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.views.balance import BalanceShown, Units
    from meshwright.report.pipeline_view import PipelineView
    from meshwright.report.svg import Point

WIDTH, LEFT, RIGHT = 1180.0, 60.0, 118.0
EDGE = WIDTH - RIGHT
"""Where charts end; figures of stages stand to the right."""
TITLE_HEIGHT, SECTION, AFTER = 64.0, 26.0, 40.0
CELL, BAR = 34.0, 12.0
MOST_STAGES = 128
"""Of more stages the first and the last are shown."""
DIGIT, NARROW_DIGIT = 5.2, 4.6
STRIP, KEPT = "#eef1f4", "#c4ccd4"
STATIC, ACTIVATION = "#8b9bb0", "#4fa3a5"
TREATMENTS = ("#7b5ea7", "#c2588b", "#a8852b", "#5b7a3a", "#96513c", "#466fa0")
LIGHT_INK, DARK_INK = "#fff", "#16202b"
"""Of words on colours, the same by day and by night."""
COLOURS = {FORWARD: BLUE, WEIGHT: GREEN}
"""By kind; whole backwards and input gradients are orange."""
NIGHT = {INK: "#e6edf3", MUTED: "#9198a1", GRID: "#3d444d", PAPER: "#0d1117", STRIP: "#1c2128", KEPT: "#8b949e"}
KINDS = {FORWARD: "forward", WEIGHT: "weight gradient"}
"""What an operation that is no backward is called."""
STYLE = "@media (prefers-color-scheme:dark){" + "".join(
    f'[fill="{day}"]{{fill:{night}}}[stroke="{day}"]{{stroke:{night}}}' for day, night in NIGHT.items()
) + "}"


def pipeline_picture(view: PipelineView) -> str:
    """The picture as SVG."""
    return str(pipeline_drawing(view))


def pipeline_drawing(view: PipelineView) -> Drawing:
    """Layers and recomputation, the timeline, memory over time with the bounds.

    A pipeline too long for its width is shown at its beginning and its end; the file grows with stages, not with micro-batches.
    """
    stages = _stages(view)
    line_height = min(20.0, max(9.0, 400.0 / len(stages)))
    memory_height = min(36.0, max(13.0, 440.0 / len(stages)))
    grid_top = TITLE_HEIGHT + SECTION + 14.0
    line_top = grid_top + view.chunks * CELL + 2 * SECTION
    memory_top = line_top + len(stages) * line_height + AFTER + SECTION
    draw = Drawing(
        width=WIDTH, height=memory_top + len(stages) * memory_height + AFTER, title=f"Pipeline of {view.name}",
        description=description(view), style=STYLE,
    )
    draw.text(LEFT, 28, view.name, size=17, bold=True)
    draw.text(LEFT, 48, " · ".join(_facts(view)), size=12, colour=MUTED)
    _layers(draw, view, stages, grid_top)
    panes = _panes(view)
    _timeline(draw, view, stages, panes, line_top, line_height)
    _memory(draw, view, stages, panes, memory_top, memory_height)
    return draw


def _stages(view: PipelineView) -> list[int]:
    """Those that are shown."""
    if view.stages <= MOST_STAGES:
        return list(range(view.stages))
    half = MOST_STAGES // 2
    return [*range(half), *range(view.stages - half, view.stages)]


def _panes(view: PipelineView) -> list[Window]:
    """All of the timeline, or its beginning until the pipeline is full for a while, and as much of its end."""
    line = view.timeline
    forward = (line.kind == FORWARD) & (line.end_s > line.start_s)
    slot = float(np.median((line.end_s - line.start_s)[forward])) if forward.any() else 0.0
    full = float(line.end_s[(line.stage == 0) & (line.kind != FORWARD)].min())
    cut = view.shown_microbatches < view.microbatches
    return windows(float(line.makespan_s), slot, 1.3 * full, left=LEFT, right=EDGE, widths=Widths(), cut=cut)


def description(view: PipelineView) -> str:
    """The picture in words: every stage with its layers, what is recomputed of them, and its memory."""
    lines = [". ".join(_facts(view)) + "."]
    for stage in _stages(view):
        layers = " + ".join(str(row[stage]) for row in view.layers)
        again = "".join(
            f", {word} {' + '.join(str(row[stage]) for row in grid)}"
            for word, grid in view.treated.items()
            if any(r[stage] for r in grid)
        )
        held = f"{memory_word(view.peaks[stage], view.units)} of {memory_word(view.bounds[stage], view.units)}"
        lines.append(f"Stage {stage}: {layers} layers{again}; {held}.")
    return "\n".join(lines)


def _facts(view: PipelineView) -> Iterator[str]:
    line = view.timeline
    chunks = f" of {view.chunks} chunks" if view.chunks > 1 else ""
    pieces = f" in {view.splits} pieces" if view.splits > 1 else ""
    yield f"{plural(view.stages, 'stage')}{chunks}"
    yield f"{plural(view.microbatches // view.splits, 'micro-batch', 'micro-batches')}{pieces}, {view.schedule}"
    yield f"pipeline {time_word(view.simulated_time, view.units)}"
    yield f"slot {time_word(view.slot_time, view.units)}"
    busy = float(line.busy_s.sum()) / view.stages * view.microbatches / view.shown_microbatches
    if view.stages > MOST_STAGES:
        yield f"stages {MOST_STAGES // 2} to {view.stages - MOST_STAGES // 2 - 1} not shown"
    if view.simulated_time > 0:
        yield f"stages idle {percent(1.0 - busy / view.simulated_time)} of the time"


def _layers(draw: Drawing, view: PipelineView, stages: Sequence[int], top: float) -> None:
    """A row for each chunk, a column for each stage: how many layers, and how they are treated."""
    colours = dict(zip(view.treated, TREATMENTS * (1 + len(view.treated) // len(TREATMENTS)), strict=False))
    _section(draw, top - SECTION, "Layers", [(f"{word} recomputed", colour) for word, colour in colours.items()] + [("kept", KEPT)])
    width = (EDGE - LEFT) / len(stages)
    every = -(-len(stages) * 20 // int(EDGE - LEFT))
    for column, stage in list(enumerate(stages))[::every]:
        draw.text(LEFT + (column + 0.5) * width, top - 5, str(stage), size=9.5, colour=MUTED, anchor="middle")
    draw.text(LEFT - 8, top - 5, "stage", size=9.5, colour=MUTED, anchor="end")
    for chunk, row in enumerate(view.layers):
        y = top + chunk * CELL
        if view.chunks > 1:
            draw.text(LEFT - 8, y + 20, f"chunk {chunk}", size=9.5, colour=MUTED, anchor="end")
        for column, stage in enumerate(stages):
            x, layers = LEFT + column * width, row[stage]
            draw.rectangle(x + 0.5, y, width - 1, CELL - 3, STRIP)
            draw.text(x + width / 2, y + 13, str(layers), size=12 if width >= 18 else 9, anchor="middle", bold=True)
            again = [(grid[chunk][stage], colours[word], LIGHT_INK) for word, grid in view.treated.items() if grid[chunk][stage]]
            kept = layers - sum(count for count, _, _ in again)
            _bar(draw, x + 2, y + CELL - 3 - BAR - 2, width - 4, [*again, (kept, KEPT, DARK_INK)])


def _bar(draw: Drawing, x: float, y: float, width: float, parts: Sequence[tuple[int, str, str]]) -> None:
    """Counts side by side, each as wide as its share."""
    total = sum(count for count, _, _ in parts)
    for count, colour, ink in parts:
        if not count:
            continue
        wide = width * count / total
        draw.rectangle(x, y, wide, BAR, colour)
        if wide >= 2.5 + DIGIT * len(str(count)):
            draw.text(x + wide / 2, y + BAR - 3, str(count), size=9, colour=ink, anchor="middle")
        x += wide


def _timeline(draw: Drawing, view: PipelineView, stages: Sequence[int], panes: Sequence[Window], top: float, height: float) -> None:
    """A row for each stage, a block for each operation."""
    kinds = [("forward", BLUE), ("backward", ORANGE)] + [("weight gradient", GREEN)] * bool((view.timeline.kind == WEIGHT).any())
    remark = f"chunks 0 to {view.chunks - 1} from dark to light" if view.chunks > 1 else ""
    _section(draw, top - 12, "Timeline", kinds, remark)
    _rows(draw, stages, panes, top, height)
    skipped = view.microbatches - view.shown_microbatches
    for pane in panes:
        moved = skipped if pane is not panes[0] else 0
        _blocks(draw, view, stages, pane, top, height, moved)
    bottom = top + len(stages) * height
    if len(panes) > 1:
        middle = (panes[0].right + panes[1].left) / 2
        draw.text(middle, (top + bottom) / 2, "· · ·", size=14, colour=MUTED, anchor="middle")
    _ticks(draw, view, panes, bottom)


def _blocks(draw: Drawing, view: PipelineView, stages: Sequence[int], pane: Window, top: float, height: float, moved: int) -> None:
    """The operations of one window, one path for each look; numbers of micro-batches where there is room."""
    line = view.timeline
    row = dict(zip(stages, range(len(stages)), strict=True))
    inside = (line.end_s > pane.begin) & (line.start_s < pane.end) & (line.end_s > line.start_s)
    seen = np.flatnonzero(inside & np.isin(line.stage, stages))
    by_look = sorted(seen.tolist(), key=lambda at: (int(line.kind[at]), int(line.chunk[at])))
    for (kind, chunk), group in groupby(by_look, key=lambda at: (int(line.kind[at]), int(line.chunk[at]))):
        steps: list[str] = []
        values: list[str] = []
        words: list[tuple[float, float, str]] = []
        for at in group:
            x, right = pane.at(float(line.start_s[at])), pane.at(float(line.end_s[at]))
            y = top + row[int(line.stage[at])] * height
            steps.append(f"M{short(x)} {short(y + 1)}h{short(right - x)}v{short(height - 2)}h-{short(right - x)}z")
            number = str(int(line.microbatch[at]) + moved)
            took = time_word(float(line.end_s[at] - line.start_s[at]), view.units)
            of_chunk = f" of chunk {chunk}" if view.chunks > 1 else ""
            values.append(f"stage {int(line.stage[at])}: {KINDS.get(kind, 'backward')} {number}{of_chunk}, {took}")
            if right - x >= 2.5 + NARROW_DIGIT * len(number) and height >= 12:
                words.append(((x + right) / 2, y + height / 2 + 3, number))
        lightness = 0.55 * chunk / max(view.chunks - 1, 1)
        look = f'fill="{_lighter(COLOURS.get(kind, ORANGE), lightness)}" stroke="{PAPER}" stroke-width="0.6"'
        draw.parts.append(f'<path d="{"".join(steps)}" {look}/>')
        draw.stands_for("\n".join(values))
        for x, y, number in words:
            draw.text(x, y, number, size=8, colour=LIGHT_INK if lightness < 0.3 else DARK_INK, anchor="middle")


def _memory(draw: Drawing, view: PipelineView, stages: Sequence[int], panes: Sequence[Window], top: float, height: float) -> None:
    """A row for each stage: what it holds always, what it holds now, and its bound."""
    bounds = sorted({memory_word(float(bound), view.units) for bound in view.bounds})
    limit = f"bound {bounds[0]}" if len(bounds) == 1 else "bounds"
    _section(draw, top - 12, "Memory", [("parameters, states, working set", STATIC), ("activations", ACTIVATION), (limit, RED)],
             "peaks on the right")
    _rows(draw, stages, panes, top, height)
    most = max(float(view.peaks.max()), float(view.bounds[np.isfinite(view.bounds)].max(initial=0.0))) * 1.04 or 1.0
    for row, stage in enumerate(stages):
        bottom = top + (row + 1) * height - 1
        scale = (height - 3) / most
        base, bound = float(view.base[stage]), float(view.bounds[stage])
        times, values = memory_steps(view, stage)
        for pane in panes:
            level = bottom - base * scale
            draw.rectangle(pane.left, level, pane.right - pane.left, bottom - level, STATIC)
            held = _staircase(pane, times, bottom - values * scale, level)
            draw.area([(pane.left, level), *held, (pane.right, level)], ACTIVATION)
            held_words = [memory_word(each, view.units) for each in (base, float(view.peaks[stage]), bound)]
            draw.stands_for(f"stage {stage}: {held_words[0]} always, {held_words[1]} at its peak, bound {held_words[2]}")
            if np.isfinite(bound):
                draw.line([(pane.left, bottom - bound * scale), (pane.right, bottom - bound * scale)], RED, width=1.0, dash="4 3")
        share = f" · {int(100 * float(view.peaks[stage]) / bound)} %" if 0 < bound < np.inf else ""
        words = memory_word(float(view.peaks[stage]), view.units) + share
        over = float(view.peaks[stage]) > bound * (1.0 + 1e-9)
        draw.text(EDGE + 8, bottom - height / 2 + 3.5, words, size=9.5, colour=RED if over else INK, bold=over)
    _ticks(draw, view, panes, top + len(stages) * height)


def _staircase(pane: Window, times: np.ndarray, levels: np.ndarray, before: float) -> list[Point]:
    """Corners of what stays at a level until the next time, inside a window."""
    corners: list[Point] = []
    begun = int(np.searchsorted(times, pane.begin, side="right"))
    level = float(levels[begun - 1]) if begun else before
    corners.append((pane.left, level))
    for time, after in zip(times[begun:].tolist(), levels[begun:].tolist(), strict=True):
        if time > pane.end:
            break
        if after != level:
            corners += [(pane.at(time), level), (pane.at(time), after)]
            level = after
    corners.append((pane.right, level))
    return corners


def _section(draw: Drawing, y: float, title: str, legend: Sequence[tuple[str, str]], remark: str = "") -> None:
    """A heading with its colours."""
    draw.text(LEFT, y, title, size=13, bold=True)
    x = LEFT + 96
    for words, colour in legend:
        draw.rectangle(x, y - 9, 10, 10, colour)
        draw.text(x + 14, y, words, size=11, colour=MUTED)
        x += 34 + 5.9 * len(words)
    draw.text(x, y, remark, size=11, colour=MUTED) if remark else None


def _rows(draw: Drawing, stages: Sequence[int], panes: Sequence[Window], top: float, height: float) -> None:
    """The ground of the stages, and their numbers."""
    for row, stage in enumerate(stages):
        y = top + row * height
        for pane in panes:
            draw.rectangle(pane.left, y + 1, pane.right - pane.left, height - 2, STRIP)
        draw.text(LEFT - 8, y + height / 2 + 3.2, str(stage), size=9.5, colour=MUTED, anchor="end")


def _ticks(draw: Drawing, view: PipelineView, panes: Sequence[Window], y: float) -> None:
    """Times below the rows; behind a gap they are of the whole pipeline."""
    moved = view.simulated_time - float(view.timeline.makespan_s)
    for number, pane in enumerate(panes):
        offset = moved if number else 0.0
        shown = Window(begin=pane.begin + offset, end=pane.end + offset, left=pane.left, right=pane.right)
        ticks = shown.ticks(10 if len(panes) == 1 else 5)
        for tick, word in zip(ticks, _tick_words(ticks, view.units), strict=True):
            x = shown.at(tick)
            draw.line([(x, y), (x, y + 4)], MUTED)
            draw.text(x, y + 15, word, size=9.5, colour=MUTED, anchor="middle")


def _tick_words(ticks: Sequence[float], units: Units) -> list[str]:
    """Times as they are spelt everywhere, with more digits where two would be the same word.

    >>> from meshwright.api.views.balance import SECONDS_AND_BYTES
    >>> _tick_words([127.5, 128.0, 128.5], SECONDS_AND_BYTES), _tick_words([0.0, 0.5], SECONDS_AND_BYTES)
    (['127.5 s', '128.0 s', '128.5 s'], ['0 s', '500 ms'])
    """
    said = [time_word(each, units) for each in ticks]
    if len({*said}) == len(said):
        return said
    digits = max(0, ceil(-log10(ticks[1] - ticks[0])))
    return [f"{each:,.{digits}f}{' s' if units.time == 's' else ''}" for each in ticks]


def _lighter(colour: str, share: float) -> str:
    """A colour mixed with white."""
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def picture_of(name: str, answer: BalanceShown) -> str:
    """The simulated pipeline of a balance's answer, under its name."""
    return pipeline_picture(pipeline_view(name, answer.problem, answer.balance.best, answer.units))
