"""The page of ``check``: findings, the worst first, each with its place, what would be right and who says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Section, View, line
from meshwright.report.findings import PLURALS, finding_lines, findings_report, summary_words
from meshwright.report.pages.common import memory_section, page, tiles, time_section

if TYPE_CHECKING:
    from meshwright.api.verbs.check import CheckAnswer


def page_of(answer: CheckAnswer) -> View:
    """The view of an answer."""
    checked = answer.checked
    found = checked.estimate
    skipped = tuple(line(f"not checked: {each}", kind="small") for each in checked.skipped)
    return page(
        "check", f"{'Ok' if answer.ok else 'Not ok'}: {summary_words(checked)}", verdict="good" if answer.ok else "bad",
        subtitle="" if found is None else f"predicted as {found.label}", told=tuple(findings_report(checked)),
        first=(*(() if found is None else (tiles(found),)), *skipped),
        sections=(
            *(
                Section(title=title.capitalize(), blocks=tuple(
                    block for each in checked.findings if each.severity == severity for block in finding_lines(each)
                ))
                for severity, title in PLURALS.items()
            ),
            *(() if found is None else (memory_section(found), time_section(found))),
        ),
    )
