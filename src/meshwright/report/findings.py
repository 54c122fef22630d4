"""Findings about files: as the JSON of the contract, and as a list for people, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from meshwright.api.views.findings import simple
from meshwright.catalog.guides import cited
from meshwright.text import visible
from meshwright.words import gib_of, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.check import Checked
    from meshwright.frameworks.settings import Finding, Severity

STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "advice": "cyan"}
PLURALS: dict[Severity, str] = {"error": "errors", "warning": "warnings", "advice": "pieces of advice"}
NO_FILE = ("layout", "--claim")
"""Places that no file has: figures of them are in the words."""
_LONG = 40
"""Characters of a value beyond which the words are left to say it."""


def findings_report(checked: Checked) -> Iterator[RenderableType]:
    """Every finding with its place, what would be right and who says so; a prediction; a last line that sums up."""
    for each in checked.findings:
        yield from _finding(each)
    yield from _prediction(checked)
    for line in checked.skipped:
        yield Text(f"not checked: {line}", style="dim")
    yield _summary(checked)


def _finding(each: Finding) -> Iterator[RenderableType]:
    """Place and words, then what the files say, what would be right, and the source."""
    head = Text.assemble((f"{each.severity:<8}", STYLES[each.severity]), (each.message.id, "bold"))
    if each.message.path:
        head.append(f"  {each.message.path}", style="cyan")
    yield head
    yield Padding(Text(each.message.words), (0, 0, 0, 8))
    tail = Text()
    if each.message.path and not each.message.path.startswith(NO_FILE) and _short(each.value) and _short(each.expected):
        tail.append(f"is {_short(each.value)}; right would be {_short(each.expected)}   ")
    if each.source:
        tail.append(cited(each.source, *_rules(each)), style="dim")
    if tail:
        yield Padding(tail, (0, 0, 0, 8))


def _rules(each: Finding) -> list[str]:
    """The rule of the guides that a finding is about, and those that it sets against it."""
    if not each.message.id.startswith("guide."):
        return []
    return [each.message.id.removeprefix("guide."), *str(each.message.values.get("sides", "")).split()]


def _short(value: object) -> str:
    """A value or what would be right, in a few characters."""
    if value is None or isinstance(value, Mapping):
        return ""
    if isinstance(value, float):
        return f"{value:z,.0f}" if abs(value) >= 1000 else f"{value:z.4g}"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = f"{value:,}" if isinstance(value, int) else visible(str(simple(value)))
    return text if len(text) <= _LONG else ""


def _prediction(checked: Checked) -> Iterator[RenderableType]:
    """The layout and its main figures, where it could be predicted."""
    found = checked.estimate
    if found is None:
        return
    words = (
        f"{seconds(found.step_s)} a step, {found.tokens_per_s_per_device:,.0f} tokens/s/device, MFU {percent(found.mfu_ratio)},"
        f" {gib_of(found.memory_reserved_bytes, found.memory_capacity_bytes)}, bubble {percent(found.bubble_ratio)}"
    )
    yield Padding(Text.assemble("predicted  ", (found.label, "bold"), f"  {words}"), (1, 0, 0, 0))


def _summary(checked: Checked) -> Text:
    """``not ok: 3 errors, 2 warnings``."""
    counts = Counter(each.severity for each in checked.findings)
    words = ", ".join(plural(counts[name], "piece of advice" if name == "advice" else name, PLURALS[name])
                      for name in STYLES if counts[name])
    style = "bold green" if checked.ok else "bold red"
    return Text(f"{'ok' if checked.ok else 'not ok'}: {words or 'nothing found'}", style=style)
