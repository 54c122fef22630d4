"""A diagnosis in pictures: parts of the step beside their predictions, steps over the run, ranks beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report.charts import Axis, Frame, round_axis
from meshwright.report.page.drawn import legend
from meshwright.report.svg import BLUE, GREEN, GREY, INK, MUTED, RED, Drawing
from meshwright.words import integer, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WIDTH, LEFT, TOP, FOOT = 720.0, 110.0, 40.0, 44.0
ROW, BAR = 34.0, 11.0
STEPS, RANKS = 180.0, 8.0
MOST_RANKS = 64
HIGHEST = 3.0
"""How many times the median a step may take that is drawn where it lies."""
KINDS = {"left out": GREY, "steady": BLUE, "spike": RED}
NAMES = {
    "tp": "tensor parallel", "cp": "context parallel", "pp": "pipeline", "dp": "data parallel", "ep": "expert parallel",
}
"""Parts of a step -> what people call them."""
SHARES = ("compute", "communication_exposed", "waiting", "bubble", "data", "host", "idle", "other")


def parts(view: Mapping[str, Any], width: float = WIDTH) -> Drawing:
    """Bars of the parts: observed above predicted, the interval as a whisker; shares of the step where nothing is predicted."""
    rows = list(_rows(view))
    drawing = Drawing(
        width=width, height=TOP + ROW * len(rows) + FOOT, title="Parts of the step",
        description="; ".join(f"{name}: {_time(seen)} observed, {_time(should)} predicted" for name, seen, should, _ in rows),
    )
    most = max((each for _, seen, should, span in rows for each in (seen, should, *(span or ())) if each), default=1.0)
    across = round_axis([most], label="seconds of a step", words=seconds)
    words = max((len(_both(seen, should)) for _, seen, should, _ in rows), default=0)
    frame = Frame(drawing=drawing, left=LEFT, top=TOP, width=width - LEFT - 16 - 6.2 * words, height=ROW * len(rows), across=across,
                  up=Axis(low=0.0, high=1.0))
    frame.ground()
    legend(drawing, [("observed", BLUE), ("predicted", GREEN)], 2.0)
    for place, (name, seen, should, span) in enumerate(rows):
        y = TOP + ROW * place + ROW / 2
        drawing.text(LEFT - 8, y + 4, name, anchor="end")
        for value, at, colour, kind in ((seen, y - BAR, BLUE, "observed"), (should, y, GREEN, "predicted")):
            if value:
                wide = max(1.0, across.share(value) * frame.width)
                drawing.rectangle(LEFT, at, wide, BAR - 1, colour, value=f"{name}: {seconds(value)} {kind}")
        drawing.text(width - 4, y + 4, _both(seen, should), size=11, anchor="end")
        if seen is None:
            drawing.text(LEFT + 4, y - 2, "not known", size=10, colour=MUTED)
        if span is not None:
            low, high = (LEFT + across.share(each) * frame.width for each in span)
            middle = y + BAR / 2
            drawing.segments([((low, middle), (high, middle)), *(((x, middle - 3), (x, middle + 3)) for x in (low, high))], INK)
    return drawing


def _both(seen: float | None, should: float | None) -> str:
    """``1.01 s | 703 ms``: observed and predicted; what is not known is left out."""
    return " | ".join(("?" if each is None else seconds(each)) for each in (seen, should)) if should is not None else (
        "" if seen is None else seconds(seen))


def course(view: Mapping[str, Any], width: float = WIDTH) -> Drawing:
    """Step times over the run: those that count, those of warming up, spikes; the median, and the predicted interval."""
    steps, observed = view["steps"], view["observed"]
    drawing = Drawing(width=width, height=TOP + STEPS + FOOT, title="Steps of the run",
                      description="; ".join(f"{sum(each['kind'] == kind for each in steps)} {kind}" for kind in KINDS))
    numbers, median = [each["number"] for each in steps], observed["step_s"] or 0.0
    predicted = view["expected"].get("step")
    span = [] if predicted is None else [predicted["predicted_s"], *(predicted["interval"] or ())]
    most = max([min(each["step_s"], HIGHEST * median) for each in steps if each["kind"] != "left out"] + span, default=median)
    frame = Frame(
        drawing=drawing, left=LEFT, top=TOP, width=width - LEFT - 24, height=STEPS,
        across=round_axis(numbers, label="step", words=lambda value: integer(round(value)), low=min(numbers) - 1.0),
        up=round_axis([most], words=seconds),
    )
    frame.ground()
    legend(drawing, [*KINDS.items(), ("predicted", GREEN)], 2.0)
    for kind, colour in KINDS.items():
        own = [each for each in steps if each["kind"] == kind]
        frame.dots([(each["number"], each["step_s"]) for each in own], colour,
                   values=[f"step {each['number']}: {seconds(each['step_s'])}, {kind}" for each in own])
    ends = (frame.across.low, frame.across.high)
    if median:
        frame.line([(x, median) for x in ends], BLUE)
    for place, value in enumerate(span):
        frame.line([(x, value) for x in ends], GREEN, dash="4 4" if place else "")
    return drawing


def ranks(view: Mapping[str, Any], width: float = WIDTH) -> Drawing:
    """Seconds that each rank computes in its window; of many ranks the fastest and the slowest."""
    rows = view["ranks"]
    if len(rows) > MOST_RANKS:
        ordered = sorted(rows, key=lambda each: each["compute_s"])
        rows = [*ordered[: MOST_RANKS // 2], *ordered[-MOST_RANKS // 2:]]
    mean = sum(each["compute_s"] for each in view["ranks"]) / len(view["ranks"])
    drawing = Drawing(
        width=width, height=TOP + (RANKS + 4) * len(rows) + FOOT, title="Compute of the ranks",
        description="; ".join(f"rank {each['rank']}: {seconds(each['compute_s'])}" for each in rows),
    )
    across = round_axis([each["compute_s"] for each in rows], label="seconds of computing", words=seconds)
    frame = Frame(drawing=drawing, left=LEFT, top=TOP, width=width - LEFT - 24, height=(RANKS + 4) * len(rows), across=across,
                  up=Axis(low=0.0, high=1.0))
    frame.ground()
    legend(drawing, [(f"the mean of {len(view['ranks'])}", INK), ("5 % above it or more", RED)], 2.0)
    for place, each in enumerate(rows):
        y = TOP + (RANKS + 4) * place + 2
        drawing.text(LEFT - 8, y + RANKS, f"rank {each['rank']}", size=9, anchor="end")
        colour = RED if each["compute_s"] > 1.05 * mean else BLUE
        drawing.rectangle(LEFT, y, across.share(each["compute_s"]) * frame.width, RANKS, colour,
                          value=f"rank {each['rank']}: {seconds(each['compute_s'])} of computing")
    frame.line([(mean, 0.0), (mean, 1.0)], INK, dash="3 3")
    return drawing


def _rows(view: Mapping[str, Any]) -> Iterator[tuple[str, float | None, float | None, Sequence[float] | None]]:
    """Part, observed, predicted, interval."""
    if view["expected"]:
        for name, each in view["expected"].items():
            if each["observed_s"] or each["predicted_s"]:
                yield NAMES.get(name, name), each["observed_s"], each["predicted_s"], each["interval"]
        return
    step_s = view["split"]["step_s"]
    for name in SHARES:
        if share := view["split"][f"{name}_ratio"]:
            yield name.removesuffix("_exposed"), share * step_s, None, None


def _time(value_s: float | None) -> str:
    return "?" if value_s is None else seconds(value_s)
