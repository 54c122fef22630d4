"""Every report on a narrow and on a usual terminal: what is said on the widest is said there, too, and every figure is whole."""

from __future__ import annotations

import io
import re

import more_reports
import pytest
import report_samples

from meshwright.report.console import show
from meshwright.report.page.blocks import Folded, Paragraph, Pieces, Table
from meshwright.report.page.reading import blocks_of
from meshwright.report.ranking import Ranking

WIDTHS = (80, 110)
LONGEST = 40
"""Characters of a word that a column must hold in one piece; longer ones are paths and labels, which fold."""


@pytest.fixture(scope="module")
def reports():
    """The parts of every golden report."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((more_reports, "painted"), (report_samples, "text")):
            patch.setattr(module, name, lambda parts, width=110: found.append(list(parts)) or "")
        more_reports.reports()
        report_samples.reports()
    return found


def said(block) -> list[str]:
    """Every word of a block."""
    match block:
        case Paragraph(words=words):
            texts = ["".join(run.text for run in words)]
        case Pieces(pieces=pieces):
            texts = ["".join(run.text for run in words) for words in pieces]
        case Table(rows=rows, head=head):
            texts = [*head, *("".join(run.text for run in cell.words) for row in rows for cell in row)]
        case Folded(blocks=blocks):
            return [word for each in blocks for word in said(each)]
        case _:
            texts = []
    return [word for text in texts for word in text.split()]


def printed(parts, width) -> str:
    stream = io.StringIO()
    show(parts, stream, width)
    return stream.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_is_cut_and_no_line_runs_over(reports, width):
    assert len(reports) > 20
    figures = 0
    for parts in reports:
        shown = [part for part in parts if not isinstance(part, Ranking)]  # leaves columns out as a whole: test_reports.py
        text = printed(shown, width)
        words = {word for block in blocks_of(shown) for word in said(block) if re.search(r"\d", word) and len(word) <= LONGEST}
        lost = sorted(word for word in words if word not in text)
        assert not lost, f"{width} columns: {lost}\n{text}"
        assert "\u2026" not in text
        figures += len(words)
    assert figures > 300


def test_a_cut_would_be_seen(reports):
    """On twenty columns figures are cut: the test above can fail."""
    from rich.table import Table as Narrow

    table = Narrow(width=12)
    for _ in range(3):
        table.add_column("", no_wrap=True, overflow="ellipsis")
    table.add_row("123456.5", "123457.5", "123458.5")
    text = printed([table], 80)
    assert [word for block in blocks_of([table]) for word in said(block) if word not in text]
