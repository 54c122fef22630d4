"""The picture of an atlas: models down, cluster sizes across, each cell its best layout on the colour of its MFU; and linearity."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

from meshwright.report.atlas import (
    COARSE,
    TITLES,
    VERDICTS,
    by_nodes,
    columns_of,
    head_of,
    lacking,
    mfu_word,
    names_of,
    rows_of,
    size_word,
    sources,
    standing,
    tally,
    title_of,
)
from meshwright.report.atlas_scale import EMPTY, MUTED_INK, diverging, ink_on, ramp, share_of
from meshwright.report.charts import Axis, Frame
from meshwright.report.svg import BLUE, CHARACTER, GREEN, GREY, GRID, INK, MUTED, ORANGE, PAPER, PURPLE, RED, Drawing
from meshwright.units import GIB
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.report.atlas import Rows

CELL, TALL, GAP = (116.0, 96.0, 84.0), 64.0, 2.0
"""Widths of a cell where there are few, more and many columns; its height; what is left between cells."""
LEFT, TOP, HEAD, BETWEEN, RIGHT = 16.0, 76.0, 44.0, 26.0, 24.0
MOST_COLUMNS, FEW, SOME = 16, 8, 12
"""Columns of one panel; more stand in a panel below."""
NAME, SMALL = 12.0, 10.0
LINES, LINE_ROOM = 260.0, 150.0
"""Height of the chart of linearity, and what the names of its lines take beside it."""
MUCH, MARKS = 1.6, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""Linearity above which its axis has equal factors, and where that is marked."""
BROAD, KEY = 480.0, 16.0
"""Width from which names of lines stand at their ends; below it under the chart, one a line of this height."""
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, "#2f8f8b", "#a9634c", "#c2588b", "#a8852b", GREY)
NARROWEST = 560.0
DESCRIBED = 200
"""Cells that are said in words, to who does not see the picture."""

Said = tuple[str, float, bool]
"""Words, the size of their font, and whether they are bold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What one cell looks like."""

    colour: str
    lines: tuple[Said, ...]
    faint: bool = False
    """Nothing stands there: words in grey."""
    dashed: bool = False
    """Not refined yet."""
    value: str = ""
    """All of it in words."""


def picture(view: Mapping[str, Any]) -> str:
    """The atlas as SVG text, from ``atlas --json``."""
    return str(drawing(view))


def drawing(view: Mapping[str, Any]) -> Drawing:
    """The whole picture: maps one below the other, then the chart of linearity."""
    maps = [_map(view, source) for source in sources(view)]
    if "differences" in view and any(each["measured_step_s"] for each in view["differences"]):
        maps.append(_difference_map(view))
    lines = [each for each in view["linearity"] if len(each["points"]) > 1]
    left = _left(maps)
    wide = max([left + min(MOST_COLUMNS, len(each.columns)) * (each.cell + GAP) + RIGHT for each in maps] or [NARROWEST])
    wide = max(wide, NARROWEST)
    tall = TOP + sum(each.height + BETWEEN for each in maps) + (LINES if lines else 0.0)
    draw = Drawing(width=wide, height=tall, title=title_of(view), description=_described(view))
    _fitting(draw, LEFT, 26, title_of(view), 16.0, wide - LEFT - RIGHT, bold=True)
    for place, line in enumerate(standing(view)[:2]):
        _fitting(draw, LEFT, 44 + 15 * place, line, 11.0, wide - LEFT - RIGHT, colour=MUTED)
    top = TOP
    for each in maps:
        each.put(draw, left, top)
        top += each.height + BETWEEN
    if lines:
        _linearity(draw, view, lines, left=LEFT + 44.0, top=top + 20.0)
    return draw


def maps_drawing(view: Mapping[str, Any], source: str) -> Drawing:
    """The map of one source alone, as a page has it."""
    return _alone(_map(view, source), view, f"{TITLES[source]}: MFU of the best layout by model and size")


def difference_drawing(view: Mapping[str, Any]) -> Drawing:
    """The map of differences alone."""
    return _alone(_difference_map(view), view, "Measured over predicted, by model and size")


def linearity_drawing(view: Mapping[str, Any], width: float) -> Drawing:
    """The chart of linearity alone."""
    lines = [each for each in view["linearity"] if len(each["points"]) > 1]
    words = "; ".join(
        f"{each['series']} {each['source']}: " + ", ".join(
            f"{point['devices']} devices {percent(point['row_linearity_ratio'], 0)}" for point in each["points"]
        ) for each in lines
    )
    below = 0.0 if width >= BROAD else KEY * len(lines)
    draw = Drawing(width=width, height=LINES - 6.0 + below, title="Linearity by number of devices", description=words)
    _linearity(draw, view, lines, left=48.0, top=30.0)
    return draw


