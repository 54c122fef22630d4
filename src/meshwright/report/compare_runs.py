"""Two runs side by side, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.words import percent, plural, seconds, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.api.verbs.compare import CompareAnswer
    from meshwright.diagnose.run import Run

MOST = 20


def compare_report(answer: CompareAnswer) -> Iterator[RenderableType]:
    """The steps, the parts with why they changed, the settings that differ."""
    found = answer.comparison
    yield Text(f"A  {_figures(found.a)}")
    change = "" if found.step_change_ratio is None else f"   {signed(found.step_change_ratio)} a step"
    yield Text(f"B  {_figures(found.b)}{change}", style="bold")
    if found.parts:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("part", "A", "B", "why"):
            table.add_column(name, justify="right" if name in "AB" else "left")
        for each in found.parts:
            if each.a_s or each.b_s:
                table.add_row(each.part, _time(each.a_s), _time(each.b_s), each.why)
        yield Padding(table, (1, 0, 0, 0))
    if found.settings_changed:
        yield Padding(Text(f"{plural(len(found.settings_changed), 'setting')} that differ", style="bold"), (1, 0, 0, 0))
    for one in found.settings_changed[:MOST]:
        yield Text(f"  {one.key}: {one.a or 'unset'} -> {one.b or 'unset'}")
    if len(found.settings_changed) > MOST:
        yield Text(f"  and {len(found.settings_changed) - MOST} more: --json has all", style="dim")
    for note in found.notes:
        yield Text(f"note: {note}", style="dim")


def _figures(run: Run) -> str:
    pieces = [run.log.file if run.log is not None else next((each.file for each in run.traces), "a run")]
    if run.step_s is not None:
        pieces.append(f"{seconds(run.step_s)} a step")
    if run.tokens_per_s_per_device is not None:
        pieces.append(f"{run.tokens_per_s_per_device:,.0f} tokens/s/device")
    if run.mfu_ratio is not None:
        pieces.append(f"MFU {percent(run.mfu_ratio)}")
    return "   ".join(pieces)


def _time(value_s: float | None) -> str:
    return "?" if value_s is None else seconds(value_s)
