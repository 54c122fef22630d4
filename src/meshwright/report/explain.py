"""The report of ``explain``: the estimate, what it is made of, and the findings of ``meshwright.explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from meshwright.explain import sections
from meshwright.report.constants import constants_table
from meshwright.report.estimate import estimate_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.explain import Explanation


def explanation_report(case: Case, estimate: Estimate, explanation: Explanation) -> Iterator[RenderableType]:
    """The estimate, the constants behind it, then the explanation section by section."""
    yield from estimate_report(case, estimate)
    yield from constants_table(case.calibration, estimate)
    for section in sections(explanation):
        yield Padding(Text(section.title, style="bold"), (1, 0, 0, 0))
        for line in section.lines:
            words, *below = line.split("\n")
            yield Padding(Text(words), (0, 0, 0, 2))
            yield from (Padding(Text(each, style="dim"), (0, 0, 0, 6)) for each in below)


