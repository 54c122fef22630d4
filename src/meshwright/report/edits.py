"""Changes to a user's files: a coloured diff, and what each change means for a run that resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from meshwright.text import visible
from meshwright.words import gib, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.api.views.edits import NearestPlan
    from meshwright.frameworks.editing import Edited

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_RESUME = {"same checkpoint": "green", "reshard": "yellow", "convert": "yellow", "not possible": "red"}


def edits_report(edited: Edited) -> Iterator[RenderableType]:
    """The diff, a table of changes, and what they mean together."""
    for message in edited.messages:
        yield Text(str(message), style="yellow")
    if not edited.edits:
        yield Text("nothing to change: the files already have this layout")
        return
    yield diff_text(edited.diff)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("setting", "from", "to", "resume"):
        table.add_column(heading)
    for edit in edited.edits:
        resume = Text(edit.meaning.resume, style=_RESUME[edit.meaning.resume])
        table.add_row(edit.key, _word(edit.before), _word(edit.after), resume)
    yield table
    yield Text.assemble(
        "a run that resumes: ", (edited.meaning.resume, _RESUME[edited.meaning.resume]), f" ({edited.meaning.reason})"
    )


def diff_text(diff: str) -> Text:
    """A unified diff in its colours; a plain text where colours are off."""
    text = Text(no_wrap=True)
    for line in diff.splitlines(keepends=True):
        heading = line.startswith(("---", "+++"))
        text.append(line, style="bold" if heading else _COLOURS.get(line[:1], ""))
    return text


def _word(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if value is True:
        return "on"
    return visible(" ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value))


def nearest_report(plan: NearestPlan) -> Iterator[RenderableType]:
    """The plan that stands in for the saved one, each key that differs with its reason, and what that costs."""
    if not plan.changes:
        yield Text("the plan as it is: nothing had to change")
        return
    yield Text.assemble("nearest plan  ", (plan.estimate.label, "bold"))
    for each in plan.changes:
        yield Text.assemble(f"  {each.field} {_knob(each.before)} -> {_knob(each.after)}  ", (each.why, "dim"))
    more = "more" if plan.memory_change_bytes >= 0 else "less"
    loss = f"{100 * plan.step_change_ratio:+z.1f} %, {gib(abs(plan.memory_change_bytes))} {more} memory"
    yield Text(f"{seconds(plan.estimate.step_s)} a step: {loss} than the saved plan, both by the cost model of this framework")


def _knob(value: object) -> str:
    """A value of a layout's key."""
    return "off" if value is False else _word(value) or "none"
