"""The picture of an atlas: models down, cluster sizes across, each cell its best layout on the colour of its MFU; and linearity."""

from __future__ import annotations

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
from meshwright.report.atlas_lines import height_of, put_lines
from meshwright.report.atlas_panel import LEFT, NARROWEST, RIGHT, SMALL, Panel, Patch, Said, fitting, left_of
from meshwright.report.atlas_scale import EMPTY, diverging, ramp, share_of
from meshwright.report.svg import MUTED, Drawing
from meshwright.units import GIB
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.report.atlas import Rows

TOP, BETWEEN = 76.0, 26.0
DESCRIBED = 200
"""Cells that are said in words, to who does not see the picture."""


def picture(view: Mapping[str, Any]) -> str:
    """The atlas as SVG text, from ``atlas --json``."""
    return str(drawing(view))


def drawing(view: Mapping[str, Any]) -> Drawing:
    """The whole picture: maps one below the other, then the chart of linearity."""
    maps = [_map(view, source) for source in sources(view)]
    if "differences" in view and any(each["measured_step_s"] for each in view["differences"]):
        maps.append(_difference_map(view))
    lines = [each for each in view["linearity"] if len(each["points"]) > 1]
    left = left_of(maps)
    wide = max([NARROWEST, *(each.width(left) for each in maps)])
    tall = TOP + sum(each.height + BETWEEN for each in maps) + (height_of(view, lines, wide) if lines else 0.0)
    draw = Drawing(width=wide, height=tall, title=title_of(view), description=_described(view))
    fitting(draw, LEFT, 26, title_of(view), 16.0, wide - LEFT - RIGHT, bold=True)
    for place, line in enumerate(standing(view)[:2]):
        fitting(draw, LEFT, 44 + 15 * place, line, 11.0, wide - LEFT - RIGHT, colour=MUTED)
    top = TOP
    for each in maps:
        each.put(draw, left, top)
        top += each.height + BETWEEN
    if lines:
        put_lines(draw, view, lines, left=LEFT + 44.0, top=top + 20.0)
    return draw


def map_of(view: Mapping[str, Any], source: str) -> dict[str, Any]:
    """What the map of one source is drawn from, as a page has it."""
    title = f"{TITLES[source]}: MFU of the best layout by model and size"
    return {"panel": _map(view, source), "title": title, "description": _described(view)}


def difference_map_of(view: Mapping[str, Any]) -> dict[str, Any]:
    """What the map of differences is drawn from."""
    return {"panel": _difference_map(view), "title": "Measured over predicted, by model and size", "description": _described(view)}


def _map(view: Mapping[str, Any], source: str) -> Panel:
    rows, nodes = rows_of(view, source), by_nodes(view)
    top = max((each["mfu_ratio"] or 0.0 for each in view["cells"]), default=0.0)
    scale = ("shares", ((0.0, "MFU 0 %"), (1.0, percent(top))))
    return Panel(
        title=f"{TITLES[source]}: MFU, memory and layout", names=tuple(names_of(rows).values()),
        noun="nodes" if nodes else "devices",
        columns=tuple(_heads(view)), patches=_patches(view, rows, lambda cell: _cell_patch(cell, top)), scale=scale,
    )


def _heads(view: Mapping[str, Any]) -> list[str]:
    """The headings of all columns of the atlas: every map has the same."""
    rows: Rows = {("", ""): {each["devices"]: each for each in view["cells"]}}
    return [head_of(rows, each, nodes=by_nodes(view)) for each in columns_of(rows)]


def _patches(
    view: Mapping[str, Any], rows: Rows, look: Callable[[Mapping[str, Any]], Patch | None]
) -> dict[tuple[int, int], Patch]:
    columns = sorted({each["devices"] for each in view["cells"]})
    found = {}
    for row, cells in enumerate(rows.values()):
        for column, devices in enumerate(columns):
            if devices in cells and (patch := look(cells[devices])) is not None:
                found[row, column] = patch
    return found


def _cell_patch(cell: Mapping[str, Any], top: float) -> Patch:
    """What a cell says: MFU, memory, the degrees, accumulation and sharding, and what is recomputed."""
    where = f"{cell['series']} on {cell['devices']:,} devices"
    if cell["label"] is None:
        empty = _empty(cell)
        return Patch(colour=EMPTY, faint=True, lines=empty, value=f"{where}: {' '.join(words for words, _, _ in empty)}")
    held = cell["memory_reserved_bytes"] or cell["memory_peak_bytes"]
    lines: list[Said] = [(mfu_word(cell), 14.0, True)]
    lines += [(f"{held / GIB:.0f} GiB", SMALL, False)] if held else []
    lines += [(words, SMALL, False) for words in layout_words(cell["layout"] or {})]
    colour = EMPTY if cell["mfu_ratio"] is None else ramp(share_of(cell["mfu_ratio"], top))
    figures = [f"{mfu_word(cell)} MFU", seconds(cell["step_s"]) + " a step" if cell["step_s"] else "",
               f"{held / GIB:.1f} GiB" if held else "", cell["label"],
               f"{cell['global_batch_sequences']:,} packs of {cell['sequence_tokens']:,} tokens" if cell["samples"] else ""]
    return Patch(colour=colour, lines=tuple(lines[:4]), dashed=cell["grade"] == "coarse",
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

    def look(cell: Mapping[str, Any]) -> Patch | None:
        found = known.get((cell["series"], cell["device"], cell["devices"]))
        return None if found is None else _difference_patch(found)

    scale = ("ratios", ((0.0, "half"), (0.5, "as predicted"), (1.0, "twice")))
    return Panel(
        title="Best measured step over the one predicted for its layout", names=tuple(names_of(rows).values()),
        noun="nodes" if by_nodes(view) else "devices", columns=tuple(_heads(view)), patches=_patches(view, rows, look), scale=scale,
    )


def _difference_patch(found: Mapping[str, Any]) -> Patch | None:
    if found["verdict"] == "neither":
        return Patch(colour=EMPTY, faint=True, lines=(("empty in both", SMALL, False),))
    if found["measured_step_s"] is None:
        return None
    predicted = found["measured_layout_step_s"]
    if predicted is None:
        return Patch(colour=EMPTY, faint=True, lines=((VERDICTS[found["verdict"]], SMALL, False),))
    ratio = found["measured_step_s"] / predicted
    words = {"same": "same layout", "within": "layouts not told apart", "other": "another layout"}.get(found["verdict"], "")
    return Patch(
        colour=diverging(ratio),
        lines=(
            (f"x {ratio:.2f}", 14.0, True), (f"{seconds(found['measured_step_s'])} / {seconds(predicted)}", SMALL, False),
            (words, SMALL, False),
        ),
        value=f"{found['series']} on {found['devices']:,} devices: measured {seconds(found['measured_step_s'])}, predicted "
              f"{seconds(predicted)} for that layout; {words}",
    )


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
