"""The page of ``atlas``: the maps, linearity, what predicted and measured have apart, and every cell as a table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from meshwright.report.atlas import atlas_report, size_word, sources, standing, tally, title_of
from meshwright.report.atlas import by_nodes as in_nodes
from meshwright.report.atlas_picture import difference_drawing, linearity_drawing, maps_drawing
from meshwright.report.blocks import (
    NARROW,
    WIDE,
    Block,
    Chart,
    Folded,
    Page,
    Paragraph,
    Section,
    Tile,
    Tiles,
    drawn_twice,
    words,
)
from meshwright.report.page.reading import sections_of
from meshwright.report.pages.common import notes_of, page
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.api.verbs.atlas import AtlasAnswer
    from meshwright.report.svg import Drawing

CAPTION = (
    "MFU of the best layout, its memory on the fullest device, and the layout: DP, TP, PP and so on; mb sequences of a micro-batch,"
    " acc micro-batches of a step. A dashed frame: coarse, by the grid of layouts alone."
)


def page_of(answer: AtlasAnswer) -> Page:
    """The page of an answer."""
    view = answer.to_json()
    _, told = sections_of(atlas_report(view))
    maps: list[Block] = [
        _map(partial(maps_drawing, view, source), CAPTION if not place else "")
        for place, source in enumerate(sources(view))
    ]
    sections = [Section(title="Maps", blocks=tuple(maps))]
    if any(each["measured_step_s"] for each in view.get("differences", ())):
        caption = "The best measured step over the one that is predicted for its layout; blue is faster than predicted, red slower."
        sections.append(Section(title="Measured over predicted", blocks=(
            Paragraph(words=words(tally(view))), _map(partial(difference_drawing, view), caption),
        )))
    if any(len(each["points"]) > 1 for each in view["linearity"]):
        sections.append(Section(title="Linearity", blocks=(
            drawn_twice(lambda width: linearity_drawing(view, width), caption="Against the fewest whole nodes of the same row."),
        )))
    drawn = [each for each in told if _is_drawn(each)]
    sections += [each for each in told if not _is_drawn(each)]
    sections.append(Section(title="As tables", blocks=tuple(Folded(title=each.title, blocks=each.blocks) for each in drawn)))
    return page(
        "atlas", title_of(view), subtitle="; ".join(standing(view)), verdict="good" if answer.ok else "bad",
        first=(_tiles(view), *notes_of([f"note: {each}" for each in view["notes"]])), sections=sections,
    )


def _map(draw: Callable[..., Drawing], caption: str) -> Chart:
    """A map, as a list on a phone; a broad one may be magnified."""
    wide = draw()
    return Chart(wide=wide, narrow=draw(NARROW), caption=caption, zoom=wide.width > WIDE)


def _is_drawn(section: Section) -> bool:
    """Whether a section of the report says what the maps and the chart show."""
    return section.title.endswith((" cells", "Linearity", "utilization")) and not section.title.startswith("Empty")


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
