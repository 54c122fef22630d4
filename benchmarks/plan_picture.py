"""The README's picture: the best plans of a case, where their step goes, and what the stages of the first one hold."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from meshwright.report.pipeline_picture import STYLE
from meshwright.report.svg import BLUE, GREEN, GREY, INK, MUTED, ORANGE, PURPLE, RED, Drawing
from meshwright.units import GIB
from meshwright.words import percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.estimate import Stage
    from meshwright.evidence.rows.near import Near
    from meshwright.search.result import PlanResult, RankedPlan

WIDTH, LEFT, RIGHT = 900.0, 24.0, 150.0
HEAD, ROW, BAR, STAGE = 76.0, 42.0, 15.0, 26.0
TIMES = (
    ("compute", ("compute_s",), BLUE), ("tensor parallel", ("tensor_parallel_s",), ORANGE),
    ("context and expert parallel", ("context_parallel_s", "expert_parallel_s"), PURPLE),
    ("bubble and transfers", ("bubble_s", "pipeline_exposed_s"), RED), ("data parallel", ("data_parallel_exposed_s",), GREEN),
    ("optimizer and host", ("optimizer_s", "host_s"), GREY),
)
MEMORIES = (
    ("parameters", BLUE), ("gradients", "#5fa8d3"), ("optimizer", PURPLE), ("activations", GREEN), ("temporary", ORANGE),
    ("overhead", GREY),
)


def plan_picture(name: str, devices: str, result: PlanResult, published: Near | None) -> Drawing:
    """Bars of the ranked plans by cause, with their intervals, and bars of the first plan's stages by purpose."""
    plans, best = result.plans, result.plans[0].estimate
    lower = HEAD + len(plans) * ROW + 92.0
    draw = Drawing(
        width=WIDTH, height=lower + len(best.stages) * STAGE + 52.0, style=STYLE,
        title=f"{name} on {devices}: the {len(plans)} best layouts of {result.legal:,}", description=_words(plans),
    )
    draw.text(LEFT, 28, draw.title, size=16, bold=True)
    draw.text(LEFT, 46, "seconds of one step, by cause; whiskers hold 90 % of runs", size=11.5, colour=MUTED)
    _legend(draw, 63, [(words, colour) for words, _, colour in TIMES])
    _steps(draw, plans, published)
    draw.text(LEFT, lower - 30, f"Memory of a device by stage, {plans[0].label.partition(' layers')[0]}", size=13, bold=True)
    _legend(draw, lower - 13, list(MEMORIES))
    _stages(draw, best.stages, best.memory_capacity_bytes, lower)
    return draw


def _legend(draw: Drawing, y: float, entries: Sequence[tuple[str, str]]) -> None:
    x = LEFT
    for words, colour in entries:
        draw.rectangle(x, y - 9, 10, 10, colour)
        draw.text(x + 15, y, words, size=11, colour=MUTED)
        x += 15 + 6.2 * len(words) + 16


def _steps(draw: Drawing, plans: Sequence[RankedPlan], published: Near | None) -> None:
    longest = max(plan.estimate.interval.step_s[1] if plan.estimate.interval else plan.estimate.step_s for plan in plans)
    scale = (WIDTH - LEFT - RIGHT) / longest
    for row, plan in enumerate(plans):
        y, estimate = HEAD + row * ROW, plan.estimate
        label, _, uneven = plan.label.partition(" layers=")
        draw.text(LEFT, y + 14, f"{plan.rank}  {label}{', layers by stage uneven' if uneven else ''}", size=11.5, bold=not row)
        parts = [sum(getattr(estimate.time, key) for key in keys) for _, keys, _ in TIMES]
        _bar(draw, y + 19, [part * scale for part in parts], [colour for _, _, colour in TIMES])
        if estimate.interval is not None:
            low, high = (LEFT + each * scale for each in estimate.interval.step_s)
            middle = y + 19 + BAR / 2
            ends = [((each, middle - 4), (each, middle + 4)) for each in (low, high)]
            draw.segments([((low, middle), (high, middle)), *ends], INK, width=1.2)
        words = f"{seconds(estimate.step_s)}   {percent(estimate.mfu_ratio)} MFU"
        draw.text(WIDTH - RIGHT + 12, y + 31, words, size=11.5, bold=not row)
    bottom = HEAD + len(plans) * ROW + 6
    run = published.cell.best if published is not None and not published.differs else None
    if run is not None and run.step_s is not None:
        x = LEFT + run.step_s * scale
        draw.line([(x, HEAD + 14), (x, bottom)], RED, width=1.2, dash="4 3")
        words = f"measured by {run.source.partition('@')[0]}: {seconds(run.step_s)}"
        draw.text(x - 6, bottom + 6, words, size=11, colour=RED, anchor="end")


def _bar(draw: Drawing, y: float, widths: Sequence[float], colours: Sequence[str], *, left: float = LEFT) -> None:
    for end, width, colour in zip(accumulate(widths), widths, colours, strict=True):
        if width >= 0.1:
            draw.rectangle(left + end - width, y, width, BAR, colour)


def _stages(draw: Drawing, stages: Sequence[Stage], capacity_bytes: float, top: float) -> None:
    left = LEFT + 56.0
    scale = (WIDTH - RIGHT - left) / max(capacity_bytes, *(stage.memory.reserved_bytes for stage in stages))
    for row, stage in enumerate(stages):
        y = top + row * STAGE
        draw.text(LEFT, y + 12, f"stage {stage.stage}", size=11, colour=MUTED)
        _bar(draw, y, [getattr(stage.memory, name) * scale for name, _ in MEMORIES], [colour for _, colour in MEMORIES], left=left)
        words = f"{stage.memory.reserved_bytes / GIB:.1f} GiB, {plural(stage.layers, 'layer')}"
        draw.text(WIDTH - RIGHT + 12, y + 12, words, size=11.5)
    bottom = top + len(stages) * STAGE
    x = left + capacity_bytes * scale
    draw.line([(x, top - 4), (x, bottom)], RED, width=1.2, dash="4 3")
    draw.text(x, bottom + 12, f"usable: {capacity_bytes / GIB:.1f} GiB", size=11, colour=RED, anchor="end")


def _words(plans: Sequence[RankedPlan]) -> str:
    found = ((plan, plan.estimate) for plan in plans)
    return " ".join(f"{plan.rank}: {plan.label}, {seconds(each.step_s)}, MFU {percent(each.mfu_ratio)}." for plan, each in found)
