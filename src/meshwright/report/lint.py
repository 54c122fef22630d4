"""What the linter found, file by file; a change as a diff; one rule, explained."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from meshwright.report.findings import PLURALS, STYLES
from meshwright.text import place, visible
from meshwright.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.api.verbs.lint import LintAnswer
    from meshwright.lint import Found, Linted
    from meshwright.lint.explained import Explained


def lint_report(answer: LintAnswer) -> Iterator[RenderableType]:
    """Every finding under its file, what was mended, and a last line that sums up."""
    if answer.explained is not None:
        yield from _rule(answer.explained)
    if answer.linted is None:
        return
    for file, found in groupby(answer.linted.findings, key=lambda each: each.file):
        yield Text(place(file), style="bold")
        for each in found:
            yield Padding(_finding(each), (0, 0, 0, 2))
    if answer.diff:
        yield Text(visible(answer.changes, keep="\n").rstrip("\n"))
    for path in answer.written:
        yield Text.assemble("mended  ", (place(path), "bold"))
    if answer.saved:
        yield Text.assemble("written  ", (place(answer.saved), "bold"))
    yield _summary(answer.linted, fixed=bool(answer.written))


def _finding(each: Found) -> Text:
    """``14:5  warning  step.item  ... [--fix]``."""
    cell = f"cell {each.cell}, " if each.cell else ""
    line = Text.assemble(
        (f"{cell}{each.line}:{each.column}".ljust(9), "cyan"),
        (f"{each.severity:<8}", STYLES[each.severity]),
        (each.id, "bold"),
        f"  {each.message.words}",
    )
    return line.append("  [--fix mends it]", style="green") if each.edits else line


def _rule(rule: Explained) -> Iterator[RenderableType]:
    """A rule: what, why, who says so, examples, and what mends it."""
    yield Text.assemble(
        (rule.id, "bold"),
        f"  {rule.severity}, about {'speed and memory' if rule.purpose == 'both' else rule.purpose}, looks at {rule.looks_at}",
    )
    yield Padding(Text(rule.why), (0, 0, 0, 2))
    yield Padding(Text(f"source: {rule.source}", style="dim"), (0, 0, 0, 2))
    for title, code in (("triggers it", rule.bad), ("does not", rule.good)):
        if code:
            yield Text(title, style="bold")
            yield Padding(Text(code.rstrip("\n")), (0, 0, 0, 4))
    yield Text(f"--fix writes: {rule.fix}" if rule.fix else "--fix leaves it to you")
    yield Text(f"silence it: # meshwright: ignore[{rule.id}]", style="dim")


def _summary(linted: Linted, *, fixed: bool) -> Text:
    """``not ok: 1 error, 2 warnings in 14 files, 3 of them mended by --fix``."""
    counts = Counter(each.severity for each in linted.findings)
    words = ", ".join(
        plural(counts[name], "piece of advice" if name == "advice" else name, PLURALS[name]) for name in STYLES if counts[name]
    )
    safe = sum(bool(each.edits) for each in linted.findings)
    more = f"; --fix mends {safe:,} of them" if safe and not fixed else ""
    text = f"{'ok' if linted.ok else 'not ok'}: {words or 'nothing found'} in {plural(linted.files, 'file')}{more}"
    return Text(text, style="bold green" if linted.ok else "bold red")