def _alone(found: Panel, view: Mapping[str, Any], title: str) -> Drawing:
    left = _left([found])
    wide = max(left + min(MOST_COLUMNS, len(found.columns)) * (found.cell + GAP) + RIGHT, NARROWEST)
    draw = Drawing(width=wide, height=found.height + 12.0, title=title, description=_described(view))
    found.put(draw, left, 8.0)
    return draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A map: names down, sizes across, a block where they meet."""

    title: str
    names: Sequence[str]
    columns: Sequence[str]
    blocks: Mapping[tuple[int, int], Block]
    """(Row, column) -> what stands there."""
    scale: tuple[Callable[[float], str], tuple[tuple[float, str], ...]]
    """Share -> colour, and shares with their words below."""
    noun: str

    @property
    def cell(self) -> float:
        """Width of a cell."""
        count = min(len(self.columns), MOST_COLUMNS)
        return CELL[0] if count <= FEW else CELL[1] if count <= SOME else CELL[2]

    @property
    def pieces(self) -> list[range]:
        """Columns of each part, where they do not fit side by side."""
        return [range(at, min(at + MOST_COLUMNS, len(self.columns))) for at in range(0, len(self.columns), MOST_COLUMNS)]

    @property
    def height(self) -> float:
        """Of all parts with their headings."""
        return 22.0 + len(self.pieces) * (HEAD - 22.0 + len(self.names) * (TALL + GAP)) + 12.0 * (len(self.pieces) - 1)

    def put(self, draw: Drawing, left: float, top: float) -> None:
        """Draw it with its left upper cell at a place."""
        draw.text(LEFT, top + 12, self.title, size=13.0, bold=True)
        wide = draw.width - RIGHT
        _scale(draw, wide, top, self.scale)
        top += 22.0
        for piece in self.pieces:
            draw.text(left - 8, top + 15, self.noun, size=SMALL, colour=MUTED, anchor="end")
            for place, column in enumerate(piece):
                middle = left + place * (self.cell + GAP) + self.cell / 2
                draw.text(middle, top + 15, self.columns[column], size=NAME, bold=True, anchor="middle")
            top += HEAD - 22.0
            for row, name in enumerate(self.names):
                y = top + row * (TALL + GAP)
                _name(draw, left, y, name)
                for place, column in enumerate(piece):
                    _block(draw, left + place * (self.cell + GAP), y, self.cell, self.blocks.get((row, column)))
            top += len(self.names) * (TALL + GAP) + 12.0


def _name(draw: Drawing, left: float, y: float, name: str) -> None:
    """The name of a row, on lines that are short enough."""
    parts = name.split(", ")
    for place, part in enumerate(parts[:4]):
        size = NAME if not place else SMALL
        fitting = min(size, (left - LEFT - 8) / (max(len(part), 1) * CHARACTER))
        middle = y + TALL / 2 + 4 + 13 * (place - (min(len(parts), 4) - 1) / 2)
        draw.text(left - 8, middle, part, size=round(fitting, 1), bold=not place, colour=INK if not place else MUTED, anchor="end")


def _block(draw: Drawing, x: float, y: float, width: float, block: Block | None) -> None:
    if block is None:
        draw.rectangle(x, y, width, TALL, PAPER, stroke=GRID)
        draw.text(x + width / 2, y + TALL / 2 + 4, "\u2013", size=SMALL + 2, colour=MUTED, anchor="middle")
        return
    draw.rectangle(x, y, width, TALL, block.colour, value=block.value)
    ink = MUTED_INK if block.faint else ink_on(block.colour)
    step = 14.0
    top = y + TALL / 2 + 4 - step * (len(block.lines) - 1) / 2
    for place, (words, size, bold) in enumerate(block.lines):
        fitting = min(size, (width - 6) / (max(len(words), 1) * (CHARACTER if bold else 0.53)))
        draw.text(x + width / 2, top + place * step, words, size=round(fitting, 1), colour=ink, bold=bold, anchor="middle")
    if block.dashed:
        frame = [(x + 1.5, y + 1.5), (x + width - 1.5, y + 1.5), (x + width - 1.5, y + TALL - 1.5), (x + 1.5, y + TALL - 1.5)]
        draw.line([*frame, frame[0]], ink, width=1.0, dash="3 3")


def _scale(draw: Drawing, right: float, top: float, scale: tuple[Callable[[float], str], tuple[tuple[float, str], ...]]) -> None:
    """A bar of colours, its ends and middle in words."""
    colour, words = scale
    wide, steps = 170.0, 34
    for step in range(steps):
        draw.rectangle(right - wide + step * wide / steps, top + 2, wide / steps + 0.4, 9, colour((step + 0.5) / steps))
    for share, word in words:
        anchor = "start" if share <= 0 else "end" if share >= 1 else "middle"
        draw.text(right - wide + share * wide, top + 21, word, size=9.5, colour=MUTED, anchor=anchor)


def _left(maps: Sequence[Panel]) -> float:
    """Where cells begin: behind the longest name, within reason."""
    longest = max((len(part) for each in maps for name in each.names for part in name.split(", ")), default=8)
    return LEFT + 16 + min(190.0, max(90.0, longest * NAME * CHARACTER))


def _map(view: Mapping[str, Any], source: str) -> Panel:
    rows, nodes = rows_of(view, source), by_nodes(view)
    top = max((each["mfu_ratio"] or 0.0 for each in view["cells"]), default=0.0)
    scale = (ramp, ((0.0, "MFU 0 %"), (1.0, percent(top))))
    return Panel(
        title=f"{TITLES[source]}: MFU, memory and layout", names=list(names_of(rows).values()),
        noun="nodes" if nodes else "devices",
        columns=_heads(view), blocks=_blocks(view, rows, lambda cell: _cell_block(cell, top)), scale=scale,
    )


def _heads(view: Mapping[str, Any]) -> list[str]:
    """The headings of all columns of the atlas: every map has the same."""
    rows: Rows = {("", ""): {each["devices"]: each for each in view["cells"]}}
    return [head_of(rows, each, nodes=by_nodes(view)) for each in columns_of(rows)]


def _blocks(
    view: Mapping[str, Any], rows: Rows, look: Callable[[Mapping[str, Any]], Block | None]
) -> dict[tuple[int, int], Block]:
    columns = sorted({each["devices"] for each in view["cells"]})
    found = {}
    for row, cells in enumerate(rows.values()):
        for column, devices in enumerate(columns):
            if devices in cells and (block := look(cells[devices])) is not None:
                found[row, column] = block
    return found


def _cell_block(cell: Mapping[str, Any], top: float) -> Block:
    """What a cell says: MFU, memory, the degrees, accumulation and sharding, and what is recomputed."""
    where = f"{cell['series']} on {cell['devices']:,} devices"
    if cell["label"] is None:
        empty = _empty(cell)
        return Block(colour=EMPTY, faint=True, lines=empty, value=f"{where}: {' '.join(words for words, _, _ in empty)}")
    held = cell["memory_reserved_bytes"] or cell["memory_peak_bytes"]
    lines: list[Said] = [(mfu_word(cell), 14.0, True)]
    lines += [(f"{held / GIB:.0f} GiB", SMALL, False)] if held else []
    lines += [(words, SMALL, False) for words in layout_words(cell["layout"] or {})]
    colour = EMPTY if cell["mfu_ratio"] is None else ramp(share_of(cell["mfu_ratio"], top))
    figures = [f"{mfu_word(cell)} MFU", seconds(cell["step_s"]) + " a step" if cell["step_s"] else "",
               f"{held / GIB:.1f} GiB" if held else "", cell["label"]]
    return Block(colour=colour, lines=tuple(lines[:4]), dashed=cell["grade"] == "coarse",
                 value=f"{where}: {', '.join(filter(None, figures))}")


def _empty(cell: Mapping[str, Any]) -> tuple[Said, ...]:
    if cell["missing_bytes"] is not None:
        return ("does not fit", SMALL, False), (f"lacks {lacking(cell)}", 11.0, True)
    if cell["run"]:
        return (f"{cell['run']['failed']} tried,", SMALL, False), ("none worked", SMALL, False)
    return (("no legal layout", SMALL, False),)


def layout_words(layout: Mapping[str, Any]) -> list[str]:
    """A layout in two lines: the mesh; then micro-batch, accumulation, ZeRO and what is recomputed."""
    def said(word: str, name: str, *, always: bool = False) -> list[str]:
        value = layout.get(name)
        return [f"{word}{value}"] if value not in (None, "") and (always or value != 1) else []

    mesh = [
        *said("DP", "data_parallel", always=True), *said("TP", "tensor_parallel", always=True), *said("CP", "context_parallel"),
        *said("PP", "pipeline_parallel", always=True), *said("VP", "virtual_stages"), *said("EP", "expert_parallel"),
        *said("ETP", "expert_tensor_parallel"),
    ]
    rest = [*said("mb", "microbatch_sequences", always=True), *said("acc", "num_microbatches", always=True),
            *said("ZeRO-", "zero_stage", always=True)]
    recompute = str(layout.get("recompute") or "none").partition(":")[0]
    rest += [f"R:{recompute}"] if recompute not in {"none", "[]"} else []
    rest += ["offload"] if layout.get("offload") else []
    return [" ".join(each) for each in (mesh, rest) if each]


def _difference_map(view: Mapping[str, Any]) -> Panel:
    """Measured over predicted step of the layout that measured best, and whether it is the layout that was predicted to be best."""
    known = {(each["series"], each["device"], each["devices"]): each for each in view["differences"]}
    told = {(each["series"], each["device"]) for each in view["differences"] if each["verdict"] != "only predicted"}
    rows = {key: row for key, row in rows_of(view, "predicted").items() if key in told}

    def look(cell: Mapping[str, Any]) -> Block | None:
        found = known.get((cell["series"], cell["device"], cell["devices"]))
        return None if found is None else _difference_block(found)

    scale = (lambda share: diverging(4.0 ** (share - 0.5)), ((0.0, "half"), (0.5, "as predicted"), (1.0, "twice")))
    return Panel(
        title="Best measured step over the one predicted for its layout", names=list(names_of(rows).values()),
        noun="nodes" if by_nodes(view) else "devices", columns=_heads(view), blocks=_blocks(view, rows, look), scale=scale,
    )


def _difference_block(found: Mapping[str, Any]) -> Block | None:
    if found["verdict"] == "neither":
        return Block(colour=EMPTY, faint=True, lines=(("empty in both", SMALL, False),))
    if found["measured_step_s"] is None:
        return None
    predicted = found["measured_layout_step_s"]
    if predicted is None:
        return Block(colour=EMPTY, faint=True, lines=((VERDICTS[found["verdict"]], SMALL, False),))
    ratio = found["measured_step_s"] / predicted
    words = {"same": "same layout", "within": "layouts not told apart", "other": "another layout"}.get(found["verdict"], "")
    return Block(
        colour=diverging(ratio),
        lines=(
            (f"x {ratio:.2f}", 14.0, True), (f"{seconds(found['measured_step_s'])} / {seconds(predicted)}", SMALL, False),
            (words, SMALL, False),
        ),
        value=f"{found['series']} on {found['devices']:,} devices: measured {seconds(found['measured_step_s'])}, predicted "
              f"{seconds(predicted)} for that layout; {words}",
    )


def _linearity(draw: Drawing, view: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], *, left: float, top: float) -> None:
    """A line for each row of the atlas, its name at its end; measured ones are dashed."""
    nodes = by_nodes(view)
    cells = {each["devices"]: size_word(each, nodes=nodes) for each in view["cells"]}
    points = [point for each in lines for point in each["points"]]
    sizes = sorted({point["devices"] for point in points})
    broad = draw.width >= BROAD
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
    several = len({each["source"] for each in lines}) > 1
    series = list(dict.fromkeys((each["series"], each["device"]) for each in lines))
    ends = []
    for each in lines:
        colour = COLOURS[series.index((each["series"], each["device"])) % len(COLOURS)]
        own = [(float(point["devices"]), point["row_linearity_ratio"]) for point in each["points"]]
        dash = "5 3" if each["source"] == "measured" and several else ""
        frame.line(own, colour, width=1.8, dash=dash)
        name = f"{each['series']}{', measured' if dash else ''}"
        noun = "nodes" if nodes else "devices"
        said = [f"{name}: {percent(point['row_linearity_ratio'])} on {cells[point['devices']]} {noun}" for point in each["points"]]
        frame.dots(own, colour, size=5.0, opacity=1.0, values=said)
        ends.append([frame.at(*own[-1])[1], frame.at(*own[-1])[0], name, colour, dash])
    if broad:
        _ends(draw, frame, ends)
    else:
        _key(draw, frame, ends)


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
    top = frame.top + frame.height + 46.0
    for place, (_, _, name, colour, dash) in enumerate(ends):
        y = top + place * KEY
        draw.line([(frame.left, y - 4), (frame.left + 24, y - 4)], colour, width=1.8, dash=dash)
        _fitting(draw, frame.left + 32, y, name, 11.0, draw.width - frame.left - 40)


def _fitting(
    draw: Drawing, x: float, y: float, words: str, size: float, width: float, *, colour: str = INK, bold: bool = False
) -> None:
    """Words in a font small enough for their room."""
    fitting = min(size, width / (max(len(words), 1) * (CHARACTER if bold else 0.53)))
    draw.text(x, y, words, size=round(fitting, 1), colour=colour, bold=bold)


def _described(view: Mapping[str, Any]) -> str:
    """The atlas in words, for who does not see it."""
    nodes = by_nodes(view)
    noun = "nodes" if nodes else "devices"
    said = [*standing(view), *([tally(view)] if "differences" in view else [])]
    for each in view["cells"][:DESCRIBED]:
        empty = "does not fit" if each["missing_bytes"] else "no layout" if each["label"] is None else "ran"
        what = f"{mfu_word(each)} MFU" if each["label"] and each["mfu_ratio"] else empty
        label = f", {each['label']}" if each["label"] else ""
        where = f"{each['series']} on {size_word(each, nodes=nodes)} {noun}, {each['source']}"
        said.append(f"{where}: {what.replace(COARSE, 'about ')}{label}")
    return "; ".join(said)
