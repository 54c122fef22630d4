"""The answer of ``explain``: the figures of a layout, then why they are what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.explain import sections
from meshwright.report.blocks import Section, line
from meshwright.report.constants import constants_section
from meshwright.report.headline import case_header, headline, standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.verbs.explain import ExplainAnswer
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.explain import Explanation
    from meshwright.report.blocks import Told


def told_of(answer: ExplainAnswer, *, everything: bool = False) -> tuple[Told, ...]:
    """What a terminal prints; ``everything``: all rules and constants as well."""
    return tuple(explanation_report(answer.given.case, answer.estimate, answer.explanation, everything=everything))


def explanation_report(
    case: Case, estimate: Estimate, explanation: Explanation, *, everything: bool = False
) -> Iterator[Told]:
    """The figures of the layout and the explanation section by section."""
    yield from case_header(case)
    yield from headline(estimate)
    yield from standing(case, estimate)
    for each in sections(explanation, all_rules=everything):
        blocks = []
        for said in each.lines:
            first, *below = said.split("\n")
            blocks += [line(first, indent=2), *(line(more, kind="small", indent=6) for more in below)]
        yield Section(title=each.title, blocks=tuple(blocks))
    if everything:
        yield constants_section(case.calibration, estimate)
