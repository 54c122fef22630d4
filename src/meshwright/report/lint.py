"""What the linter found, file by file; a change as a diff; one rule, explained."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from meshwright.report.blocks import DIFFERENCE, Code, Run, line
from meshwright.report.findings import TONES, summary_words
from meshwright.text import place, visible
from meshwright.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.verbs.lint import LintAnswer
    from meshwright.lint import Found, Linted
    from meshwright.lint.explained import Explained
    from meshwright.report.blocks import Block


def lint_report(answer: LintAnswer) -> Iterator[Block]:
    """Every finding under its file, what was mended, and a last line that sums up."""
    if answer.explained is not None:
        yield from _rule(answer.explained)
    if answer.linted is None:
        return
    for file, found in groupby(answer.linted.findings, key=lambda each: each.file):
        yield line(Run(place(file), bold=True))
        for each in found:
            yield _finding(each)
    if answer.diff:
        yield Code(text=visible(answer.changes, keep="\n").rstrip("\n"), name=DIFFERENCE)
    for path in answer.written:
        yield line("mended  ", Run(place(path), bold=True))
    if answer.saved:
        yield line("written  ", Run(place(answer.saved), bold=True))
    yield _summary(answer.linted, fixed=bool(answer.written))


def _finding(each: Found) -> Block:
    """``14:5  warning  step.item  ... [--fix]``."""
    cell = f"cell {each.cell}, " if each.cell else ""
    return line(
        Run(f"{cell}{each.line}:{each.column}".ljust(9), "accent"),
        Run(f"{each.severity:<8}", TONES[each.severity], bold=each.severity == "error"), Run(each.id, bold=True),
        f"  {each.message.words}", *([Run("  [--fix mends it]", "good")] if each.edits else []), indent=2,
    )


def _rule(rule: Explained) -> Iterator[Block]:
    """A rule: what, why, who says so, examples, and what mends it."""
    about = "speed and memory" if rule.purpose == "both" else rule.purpose
    yield line(Run(rule.id, bold=True), f"  {rule.severity}, about {about}, looks at {rule.looks_at}")
    yield line(rule.why, indent=2)
    yield line(f"source: {rule.source}", kind="small", indent=2)
    for title, code in (("triggers it", rule.bad), ("does not", rule.good)):
        if code:
            yield line(Run(title, bold=True))
            yield line(code.rstrip("\n"), indent=4)
    yield line(f"--fix writes: {rule.fix}" if rule.fix else "--fix leaves it to you")
    yield line(f"silence it: # meshwright: ignore[{rule.id}]", kind="small")


def _summary(linted: Linted, *, fixed: bool) -> Block:
    """``not ok: 1 error, 2 warnings in 14 files, 3 of them mended by --fix``."""
    safe = sum(bool(each.edits) for each in linted.findings)
    more = f"; --fix mends {safe:,} of them" if safe and not fixed else ""
    text = f"{'ok' if linted.ok else 'not ok'}: {summary_words(linted)} in {plural(linted.files, 'file')}{more}"
    return line(Run(text, "good" if linted.ok else "bad", bold=True))
