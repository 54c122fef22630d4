"""Findings about files: as the JSON of the contract, and as a list for people, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshwright.api.views.findings import simple
from meshwright.catalog.guides import cited
from meshwright.report.blocks import Block, Run, Tone, line
from meshwright.text import visible
from meshwright.words import gib_of, percent, plural, seconds, speed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check import Checked
    from meshwright.frameworks.settings import Finding, Severity
    from meshwright.lint import Linted

TONES: dict[Severity, Tone] = {"error": "bad", "warning": "warn", "advice": "accent"}
PLURALS: dict[Severity, str] = {"error": "errors", "warning": "warnings", "advice": "pieces of advice"}
NO_FILE = ("layout", "--claim")
"""Places that no file has: figures of them are in the words."""
_LONG = 40
"""Characters of a value beyond which the words are left to say it."""


def findings_report(checked: Checked) -> Iterator[Block]:
    """Every finding with its place, what would be right and who says so; a prediction; a last line that sums up."""
    for each in checked.findings:
        yield from finding_lines(each)
    yield from _prediction(checked)
    for skipped in checked.skipped:
        yield line(f"not checked: {skipped}", kind="small")
    yield line(Run(f"{'ok' if checked.ok else 'not ok'}: {summary_words(checked)}", "good" if checked.ok else "bad", bold=True))


def finding_lines(each: Finding) -> Iterator[Block]:
    """Place and words, then what the files say, what would be right, and the source."""
    place = [Run(f"  {each.message.path}", "accent")] if each.message.path else []
    severity = Run(each.severity, TONES[each.severity], badge=True, bold=each.severity == "error")
    yield line(severity, Run(each.message.id, "strong"), *place, kind="head")
    yield line(each.message.words, indent=8)
    tail: list[str | Run] = []
    if each.message.path and not each.message.path.startswith(NO_FILE) and _short(each.value) and _short(each.expected):
        tail.append(f"is {_short(each.value)}; right would be {_short(each.expected)}   ")
    if each.source:
        tail.append(Run(cited(each.source, *_rules(each)), "dim"))
    if tail:
        yield line(*tail, indent=8)


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


def _prediction(checked: Checked) -> Iterator[Block]:
    """The layout and its main figures, where it could be predicted."""
    found = checked.estimate
    if found is None:
        return
    words = (
        f"{seconds(found.step_s)} a step, {speed(found.tokens_per_s_per_device)} tokens/s/device, MFU {percent(found.mfu_ratio)},"
        f" {gib_of(found.memory_reserved_bytes, found.memory_capacity_bytes)}, bubble {percent(found.bubble_ratio)}"
    )
    yield line("predicted  ", Run(found.label, "strong"), f"  {words}", above=True)


def summary_words(checked: Checked | Linted) -> str:
    """``3 errors, 2 warnings``."""
    counts = Counter(each.severity for each in checked.findings)
    return ", ".join(plural(counts[name], "piece of advice" if name == "advice" else name, PLURALS[name])
                     for name in TONES if counts[name]) or "nothing found"
