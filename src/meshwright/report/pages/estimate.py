"""The page of ``estimate``: one layout, its figures, its memory, its time and its pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Section, View
from meshwright.report.estimate import limit_lines, note_lines, told_of
from meshwright.report.packing import packing_lines
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
from meshwright.report.pages.knobs import knobs_section
from meshwright.report.pages.layouts import strip
from meshwright.report.pages.pipeline import pipeline_section
from meshwright.report.runs import closest_line
from meshwright.units import gib
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.api.verbs.estimate import EstimateAnswer


def page_of(answer: EstimateAnswer) -> View:
    """The view of an answer."""
    given, estimate = answer.given, answer.estimate
    short = estimate.memory_reserved_bytes - estimate.memory_capacity_bytes
    step = f"{seconds(estimate.step_s)} a step at {percent(estimate.mfu_ratio)} MFU"
    fits = step if estimate.fits else f"Does not fit: short of {gib(max(short, 0.0))}" if short > 0 else f"Does not run: {step}"
    packed = () if given.samples is None else packing_lines(given.samples.figures(), given.case.batch, estimate)
    return page(
        "estimate", fits, subtitle=case_line(given.case), verdict="good" if estimate.fits else "bad",
        told=tuple(told_of(answer)), first=(
            strip(estimate.label), tiles(estimate), *note_lines(answer.notes),
            *limit_lines(given.framework.name, answer.limits),
            more_figures(given.case, estimate),
        ),
        sections=(
            memory_section(estimate), time_section(estimate), pipeline_section(given, estimate), knobs_section(given, estimate),
            *packed, Section(title="The nearest published run", blocks=tuple(closest_line(answer.closest))),
            launch_section(given, estimate), asked_section(given.case),
        ),
    )
