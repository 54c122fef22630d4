"""The pipeline of a layout over time: what every stage does when, and what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Chart, Section
from meshwright.report.pipeline_picture import pipeline_drawing
from meshwright.report.pipeline_view import pipeline_view

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate
    from meshwright.report.pipeline_view import PipelineView

CAPTION = (
    "Rows are stages, numbers micro-batches. Magnify it with the buttons, with plus and minus, or with Ctrl and the wheel. "
    "meshwright balance --trace FILE writes it for Perfetto."
)
MOST_OPERATIONS = 6_000
"""Of a longer pipeline the beginning and the end are drawn, so that a page stays small."""


def pipeline_section(given: Any, estimate: Estimate) -> Section | None:
    """The simulated pipeline of a layout; None of one stage, and of one that no problem of stages can say."""
    from meshwright.api.balancing.layouts import counts_of
    from meshwright.api.views.balance import SECONDS_AND_BYTES
    from meshwright.errors import MeshwrightError
    from meshwright.search.balance.layouts import choices, problem_of
    from meshwright.search.balance.solve import place

    layout = estimate.layout
    if layout.pipeline_parallel == 1:
        return None
    features = given.framework.features
    for choice in choices(features, layout):
        try:
            problem = problem_of(given.case, features, layout, choice)
            counts = counts_of(given, layout, problem)
        except MeshwrightError:
            continue
        if counts is not None:
            placed = place(problem, counts)
            return pipeline_of(pipeline_view(estimate.label, problem, placed, SECONDS_AND_BYTES, most_operations=MOST_OPERATIONS))
    return None


def pipeline_of(view: PipelineView, title: str = "The pipeline over time") -> Section:
    """The section of a pipeline that is known already."""
    return Section(title=title, blocks=(Chart(wide=pipeline_drawing(view), caption=CAPTION, zoom=True),))
