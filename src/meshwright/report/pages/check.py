"""The page of ``check``: findings, the worst first, each with its place, what would be right and who says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.report.blocks import Page, Paragraph, Section, words
from meshwright.report.findings import PLURALS, STYLES, findings_report
from meshwright.report.page.reading import blocks_of
from meshwright.report.pages.common import memory_section, page, tiles, time_section
from meshwright.words import plural

if TYPE_CHECKING:
    from meshwright.api.verbs.check import CheckAnswer
    from meshwright.check import Checked


def page_of(answer: CheckAnswer) -> Page:
    """The page of an answer."""
    checked = answer.checked
    found = checked.estimate
    counts = {name: sum(each.severity == name for each in checked.findings) for name in STYLES}
    said = ", ".join(plural(count, "piece of advice" if name == "advice" else name, PLURALS[name])
                     for name, count in counts.items() if count)
    skipped = tuple(Paragraph(words=words(f"not checked: {line}"), kind="small") for line in checked.skipped)
    return page(
        "check", f"{'Ok' if answer.ok else 'Not ok'}: {said or 'nothing found'}", verdict="good" if answer.ok else "bad",
        subtitle="" if found is None else f"predicted as {found.label}",
        first=(*(() if found is None else (tiles(found),)), *skipped),
        sections=(
            *(_of(checked, name, PLURALS[name].capitalize()) for name in STYLES),
            *(() if found is None else (memory_section(found), time_section(found))),
        ),
    )


def _of(checked: Checked, severity: str, title: str) -> Section:
    """Findings of one severity, as the terminal tells them."""
    own = tuple(each for each in checked.findings if each.severity == severity)
    checked = replace(checked, findings=own, estimate=None, skipped=())
    return Section(title=title, blocks=blocks_of(findings_report(checked))[:-1])
