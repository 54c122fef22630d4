"""Two runs side by side, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Run as Words
from meshwright.report.blocks import Section, line, table
from meshwright.words import percent, plural, seconds, signed, speed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.verbs.compare import CompareAnswer
    from meshwright.diagnose.run import Run
    from meshwright.report.blocks import Told

MOST = 20


def compare_report(answer: CompareAnswer) -> Iterator[Told]:
    """The steps, the parts with why they changed, the settings that differ."""
    found = answer.comparison
    yield line(f"A  {_figures(found.a)}")
    change = "" if found.step_change_ratio is None else f"   {signed(found.step_change_ratio)} a step"
    yield line(Words(f"B  {_figures(found.b)}{change}", bold=True))
    if rows := [(each.part, _time(each.a_s), _time(each.b_s), each.why) for each in found.parts if each.a_s or each.b_s]:
        yield table(("part", "A", "B", "why"), rows, right=[1, 2], whole=[0, 1, 2], look="headed", indent=0, above=True)
    if found.settings_changed:
        yield Section(title=f"{plural(len(found.settings_changed), 'setting')} that differ", blocks=(
            *(line(f"{one.key}: {one.a or 'unset'} -> {one.b or 'unset'}", indent=2) for one in found.settings_changed[:MOST]),
        ))
    if len(found.settings_changed) > MOST:
        yield line(f"and {len(found.settings_changed) - MOST} more: --json has all", kind="small", indent=2)
    for note in found.notes:
        yield line(f"note: {note}", kind="small")


def _figures(run: Run) -> str:
    pieces = [run.log.file if run.log is not None else next((each.file for each in run.traces), "a run")]
    if run.step_s is not None:
        pieces.append(f"{seconds(run.step_s)} a step")
    if run.tokens_per_s_per_device is not None:
        pieces.append(f"{speed(run.tokens_per_s_per_device)} tokens/s/device")
    if run.mfu_ratio is not None:
        pieces.append(f"MFU {percent(run.mfu_ratio)}")
    return "   ".join(pieces)


def _time(value_s: float | None) -> str:
    return "?" if value_s is None else seconds(value_s)
