"""A replay as tables: each trial, its prediction beside what was recorded, and what it came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.report.rehearse import terse
from meshwright.words import percent, plural, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    View = Mapping[str, Any]

SHOWN = 3


def replay_report(view: View) -> Iterator[RenderableType]:
    """The cell, its trials, and the sentence."""
    yield Text(f"{view['cell']}: {plural(view['layouts'], 'layout')}, {view['measured']} of them measured", style="bold")
    seen = f"; {view['known_configurations']} of them stand in the corpus that the shipped calibration was fitted to" \
        if view["known_configurations"] else ""
    yield Text(f"Sampler {view['sampler']}, calibration {view['calibration']}{seen}", style="dim")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name in ("trial", "layout", "predicted", "recorded", "tokens/s/device", "regret so far"):
        table.add_column(name, justify="left" if name == "layout" else "right")
    for count, (each, regret) in enumerate(zip(view["runs"], view["regret_by_trial"], strict=True), start=1):
        ran = each["step_s"] is not None
        table.add_row(
            str(count), terse(each["label"]), seconds(each["predicted_s"]), seconds(each["step_s"]) if ran else each["status"],
            rate(each["tokens_per_s_per_device"]) if ran else "", percent(regret),
        )
    yield Padding(table, (1, 0, 1, 2))
    if len(view["seeds"]) > 1:
        near = [each["trials_to_2_percent"] or "never" for each in view["seeds"]]
        yield Text(f"Trials to within 2 % of the best, by seed: {', '.join(map(str, near))}")
    yield Text(view["verdict"], style="bold")
    if len(view["cells"]) > 1:
        others = [each for each in view["cells"] if each != view["cell"]]
        more = ", ..." if len(others) > SHOWN else ""
        yield Text(f"{plural(len(others), 'further cell')} in the file (--cell): {', '.join(others[:SHOWN])}{more}", style="dim")
