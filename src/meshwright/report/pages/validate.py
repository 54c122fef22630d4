"""The page of ``validate``: predicted against measured, and what the predictions are worth, set by set."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from meshwright.report.blocks import Beside, Block, Paragraph, Section, Table, Tile, Tiles, View, words
from meshwright.report.page.drawn import series
from meshwright.report.page.plots import plot
from meshwright.report.page.plotted import Paired
from meshwright.report.pages.common import page
from meshwright.report.svg import GREY
from meshwright.report.validation import validation_report
from meshwright.units import GIB
from meshwright.words import integer, percent

if TYPE_CHECKING:
    from meshwright.api.verbs.validate import ValidateAnswer
    from meshwright.evidence.score.columns import Columns

MOST_SOURCES = 6
"""Sources with a colour of their own, those with most rows."""
HALF = 430.0
"""Pixels of a chart that stands beside another."""
PARTS = ("Sources", "Devices", "Frameworks", "Models")
CHARTS = (
    ("Steps", "predicted_step_s", "measured_step_s", "measured step, s", "predicted step, s", 1.0),
    ("Memory", "predicted_memory_bytes", "measured_memory_bytes", "measured memory, GiB", "predicted memory, GiB", GIB),
)


def page_of(answer: ValidateAnswer) -> View:
    """The view of an answer."""
    found, total = answer.validation, answer.summary.total.scores
    told = tuple(validation_report(found, answer.summary))
    head, *rest = told
    step = total.step_mape_ratio
    title = "Nothing measured to compare with" if step is None else f"Steps are predicted within {percent(step)} on average"
    return page(
        "validate", title, subtitle=" ".join(head.remark.split()), told=told, first=(_tiles(answer), *head.blocks),
        sections=(
            Section(title="Predicted against measured", blocks=_charts(found.rows)), *(each for each in rest if _tells(each)),
        ),
    )


def _tiles(answer: ValidateAnswer) -> Tiles:
    total = answer.summary.total.scores
    known = (
        ("rows predicted", integer(len(answer.validation.rows)), f"{integer(len(answer.validation.skipped))} left out"),
        ("step time, MAPE", total.step_mape_ratio, f"{integer(total.step_n)} rows"),
        ("memory, MAPE", total.memory_mape_ratio, f"{integer(total.memory_n)} rows"),
        ("fits or fails, right", total.fit_accuracy_ratio, f"{integer(total.fit_n)} rows"),
        ("interval holds", total.interval_coverage_ratio, f"{integer(total.interval_n)} rows"),
    )
    return Tiles(tiles=tuple(
        Tile(name=name, value=value if isinstance(value, str) else percent(value), remark=remark)
        for name, value, remark in known if value is not None
    ))


def _tells(section: Section) -> bool:
    """Whether a section of parts has more than one: a single one has the figures of all."""
    tables = [each for each in section.blocks if isinstance(each, Table)]
    return not (section.title.startswith(PARTS) and tables and all(len(each.rows) < 2 for each in tables))


def _charts(rows: Columns) -> tuple[Block, ...]:
    found = tuple(chart for each in CHARTS if (chart := _chart(rows, *each)) is not None)
    band = Paragraph(words=words("On the diagonal a prediction is exact; the band is a factor of 1.5 either way."), kind="small")
    return (Beside(blocks=found), band) if found else ()


def _chart(rows: Columns, title: str, predicted: str, measured: str, across: str, up: str, unit: float) -> Block | None:
    """Every row that has both, its source by colour."""
    x, y, source = rows.number(measured) / unit, rows.number(predicted) / unit, rows.code("source")
    both = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    if not both.any():
        return None
    names = list(rows.names["source"])
    most = [code for code, _ in Counter(source[both].tolist()).most_common(MOST_SOURCES)]
    kinds = [
        Paired(name=names[code], points=tuple(zip(x[own].tolist(), y[own].tolist(), strict=True)), colour=colour)
        for code, colour in zip(most, series(len(most)), strict=True) for own in (both & (source == code),)
    ]
    if (rest := both & ~np.isin(source, most)).any():
        kinds.append(Paired(name="others", points=tuple(zip(x[rest].tolist(), y[rest].tolist(), strict=True)), colour=GREY))
    return plot("against", widest=HALF, kinds=kinds, title=f"{title}, predicted against measured", across=across, up=up)
