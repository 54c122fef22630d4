"""The page of ``tune``: trials for real, or among recorded runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Section, Tile, Tiles, View, line
from meshwright.report.page.drawn import Ranged
from meshwright.report.page.plots import plot
from meshwright.report.page.plotted import Paired
from meshwright.report.pages.common import page
from meshwright.report.pages.layouts import strip
from meshwright.report.pages.trials import ended, trials_page
from meshwright.report.rehearse import terse
from meshwright.report.replay import other_lines, replay_table, sampler_line, seed_lines, told_of
from meshwright.words import rate, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.api.verbs.tune import TuneAnswer


def page_of(answer: TuneAnswer) -> View:
    """The page of an answer."""
    view = answer.to_json()
    if answer.replayed is not None:
        return replayed_page(view, answer.ok)
    return trials_page("tune", view, answer.ok)


def replayed_page(view: Mapping[str, Any], ok: bool) -> View:
    """The page of a replay."""
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
        first=(*([strip(best)] if best else []), Tiles(tiles=tuple(tiles)), line(view["verdict"])),
        told=told_of(view),
        sections=(
            Section(title="Predicted against measured", blocks=(plot(
                "ranges", rows=rows, title="Predicted and measured steps", words="seconds", label="step", of="measured",
                other="predicted", caption="In the order of the trials.",
            ),) if rows else ()),
            Section(title="What the best so far loses", blocks=(plot(
                "pairs", kinds=[Paired(name="", points=tuple(regret), joined=True)], title="Regret by trial", across="trial",
                up="slower than the best recorded", words=("whole", "percent"), height=200.0,
            ),) if any(value for _, value in regret) else ()),
            Section(title="Trials", blocks=(sampler_line(view), replay_table(view), *seed_lines(view), *other_lines(view))),
        ),
    )
