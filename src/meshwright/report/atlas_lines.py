"""The chart of linearity: a line for each row of an atlas, named at its end, or below the chart where there is no room."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any

from meshwright.report.atlas import by_nodes, size_word
from meshwright.report.atlas_panel import PLAIN, RIGHT, wrapped
from meshwright.report.charts import Axis, Frame
from meshwright.report.svg import BLUE, GREEN, GREY, MUTED, ORANGE, PURPLE, RED, Drawing
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINES, LINE_ROOM = 260.0, 150.0
"""Height of the chart, and what the names of its lines take beside it."""
MUCH, MARKS = 1.6, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""Linearity above which its axis has equal factors, and where that is marked."""
BROAD, KEY = 480.0, 16.0
"""Width from which names of lines stand at their ends; below it under the chart, one a line of this height."""
LEAST, MEASURED = 10.0, ", measured"
"""The smallest letters of names at the ends of lines; what is said behind the name of a measured one."""
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, "#2f8f8b", "#a9634c", "#c2588b", "#a8852b", GREY)


def height_of(view: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], width: float) -> float:
    """Pixels of the chart with the names that stand below it."""
    names = _names(lines)
    return LINES if _at_ends(names, width) else LINES + KEY * sum(len(_key_lines(name, width)) for name in names)


def linearity_drawing(view: Mapping[str, Any], width: float) -> Drawing:
    """The chart alone; ``view``: devices of the cells, and lines."""
    lines = [each for each in view["linearity"] if len(each["points"]) > 1]
    words = "; ".join(
        f"{each['series']} {each['source']}: " + ", ".join(
            f"{point['devices']} devices {percent(point['row_linearity_ratio'], 0)}" for point in each["points"]
        ) for each in lines
    )
    tall = height_of(view, lines, width) - 2.0
    draw = Drawing(width=width, height=tall, title="Linearity by number of devices", description=words)
    put_lines(draw, view, lines, left=48.0, top=34.0)
    return draw


def put_lines(
    draw: Drawing, view: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], *, left: float, top: float
) -> None:
    """A line for each row of the atlas, its name at its end; measured ones are dashed."""
    nodes = by_nodes(view)
    cells = {each["devices"]: size_word(each, nodes=nodes) for each in view["cells"]}
    points = [point for each in lines for point in each["points"]]
    sizes = sorted({point["devices"] for point in points})
    names = _names(lines)
    broad = _at_ends(names, draw.width)
    room = draw.width - left - RIGHT / 2 - (LINE_ROOM if broad else 0.0)
    kept = _spaced(sizes, room)
    frame = Frame(
        drawing=draw, left=left, top=top, width=room, height=LINES - 70.0,
        across=Axis(low=sizes[0] / 1.12, high=max(sizes[-1], 2 * sizes[0]) * 1.12, log=True,
                    ticks=tuple((float(each), cells[each]) for each in kept), label="nodes" if nodes else "devices"),
        up=_ratios([point["row_linearity_ratio"] for point in points]),
    )
    what = "throughput of a device over that on the fewest nodes of its row" if broad else "against the fewest nodes of a row"
    frame.ground("Linearity", what)
    frame.line([(frame.across.low, 1.0), (frame.across.high, 1.0)], MUTED, dash="2 3")
    series = list(dict.fromkeys((each["series"], each["device"]) for each in lines))
    ends = []
    for each, name in zip(lines, names, strict=True):
        colour = COLOURS[series.index((each["series"], each["device"])) % len(COLOURS)]
        own = [(float(point["devices"]), point["row_linearity_ratio"]) for point in each["points"]]
        dash = "5 3" if name.endswith(MEASURED) and each["source"] == "measured" else ""
        frame.line(own, colour, width=1.8, dash=dash)
        noun = "nodes" if nodes else "devices"
        said = [f"{name}: {percent(point['row_linearity_ratio'])} on {cells[point['devices']]} {noun}" for point in each["points"]]
        frame.dots(own, colour, size=5.0, opacity=1.0, values=said)
        ends.append([frame.at(*own[-1])[1], frame.at(*own[-1])[0], name, colour, dash])
    if broad:
        _ends(draw, frame, ends)
    else:
        _key(draw, frame, ends)


def _names(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """What lines are called: the measured ones as such, where others are not."""
    several = len({each["source"] for each in lines}) > 1
    return [f"{each['series']}{MEASURED if several and each['source'] == 'measured' else ''}" for each in lines]


def _at_ends(names: Sequence[str], width: float) -> bool:
    """Whether names stand at the ends of their lines: there is room for the longest in letters that are read."""
    return width >= BROAD and max(map(len, names), default=0) * PLAIN * LEAST <= LINE_ROOM - 14


def _key_lines(name: str, width: float) -> list[str]:
    return wrapped(name, width - 92.0, 11.0 * PLAIN, hyphens=True)


def _ratios(values: Sequence[float]) -> Axis:
    """From nought up in equal steps, or, where a row gains much on its first cell, in equal factors: the others would lie flat."""
    low, high = min(values), max(1.0, *values)
    if high <= MUCH:
        most = max(1.1, 1.05 * high)
        return Axis(low=0.0, high=most, ticks=tuple((place / 4, percent(place / 4, 0)) for place in range(int(4 * most) + 1)))
    marks = [each for each in MARKS if low / 1.2 <= each <= 1.2 * high]
    return Axis(low=low / 1.2, high=1.2 * high, log=True, ticks=tuple((each, percent(each, 0)) for each in marks))


def _spaced(sizes: Sequence[int], width: float) -> list[int]:
    """Those of some sizes whose words keep clear of each other on an axis of factors."""
    span = max(log2(sizes[-1] / sizes[0]), 1.0)
    kept = [sizes[0]]
    for each in sizes[1:]:
        if log2(each / kept[-1]) * width / span >= 34.0:
            kept.append(each)
    return kept


def _ends(draw: Drawing, frame: Frame, ends: list[list[Any]]) -> None:
    """The names of lines at their right ends, moved apart, each with a thin line to its own."""
    ends.sort(key=lambda each: each[0])
    places = [each[0] for each in ends]
    for place in range(1, len(places)):
        places[place] = max(places[place], places[place - 1] + 13.0)
    over = max(0.0, (places[-1] if places else 0.0) - (frame.top + frame.height + 8))
    places = [each - over for each in places]
    x = frame.left + frame.width + 10
    for y, (at, from_x, name, colour, _) in zip(places, ends, strict=True):
        draw.line([(from_x + 4, at), (x - 3, y - 3)], colour, width=0.6, opacity=0.6)
        size = min(11.0, (LINE_ROOM - 14) / (max(len(name), 1) * 0.56))
        draw.text(x, y, name, size=round(size, 1), colour=colour)


def _key(draw: Drawing, frame: Frame, ends: list[list[Any]]) -> None:
    """The names of lines below their chart."""
    y = frame.top + frame.height + 46.0
    for _, _, name, colour, dash in ends:
        draw.line([(frame.left, y - 4), (frame.left + 24, y - 4)], colour, width=1.8, dash=dash)
        for line in _key_lines(name, draw.width):
            draw.text(frame.left + 32, y, line, size=11.0)
            y += KEY
