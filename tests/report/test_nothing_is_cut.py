"""Every report on a narrow and on a usual terminal: what is said on the widest is said there, too, and every figure is whole.

Of the golden reports, and of reports of cases that are drawn: any model, cluster and layout.
"""

from __future__ import annotations

import io
import json
import re

import more_reports
import pytest
import report_samples
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright import words
from meshwright.estimate import estimate
from meshwright.frameworks import framework
from meshwright.report.blocks import Folded, Paragraph, Pieces, Table, View, cell, flat, line, table
from meshwright.report.console import show
from meshwright.report.estimate import estimate_report, term_table
from meshwright.report.explain import explanation_report
from meshwright.report.page.plain import plain_view, view_of_plain
from meshwright.report.pages.common import tiles
from meshwright.report.plan import plan_report
from meshwright.search import SearchOptions, plan
from strategies import planned, small_case

WIDTHS = (80, 110)
LONGEST = 40
"""Characters of a word that a column must hold in one piece; longer ones are paths and labels, which fold."""

NAME = re.compile(r"[a-z_]+(\.[a-z0-9_]+){2,}")
"""The dotted name of a formula, which folds as well."""


FIGURE = re.compile(r"[\d.,]*\d[KMBT]? (?:%|s|ms|us|GiB|MiB|GB/s|TFLOP/s|tokens/s|samples/s|h|days|W|kW)(?![\w-])")
"""A figure and its unit, which stand on one line."""
SPELT = st.one_of(
    st.builds(words.percent, st.floats(-2.0, 9.0)), st.builds(words.signed, st.floats(-2.0, 9.0)),
    st.builds(words.seconds, st.floats(0.0, 1e5)), st.builds(words.gib, st.floats(0.0, 1e14)),
    st.builds(words.tflops, st.floats(0.0, 1e16)), st.builds("{} tokens/s".format, st.builds(words.count, st.floats(0.0, 1e9))),
)
WORD = st.text("abcdefgh-", min_size=1, max_size=12)
PROSE = st.lists(st.one_of(SPELT, SPELT.map("({},".format), WORD), max_size=60).map(" ".join)


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
        case Table(choices=(_, *_)):  # leaves columns out as a whole: test_reports.py
            texts = []
        case Table(rows=rows, head=head):
            texts = [*head, *("".join(run.text for run in cell.words) for row in rows for cell in row)]
        case Folded(blocks=blocks):
            return [word for each in blocks for word in said(each)]
        case _:
            texts = []
    return [word for text in texts for word in text.split()]


def figures(block) -> list[str]:
    """Every figure with its unit."""
    match block:
        case Paragraph(words=own):
            texts = ["".join(run.text for run in own)]
        case Table(choices=(), rows=rows):
            texts = ["".join(run.text for run in each.words) for row in rows for each in row]
        case Folded(blocks=blocks):
            return [found for each in blocks for found in figures(each)]
        case _:
            texts = []
    return [found[0] for text in texts for found in FIGURE.finditer(text)]


def printed(parts, width) -> str:
    stream = io.StringIO()
    show(parts, stream, width)
    return stream.getvalue()


def whole(parts, width) -> int:
    """Sees to it that every figure is whole on a terminal; how many there are."""
    text = printed(parts, width)
    words = {word for block in flat(parts, headed=True) for word in said(block)
             if re.search(r"\d", word) and len(word) <= LONGEST and not NAME.fullmatch(word)}
    words.update(each for block in flat(parts) for each in figures(block))
    lost = sorted(word for word in words if word not in text)
    assert not lost, f"{width} columns: {lost}\n{text}"
    assert "\u2026" not in text
    wide = [line for line in text.splitlines() if len(line) > width and " " in line.strip()]
    assert not wide, f"{width} columns: {wide}"
    return len(words)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_is_cut_and_no_line_runs_over(reports, width):
    assert len(reports) > 20
    assert sum(whole(parts, width) for parts in reports) > 300


@given(PROSE, st.sampled_from(WIDTHS), st.booleans(), st.integers(0, 8))
def test_no_line_breaks_between_a_figure_and_its_unit(text, width, item, indent):
    """Of a paragraph, of an item, and of a cell beside others; and nothing but blanks is lost where lines break."""
    paragraph = line(text, kind="item" if item else "text", indent=indent)
    beside = table(("name", "what", "more"), [(cell("x" * 20), cell(text), cell("y" * 20))], indent=indent)
    for block in (paragraph, beside):
        told = printed([block], width)
        assert not [each[0] for each in FIGURE.finditer(text) if each[0] not in told], told
    assert printed([paragraph], width).replace(" ", "").replace("\n", "") == "-" * item + text.replace(" ", "")


@settings(max_examples=12, deadline=None)
@given(planned())
def test_no_figure_of_any_layout_is_cut(found):
    """The report of ``estimate`` with the terms of every figure."""
    predicted = estimate(*found)
    for width in WIDTHS:
        assert whole(list(estimate_report(found[0], predicted)), width) > 10
        assert whole(list(term_table(predicted)), width) > 10


@settings(max_examples=12, deadline=None)
@given(planned())
def test_the_figures_of_a_page_are_those_of_the_terminal(found):
    """Every figure in large letters stands in the report that is printed, to the last digit."""
    predicted = estimate(*found)
    text = " ".join(printed(list(estimate_report(found[0], predicted)), WIDTHS[1]).split())
    numbers = set(re.findall(r"[\d.,]*\d", text))
    for each in tiles(predicted).tiles:
        for said_there in (each.value, each.remark):
            missing = set(re.findall(r"[\d.,]*\d", said_there)) - numbers
            assert not missing or "left" in each.remark or "short of" in each.remark, f"{each}: {missing}\n{text}"


@pytest.mark.parametrize("said_of", [
    {"model": "llama3.1-405b"}, {"model": "qwen3-30b-a3b", "device": "a100-80g-sxm", "devices": 8},
], ids=lambda each: each["model"])
def test_no_figure_of_a_plan_or_its_explanation_is_cut(said_of):
    from meshwright.explain import explain

    case = small_case(**said_of)
    own = framework("megatron").for_case(case)
    result = plan(case, own.features, SearchOptions(), runner=own)
    for width in WIDTHS:
        assert whole(list(plan_report(case, result)), width) > 10
    if result.plans:
        best = result.plans[0].estimate
        told = list(explanation_report(case, best, explain(case, best.layout, own.features, best, own), everything=True))
        view = View(verb="explain", title="", told=tuple(told))
        assert view_of_plain(json.loads(json.dumps(plain_view(view)))) == view, "plain values all the way down"
        for width in WIDTHS:
            assert whole(told, width) > 30


def test_a_cut_would_be_seen(reports):
    """Where columns that must not break need more than there is, figures are cut: the test above can fail."""
    figures = tuple(f"{number}{'0' * 30}.5" for number in range(3))
    narrow = table(figures, [figures], whole=range(3))
    text = printed([narrow], 80)
    assert [word for word in said(narrow) if word not in text]


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_line_that_must_stay_whole_runs_over_the_edge(above, width):
    """The first file that was read lost the end of its line: a line with an empty one above it stood in a padding."""
    path = "read /" + "a/long/folder/" * 12 + "file.json.gz: chrome_trace"
    stream = io.StringIO()
    show([line(path, kind="small", indent=2, above=above, whole=True)], stream, width)
    assert stream.getvalue() == "\n" * above + f"  {path}\n"
