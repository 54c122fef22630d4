"""Changes to a user's files: a coloured diff, and what each change means for a run that resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import DIFFERENCE, Block, Code, Run, Tone, line, table
from meshwright.text import visible
from meshwright.words import gib, seconds, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.views.edits import NearestPlan
    from meshwright.frameworks.editing import Edited

RESUME: dict[str, Tone] = {"same checkpoint": "good", "reshard": "warn", "convert": "warn", "not possible": "bad"}
"""What a run that resumes can use -> its tone."""


def edits_report(edited: Edited) -> Iterator[Block]:
    """The diff, a table of changes, and what they mean together."""
    for message in edited.messages:
        yield line(Run(str(message), "warn"))
    if not edited.edits:
        yield line("nothing to change: the files already have this layout")
        return
    yield Code(text=edited.diff.rstrip("\n"), name=DIFFERENCE)
    rows = [
        (edit.key, _word(edit.before), _word(edit.after), Run(edit.meaning.resume, RESUME[edit.meaning.resume]))
        for edit in edited.edits
    ]
    yield table(["setting", "from", "to", "resume"], rows, look="headed", indent=0)
    yield line("a run that resumes: ", Run(edited.meaning.resume, RESUME[edited.meaning.resume]), f" ({edited.meaning.reason})")


def _word(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if value is True:
        return "on"
    return visible(" ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value))


def nearest_report(plan: NearestPlan) -> Iterator[Block]:
    """The plan that stands in for the saved one, each key that differs with its reason, and what that costs."""
    if not plan.changes:
        yield line("the plan as it is: nothing had to change")
        return
    yield line("nearest plan  ", Run(plan.estimate.label, "strong"))
    for each in plan.changes:
        yield line(f"{each.field} {_knob(each.before)} -> {_knob(each.after)}  ", Run(each.why, "dim"), indent=2)
    more = "more" if plan.memory_change_bytes >= 0 else "less"
    loss = f"{signed(plan.step_change_ratio)}, {gib(abs(plan.memory_change_bytes))} {more} memory"
    yield line(f"{seconds(plan.estimate.step_s)} a step: {loss} than the saved plan, both by the cost model of this framework")
    if plan.faster is not None:
        more = f"with {plan.faster_knobs} knobs moved instead of {plan.knobs}: `meshwright plan` with this framework finds it"
        yield line("far faster  ", Run(plan.faster.label, "strong"), f"  {seconds(plan.faster.step_s)} a step {more}")


def _knob(value: object) -> str:
    """A value of a layout's key."""
    return "off" if value is False else _word(value) or "none"
