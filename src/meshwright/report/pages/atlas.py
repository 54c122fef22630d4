"""The page of ``atlas``: the maps, linearity, what predicted and measured have apart, and every cell as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report.atlas import by_nodes as in_nodes
from meshwright.report.atlas import size_word, sources, standing, tally, title_of
from meshwright.report.atlas_panel import left_of
from meshwright.report.atlas_picture import difference_map_of, map_of
from meshwright.report.atlas_told import (
    cells_section,
    difference_section,
    empty_section,
    linearity_section,
    map_section,
    told_of,
)
from meshwright.report.blocks import WIDE, Block, Folded, Plot, Section, Tile, Tiles, View, line
from meshwright.report.page.plots import plot
from meshwright.report.pages.common import notes_of, page
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.api.verbs.atlas import AtlasAnswer
    from meshwright.report.atlas_panel import Panel

CAPTION = (
    "MFU of the best layout, its memory on the fullest device, and the layout: DP, TP, PP and so on; mb sequences of a micro-batch,"
    " acc micro-batches of a step. A dashed frame: coarse, by the grid of layouts alone."
)


def page_of(answer: AtlasAnswer) -> View:
    """The page of an answer."""
    view = answer.to_json()
    maps: list[Block] = [
        _map(map_of(view, source), CAPTION if not place else "") for place, source in enumerate(sources(view))
    ]
    sections = [Section(title="Maps", blocks=tuple(maps))]
    if any(each["measured_step_s"] for each in view.get("differences", ())):
        caption = "The best measured step over the one that is predicted for its layout; blue is faster than predicted, red slower."
        blocks = (line(tally(view)), _map(difference_map_of(view), caption))
        sections.append(Section(title="Measured over predicted", blocks=blocks))
    if lines := [each for each in view["linearity"] if len(each["points"]) > 1]:
        cells = [{name: each[name] for name in ("devices", "nodes", "devices_per_node")} for each in view["cells"]]
        caption = "Against the fewest whole nodes of the same row."
        chart = plot("linearity", view={"cells": cells, "linearity": lines}, caption=caption)
        sections.append(Section(title="Linearity", blocks=(chart,)))
    sections += [*([difference_section(view)] if "differences" in view else []), empty_section(view)]
    tables = [
        *(map_section(view, source) for source in sources(view)), *(cells_section(view, source) for source in sources(view)),
        linearity_section(view),
    ]
    sections.append(Section(title="As tables", blocks=tuple(
        Folded(title=each.title, blocks=each.blocks) for each in tables if each.blocks
    )))
    return page(
        "atlas", title_of(view), subtitle="; ".join(standing(view)), verdict="good" if answer.ok else "bad", told=told_of(view),
        first=(_tiles(view), *notes_of([f"note: {each}" for each in view["notes"]])), sections=sections,
    )


def _map(data: Mapping[str, Any], caption: str) -> Plot:
    """A map, as a list on a phone; a broad one may be magnified."""
    panel: Panel = data["panel"]
    return plot("map", caption=caption, zoom=panel.width(left_of([panel])) > WIDE, **data)


def _tiles(view: Mapping[str, Any]) -> Tiles:
    """What the atlas comes to."""
    cells = view["cells"]
    ran = [each for each in cells if each["label"] is not None]
    found = [Tile(name="cells with a layout", value=f"{len(ran)} of {len(cells)}",
                  remark=f"{view['coarse']} coarse" if view["coarse"] else "")]
    best = max((each for each in ran if each["mfu_ratio"]), key=lambda each: each["mfu_ratio"], default=None)
    if best is not None:
        number = size_word(best, nodes=in_nodes(view))
        where = f"{best['series']} on {number} {'node' if in_nodes(view) else 'device'}{'s' * (number != '1')}"
        found.append(Tile(name="highest MFU", value=percent(best["mfu_ratio"]), remark=f"{where}, {best['source']}"))
    compared = [each["verdict"] for each in view.get("differences", ()) if each["verdict"] in {"same", "within", "other"}]
    if compared:
        alike = sum(each != "other" for each in compared)
        held = [each["holds"] for each in view["differences"] if each["holds"] is not None]
        found += [
            Tile(name="same best layout", value=f"{alike} of {len(compared)}",
                 remark=f"{compared.count('same')} exactly, the others within the model's interval"),
            Tile(name="measured within its interval", value=f"{sum(held)} of {len(held)}"),
        ]
    return Tiles(tiles=tuple(found))
