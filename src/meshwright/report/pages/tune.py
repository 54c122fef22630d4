"""The page of ``tune``: trials for real, or among recorded runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Block, Page, Paragraph, Section, Tile, Tiles, drawn_twice, words
from meshwright.report.page.drawn import Ranged, ranges
from meshwright.report.page.plotted import Paired, pairs
from meshwright.report.page.reading import blocks_of
from meshwright.report.pages.common import page
from meshwright.report.pages.layouts import strip
from meshwright.report.pages.trials import ended, trials_page
from meshwright.report.rehearse import terse
from meshwright.report.replay import replay_report
from meshwright.words import percent, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.api.verbs.tune import TuneAnswer


def page_of(answer: TuneAnswer) -> Page:
    """The page of an answer."""
    view = answer.to_json()
    if answer.replayed is not None:
        return _replayed(view, answer.ok)
    found = trials_page("tune", view, answer.ok)
    if "verdict" not in view:
        return found
    return replace(found, first=(*found.first, Paragraph(words=words(view["verdict"]))))


def _says(block: Block, words_of_it: str) -> bool:
    return isinstance(block, Paragraph) and "".join(each.text for each in block.words) == words_of_it


def _replayed(view: Mapping[str, Any], ok: bool) -> Page:
    best = view["best_label"]
    rows = [
        Ranged(name=terse(each["label"]), value=each["step_s"], other=each["predicted_s"], bad=each["status"] != "ok",
               word=ended(each))
        for each in view["runs"]
    ]
    tiles = [Tile(name="trials", value=str(view["trials"]), remark=f"of {view['layouts']} recorded layouts")]
    if view["best_step_s"] is not None:
        tiles.insert(0, Tile(name="step, measured", value=seconds(view["best_step_s"])))
    if view["best_tokens_per_s_per_device"] is not None:
        tiles.insert(1, Tile(name="tokens/s/device", value=rate(view["best_tokens_per_s_per_device"])))
    regret = [(float(place), value) for place, value in enumerate(view["regret_by_trial"], start=1) if value is not None]
    return page(
        "tune", f"Best of the recorded: {seconds(view['best_step_s'])} a step" if best else "No recorded layout ended well",
        subtitle=view["cell"],
        verdict="good" if ok else "bad",
        first=(*([strip(best)] if best else []), Tiles(tiles=tuple(tiles)), Paragraph(words=words(view["verdict"]))),
        sections=(
            Section(title="Predicted against measured", blocks=(drawn_twice(
                lambda width: ranges(rows, width, title="Predicted and measured steps", words=seconds, label="step",
                                     of="measured", other="predicted"),
                caption="In the order of the trials.",
            ),) if rows else ()),
            Section(title="What the best so far loses", blocks=(drawn_twice(
                lambda width: pairs(
                    [Paired(name="", points=tuple(regret), joined=True)], width, title="Regret by trial", across="trial",
                    up="slower than the best recorded", words=(lambda value: f"{value:.0f}", percent), height=200.0,
                ),
            ),) if any(value for _, value in regret) else ()),
            Section(title="Trials", blocks=tuple(
                each for each in blocks_of(replay_report(view))[1:] if not _says(each, view["verdict"])
            )),
        ),
    )
