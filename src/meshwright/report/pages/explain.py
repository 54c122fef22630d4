"""The page of ``explain``: in short, then the guides' three steps, where MFU goes, the knobs, and what the guides say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.explain import sections
from meshwright.report.constants import constants_table
from meshwright.report.page.blocks import Block, Folded, Page, Paragraph, Run, Section, drawn_twice, words
from meshwright.report.page.drawn import series, waterfall
from meshwright.report.page.reading import blocks_of
from meshwright.report.pages.common import (
    asked_section,
    case_line,
    launch_section,
    memory_section,
    more_figures,
    page,
    tiles,
    time_section,
)
from meshwright.report.pages.knobs import knobs_of
from meshwright.report.pages.pipeline import pipeline_section
from meshwright.report.svg import GREEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.verbs.explain import ExplainAnswer
    from meshwright.explain.sections import Section as Explained

IN_SHORT, LOSSES = "In short", "Where the points between MFU and 100 go"
DRAWN = ("One step of each knob", "Better hardware or software")
"""Sections that the knobs' own stands for."""


def page_of(answer: ExplainAnswer) -> Page:
    """The page of an answer."""
    given, estimate, explanation = answer.given, answer.estimate, answer.explanation
    short, *rest = sections(explanation)
    every = {each.title: each for each in sections(explanation, all_rules=True)}
    return page(
        "explain", f"Why {estimate.label} is as fast as it is", subtitle=case_line(given.case),
        first=(
            tiles(estimate), *(Paragraph(words=words(line), kind="item") for line in short.lines),
            more_figures(given.case, estimate),
        ),
        sections=(
            *_told(rest, answer), knobs_of(explanation.sensitivities, explanation.what_ifs), time_section(estimate),
            memory_section(estimate), pipeline_section(given, estimate),
            Section(title="Every rule of the guides", blocks=(
                Folded(title=f"{len(explanation.judgements)} rules with their words",
                       blocks=tuple(_lines(every["What the guides say"].lines))),
            )),
            Section(title="The constants behind the figures", blocks=(
                Folded(title="Every constant with its source", blocks=blocks_of(constants_table(given.case.calibration, estimate))),
            )),
            launch_section(given, estimate), asked_section(given.case),
        ),
    )


def _told(rest: Sequence[Explained], answer: ExplainAnswer) -> Iterator[Section]:
    """The explanation's own sections, with the chart of the points."""
    for each in rest:
        if each.title in DRAWN:
            continue
        blocks: list[Block] = list(_lines(each.lines))
        if each.title == LOSSES:
            lost = [one for one in answer.explanation.losses if one.points_percent > 0]
            colours = [GREEN, *series(len(lost) + 2)[3:]]
            parts = [
                (one.name, one.points_percent, f"{one.points_percent:.1f}", colour)
                for one, colour in zip(lost, colours * 2, strict=False)
            ]
            blocks.insert(0, drawn_twice(lambda width, parts=parts: waterfall(parts, width, title=LOSSES)))  # type: ignore[misc]
        yield Section(title=each.title, blocks=tuple(blocks))


def _lines(lines: Sequence[str]) -> Iterator[Block]:
    for line in lines:
        first, *below = line.split("\n")
        yield Paragraph(words=words(first), kind="head" if below else "item")
        yield from (Paragraph(words=words(Run(" ".join(each.split()), "dim")), kind="item") for each in below)
