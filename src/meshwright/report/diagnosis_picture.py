"""A diagnosis as one page: parts of the step beside their predictions, steps over the run, ranks beside each other, findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.documents.quoting import xml
from meshwright.report.charts import Axis, Frame, round_axis
from meshwright.report.svg import BLUE, GREEN, GREY, INK, MUTED, ORANGE, RED, Drawing
from meshwright.words import integer, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WIDTH, LEFT, TOP, FOOT = 720.0, 110.0, 40.0, 44.0
ROW, BAR = 34.0, 11.0
STEPS, RANKS = 180.0, 8.0
MOST_RANKS = 64
HIGHEST = 3.0
"""How many times the median a step may take that is drawn where it lies."""
COLOURS = {"error": RED, "warning": ORANGE, "advice": MUTED}
KINDS = {"left out": GREY, "steady": BLUE, "spike": RED}
SHARES = ("compute", "communication_exposed", "waiting", "bubble", "data", "host", "idle", "other")
STYLE = (
    "body{font:15px sans-serif;margin:2em;max-width:60em}td,th{text-align:left;padding:.2em .8em .2em 0;vertical-align:top}"
    "small{color:#656d76}code{font-size:13px}"
)


def page(view: Mapping[str, Any]) -> str:
    """One HTML file, nothing fetched: what is drawn of ``diagnose --json``, with ``steps`` and ``ranks`` beside it."""
    pictures = [draw(view) for draw, there in (
        (parts, view["expected"] or view["split"]), (course, view["steps"]), (ranks, len(view["ranks"]) > 1)) if there]
    observed = view["observed"]
    rate, mfu = observed["tokens_per_s_per_device"], observed["mfu_ratio"]
    said = [
        "" if observed["step_s"] is None else f"{seconds(observed['step_s'])} a step",
        "" if rate is None else f"{integer(round(rate))} tokens/s/device", "" if mfu is None else f"MFU {percent(mfu)}",
        f"{observed['devices']} devices" if observed["devices"] else "", view["label"] or "",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Diagnosis</title>\n'
        f"<style>{STYLE}</style></head>\n<body><h1>{xml(view['verdict'])}</h1>\n<p>{xml('   '.join(filter(None, said)))}</p>\n"
        + "".join(f"<p>{each}</p>\n" for each in pictures)
        + f"<table>\n{''.join(_finding(each) for each in view['findings'])}</table>\n"
        + "".join(f"<p><small>{xml(note)}</small></p>\n" for note in view["notes"])
        + "</body></html>\n"
    )


def parts(view: Mapping[str, Any]) -> str:
    """Bars of the parts: observed above predicted, the interval as a whisker; shares of the step where nothing is predicted."""
    rows = list(_rows(view))
    drawing = Drawing(
        width=WIDTH, height=TOP + ROW * len(rows) + FOOT, title="Parts of the step",
        description="; ".join(f"{name}: {_time(seen)} observed, {_time(should)} predicted" for name, seen, should, _ in rows),
    )
    most = max((each for _, seen, should, span in rows for each in (seen, should, *(span or ())) if each), default=1.0)
    across = round_axis([most], label="seconds of a step", words=seconds)
    frame = Frame(drawing=drawing, left=LEFT, top=TOP, width=WIDTH - LEFT - 24, height=ROW * len(rows), across=across,
                  up=Axis(low=0.0, high=1.0))
    frame.ground("Where a step goes", "blue: observed, green: predicted, whisker: where 90 % lie")
    for place, (name, seen, should, span) in enumerate(rows):
        y = TOP + ROW * place + ROW / 2
        drawing.text(LEFT - 8, y + 4, name, anchor="end")
        for value, at, colour in ((seen, y - BAR, BLUE), (should, y, GREEN)):
            if value:
                drawing.rectangle(LEFT, at, max(1.0, across.share(value) * frame.width), BAR - 1, colour)
        if seen is None:
            drawing.text(LEFT + 4, y - 2, "not known", size=10, colour=MUTED)
        if span is not None:
            low, high = (LEFT + across.share(each) * frame.width for each in span)
            middle = y + BAR / 2
            drawing.segments([((low, middle), (high, middle)), *(((x, middle - 3), (x, middle + 3)) for x in (low, high))], INK)
    return str(drawing)


def course(view: Mapping[str, Any]) -> str:
    """Step times over the run: those that count, those of warming up, spikes; the median, and the predicted interval."""
    steps, observed = view["steps"], view["observed"]
    drawing = Drawing(width=WIDTH, height=TOP + STEPS + FOOT, title="Steps of the run",
                      description="; ".join(f"{sum(each['kind'] == kind for each in steps)} {kind}" for kind in KINDS))
    numbers, median = [each["number"] for each in steps], observed["step_s"] or 0.0
    predicted = view["expected"].get("step")
    span = [] if predicted is None else [predicted["predicted_s"], *(predicted["interval"] or ())]
    most = max([min(each["step_s"], HIGHEST * median) for each in steps if each["kind"] != "left out"] + span, default=median)
    frame = Frame(
        drawing=drawing, left=LEFT, top=TOP, width=WIDTH - LEFT - 24, height=STEPS,
        across=round_axis(numbers, label="step", words=lambda value: integer(round(value)), low=min(numbers) - 1.0),
        up=round_axis([most], words=seconds),
    )
    frame.ground("Steps of the run", "grey: left out, red: spikes, blue: median, green: predicted; at the upper edge: longer")
    for kind, colour in KINDS.items():
        frame.dots([(each["number"], each["step_s"]) for each in steps if each["kind"] == kind], colour)
    ends = (frame.across.low, frame.across.high)
    if median:
        frame.line([(x, median) for x in ends], BLUE)
    for place, value in enumerate(span):
        frame.line([(x, value) for x in ends], GREEN, dash="4 4" if place else "")
    return str(drawing)


def ranks(view: Mapping[str, Any]) -> str:
    """Seconds that each rank computes in its window; of many ranks the fastest and the slowest."""
    rows = view["ranks"]
    if len(rows) > MOST_RANKS:
        ordered = sorted(rows, key=lambda each: each["compute_s"])
        rows = [*ordered[: MOST_RANKS // 2], *ordered[-MOST_RANKS // 2:]]
    mean = sum(each["compute_s"] for each in view["ranks"]) / len(view["ranks"])
    drawing = Drawing(
        width=WIDTH, height=TOP + (RANKS + 4) * len(rows) + FOOT, title="Compute of the ranks",
        description="; ".join(f"rank {each['rank']}: {seconds(each['compute_s'])}" for each in rows),
    )
    across = round_axis([each["compute_s"] for each in rows], label="seconds of computing", words=seconds)
    frame = Frame(drawing=drawing, left=LEFT, top=TOP, width=WIDTH - LEFT - 24, height=(RANKS + 4) * len(rows), across=across,
                  up=Axis(low=0.0, high=1.0))
    frame.ground("Compute of the ranks", f"line: the mean of {len(view['ranks'])}; red: 5 % above it or more")
    for place, each in enumerate(rows):
        y = TOP + (RANKS + 4) * place + 2
        drawing.text(LEFT - 8, y + RANKS, f"rank {each['rank']}", size=9, anchor="end")
        colour = RED if each["compute_s"] > 1.05 * mean else BLUE
        drawing.rectangle(LEFT, y, across.share(each["compute_s"]) * frame.width, RANKS, colour)
    frame.line([(mean, 0.0), (mean, 1.0)], INK, dash="3 3")
    return str(drawing)


def _rows(view: Mapping[str, Any]) -> Iterator[tuple[str, float | None, float | None, Sequence[float] | None]]:
    """Part, observed, predicted, interval."""
    if view["expected"]:
        for name, each in view["expected"].items():
            if each["observed_s"] or each["predicted_s"]:
                yield name, each["observed_s"], each["predicted_s"], each["interval"]
        return
    step_s = view["split"]["step_s"]
    for name in SHARES:
        if share := view["split"][f"{name}_ratio"]:
            yield name.removesuffix("_exposed"), share * step_s, None, None


def _finding(each: Mapping[str, Any]) -> str:
    lost = f"{percent(each['loss_ratio'])} lost" if each["loss_ratio"] is not None else ""
    gain = each["predicted_gain_ratio"]
    with_it = f"{percent(gain)} less with {each['change']}" if gain else ""
    won = f"at most {percent(gain)} less" if gain and each["gain_is_bound"] else with_it
    seen = "".join(f"<br><small>{xml(_seen(one))}</small>" for one in each["evidence"][:3])
    helps = "".join(f"<br>→ {xml(remedy)}" for remedy in each["remedy"][:4])
    colour = COLOURS[each["severity"]]
    return (
        f'<tr><td style="color:{colour}">{xml(each["severity"])}</td><td><code>{xml(each["id"])}</code></td><td>{xml(lost)}</td>'
        f"<td>{xml(won)}</td><td>{xml(each['message'])}{seen}{helps}</td></tr>\n"
    )


def _seen(one: Mapping[str, Any]) -> str:
    where = f"{one['file']}:{one['line']}" if one["line"] else one["file"] or ""
    return f"{one['text']}  {where}".strip()


def _time(value_s: float | None) -> str:
    return "?" if value_s is None else seconds(value_s)
