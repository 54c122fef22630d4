"""The report of ``explain``: the figures of a layout, then why they are what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from meshwright.explain import sections
from meshwright.report.constants import constants_table
from meshwright.report.headline import case_header, headline, standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.explain import Explanation


def explanation_report(
    case: Case, estimate: Estimate, explanation: Explanation, *, everything: bool = False
) -> Iterator[Any]:
    """The figures of the layout and the explanation section by section; ``everything``: all rules and constants as well."""
    yield from case_header(case)
    yield from headline(estimate)
    yield from standing(case, estimate)
    for section in sections(explanation, all_rules=everything):
        yield Padding(Text(section.title, style="bold"), (1, 0, 0, 0))
        for line in section.lines:
            words, *below = line.split("\n")
            yield Padding(Text(words), (0, 0, 0, 2))
            yield from (Padding(Text(each, style="dim"), (0, 0, 0, 6)) for each in below)
    if everything:
        yield from constants_table(case.calibration, estimate)
