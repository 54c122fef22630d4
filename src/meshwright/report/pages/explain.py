"""The page of ``explain``: in short, then the guides' three steps, where MFU goes, the knobs, and what the guides say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.explain import sections
from meshwright.report.blocks import Block, Folded, Paragraph, Run, Section, View, words
from meshwright.report.constants import constants_blocks
from meshwright.report.explain import told_of
from meshwright.report.page.drawn import Parted, series
from meshwright.report.page.plots import plot
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
from meshwright.report.pages.layouts import strip
from meshwright.report.pages.pipeline import pipeline_section
from meshwright.report.svg import BLUE, GREEN
from meshwright.units import GIB
from meshwright.words import gib, percent, seconds, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.api.verbs.explain import ExplainAnswer
    from meshwright.explain import Explanation
    from meshwright.explain.sections import Section as Explained
    from meshwright.report.blocks import Plot, Tone, Words

IN_SHORT, LOSSES = "In short", "Where the points between MFU and 100 go"
DRAWN = ("One step of each knob", "Better hardware or software")
"""Sections that the knobs' own stands for."""
BADGES: Mapping[str, Tone] = {
    "holds": "good", "not followed": "warn", "fails": "bad", "wrong": "bad", "does not apply": "dim",
}
"""Verdicts over a rule."""


def page_of(answer: ExplainAnswer) -> View:
    """The page of an answer."""
    given, estimate, explanation = answer.given, answer.estimate, answer.explanation
    short, *rest = sections(explanation)
    every = {each.title: each for each in sections(explanation, all_rules=True)}
    return page(
        "explain", f"{percent(estimate.mfu_ratio)} MFU, and where the rest goes", subtitle=case_line(given.case),
        told=told_of(answer),
        first=(
            strip(estimate.label), tiles(estimate), *(Paragraph(words=words(line), kind="item") for line in short.lines),
            more_figures(given.case, estimate),
        ),
        sections=(
            *_told([each for each in rest if each.title == LOSSES], answer),
            knobs_of(explanation.sensitivities, explanation.what_ifs),
            *_told([each for each in rest if each.title != LOSSES], answer), time_section(estimate),
            memory_section(estimate), pipeline_section(given, estimate),
            Section(title="Every rule of the guides", blocks=(
                Folded(title=f"{len(explanation.judgements)} rules with their words",
                       blocks=tuple(_lines(every["What the guides say"].lines))),
            )),
            Section(title="The constants behind the figures", blocks=(
                Folded(title="Every constant with its source",
                       blocks=tuple(constants_blocks(given.case.calibration, estimate))),
            )),
            launch_section(given, estimate), asked_section(given.case),
        ),
    )


def _told(rest: Sequence[Explained], answer: ExplainAnswer) -> Iterator[Section]:
    """The explanation's own sections, with the chart of the points."""
    for each in rest:
        if each.title in DRAWN:
            continue
        lines = tuple(_lines(each.lines))
        chart = _chart(each.title, answer.explanation)
        title = " ".join(each.title.split())
        if chart is None:
            yield Section(title=title, blocks=lines)
        elif each.title == LOSSES:
            causes = Paragraph(words=words(each.lines[-1]))
            yield Section(title=title, blocks=(chart, causes, Folded(title="In words", blocks=lines[:-1])))
        else:
            first = Paragraph(words=words(each.lines[0]))
            yield Section(title=title, blocks=(first, chart, Folded(title="In words", blocks=lines[1:])))


def _chart(title: str, explanation: Explanation) -> Plot | None:
    """What a section says in figures, as a picture."""
    match title[:1]:
        case "1":
            return _ladder_of_memory(explanation)
        case "3":
            return _ladder_of_speed(explanation)
    return _losses(explanation) if title == LOSSES else None


def _losses(explanation: Explanation) -> Plot:
    """The points of 100, each beginning where the one before ends."""
    lost = [one for one in explanation.losses if one.points_percent > 0]
    colours = [GREEN, *series(len(lost) + 2)[3:]]
    parts = [
        ("useful work (MFU)" if one.name == "ideal" else one.name, one.points_percent,
         f"{one.points_percent:.1f} points \u00b7 {seconds(one.time_s)}", colour)
        for one, colour in zip(lost, colours * 2, strict=False)
    ]
    return plot("waterfall", parts=parts, title=LOSSES, caption="Points of 100, and seconds of the step.")


def _ladder_of_memory(explanation: Explanation) -> Plot:
    """The fullest device, knob after knob, then each knob alone."""
    fit = explanation.fit
    named = [(each.knob, each) for each in fit.rungs] + [(f"{each.knob} alone", each) for each in fit.alone]
    rows = [
        Parted(name=name, parts=(each.memory_reserved_bytes / GIB,), word=gib(each.memory_reserved_bytes), over=not each.fits,
               gap=8.0 if place == len(fit.rungs) - 1 else 0.0)
        for place, (name, each) in enumerate(named)
    ]
    limit = fit.capacity_bytes / GIB
    return plot(
        "stacked", rows=rows, parts=[("memory", BLUE)], title="Memory of the fullest device, knob by knob", limit=limit,
        limit_word=f"usable {gib(fit.capacity_bytes)}",
        caption="First the knobs of this layout, one on top of the other; below, what each would do alone. Red does not fit.",
    )


def _ladder_of_speed(explanation: Explanation) -> Plot:
    """The step, from the guide's start to the layout."""
    rows = [
        Parted(name=each.knob, parts=(each.step_s,), over=not each.fits,
               word=f"{seconds(each.step_s)} \u00b7 {signed(each.step_change_ratio)}")
        for each in explanation.throughput.rungs
    ]
    return plot(
        "stacked", rows=rows, parts=[("step", BLUE)], title="The step from the guided start to this layout", unit="seconds",
        caption="One group of knobs after the other, each against the row above. Red does not fit.",
    )


def _lines(lines: Sequence[str]) -> Iterator[Block]:
    for line in lines:
        first, *below = line.split("\n")
        yield Paragraph(words=_badged(first), kind="head" if below else "item")
        yield from (Paragraph(words=_badged(" ".join(each.split()), "dim"), kind="item") for each in below)


def _badged(line: str, tone: Tone = "") -> Words:
    """A line whose verdict in brackets, where it begins with one, is a badge."""
    verdict, mark, rest = line.partition("] ")
    if mark and verdict.startswith("[") and verdict[1:] in BADGES:
        return Run(verdict[1:], BADGES[verdict[1:]], badge=True), Run(rest, tone)
    return (Run(line, tone),)
