"""Tokens a second and memory against the limit of a micro-batch: two curves one above the other, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report.charts import Frame, round_axis
from meshwright.report.svg import BLUE, GREEN, MUTED, ORANGE, RED, Drawing
from meshwright.words import integer, rate

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH, EACH, LEFT, GAP = 640.0, 180.0, 78.0, 80.0


def picture(view: Mapping[str, Any]) -> str:
    """The curve of ``pack --json`` as SVG text; the recommended limit is a line through both."""
    points = view["curve"]
    title = f"The limit of a micro-batch: {integer(view['recommended_max_tokens'])} tokens are recommended"
    words = "; ".join(f"{integer(each['max_tokens'])} tokens: {rate(each['trained_tokens_per_s'])} tokens/s" for each in points)
    drawing = Drawing(width=WIDTH, height=2 * (EACH + GAP) + 20, title=title, description=words or "no model was named")
    if not points:
        drawing.text(WIDTH / 2, EACH, "no curve: --model and a cluster say what a limit costs", anchor="middle")
        return str(drawing)
    caps = [each["max_tokens"] for each in points]
    across = round_axis(caps, label="limit of a micro-batch, tokens", words=integer)
    speed = [each["trained_tokens_per_s"] for each in points]
    held = [each["memory_reserved_bytes"] / 2**30 for each in points]
    capacity = points[0]["memory_capacity_bytes"] / 2**30
    upper = Frame(drawing=drawing, left=LEFT, top=44.0, width=WIDTH - LEFT - 24, height=EACH, across=across,
                  up=round_axis(speed, words=rate))
    lower = Frame(drawing=drawing, left=LEFT, top=44.0 + EACH + GAP, width=WIDTH - LEFT - 24, height=EACH, across=across,
                  up=round_axis([*held, capacity], words=lambda value: f"{value:.0f}"))
    upper.ground("tokens/s without padding", f"{view['label']}: {view['data_parallel']} ranks")
    lower.ground("GiB reserved on the fullest device", "dashes: what the trainer may use")
    for frame, values, colour in ((upper, speed, BLUE), (lower, held, ORANGE)):
        frame.line(list(zip(caps, values, strict=True)), colour)
        for fits, of in ((True, colour), (False, RED)):
            places = [(cap, value) for cap, value, each in zip(caps, values, points, strict=True) if each["fits"] is fits]
            frame.dots(places, of, size=6.0, opacity=1.0)
        chosen = view["recommended_max_tokens"]
        frame.line([(chosen, frame.up.low), (chosen, frame.up.high)], GREEN, dash="5 4")
    lower.line([(across.low, capacity), (across.high, capacity)], MUTED, dash="3 3")
    return str(drawing)
