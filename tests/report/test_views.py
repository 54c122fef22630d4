"""One view of an answer: the terminal prints it, the page shows it, JSON brings it back; no figure is said twice in two ways."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser

import pytest
from benchmarks.pages import SAMPLES, folder_of_samples, write_page
from tests import searches

import meshwright as mw
from meshwright.report import pages
from meshwright.report.blocks import Beside, Cell, Folded, Run, Section, Table, cell, figure, table
from meshwright.report.console import show
from meshwright.report.page.html import html
from meshwright.report.page.plain import plain_view, view_of_plain
from meshwright.units import GIB
from meshwright.words import bare_gib, gib, percent, seconds

NAMES = ("balance", "check", "estimate", "fix", "nothing", "pack", "plan", "validate")
SCALES = {
    "s": {" s": [1.0], " ms": [1e-3], " us": [1e-6]}, "bytes": {" GiB": [GIB], "": [GIB]},
    "ratio": {" %": [0.01], "": [1.0, 0.01]},
}
"""Unit of a value -> how its text may end, and what that can stand for."""


@pytest.fixture(scope="module", params=NAMES)
def asked(request, tmp_path_factory):
    """The answer of a real command, and what the command printed."""
    answers = []
    with pytest.MonkeyPatch.context() as patch, folder_of_samples() as folder:
        searches.remember(patch)
        patch.setattr(pages, "page_html", lambda answer: answers.append(answer) or "")
        printed = write_page(request.param, folder, tmp_path_factory.mktemp("pages") / "a.html")
    return answers[0], printed


@pytest.fixture(scope="module")
def view(asked):
    return pages.page_of(asked[0])


def tables(blocks):
    """All tables in blocks."""
    for block in blocks:
        if isinstance(block, (Section, Folded, Beside)):
            yield from tables(block.blocks)
        elif isinstance(block, Table):
            yield block


def on_the_page(view):
    return list(tables([*view.first, *view.sections]))


def runs(blocks):
    return [run for each in tables(blocks) for row in each.rows for one in row for run in one.words]


def said(one: Cell) -> str:
    return " ".join("".join(run.text for run in one.words).split())


class Cells(HTMLParser):
    """The words of the cells of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "td":
            self.inside = True
            self.found.append("")
        elif tag == "br" and self.inside:
            self.found[-1] += " "

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "td"

    def handle_data(self, data):
        if self.inside:
            self.found[-1] += data


def test_the_terminal_prints_the_view(asked, view):
    stream = io.StringIO()
    show(view.told, stream)
    assert stream.getvalue() and asked[1].startswith(stream.getvalue())


def test_every_figure_of_the_pages_tables_is_that_of_the_view(view):
    known = {said(one) for each in on_the_page(view) for row in each.rows for one in row}
    shown = {" ".join(each.split()) for each in Cells(html(view)).found if re.search(r"\d", each)}
    assert shown and shown <= known


def test_what_is_told_in_tables_stands_in_tables_of_the_page(view):
    """Rows, not whole tables: of many rules that refused a terminal lists some."""
    known = {row for each in on_the_page(view) for row in each.rows}
    for each in tables(view.told):
        if view.verb == "validate" and len(each.rows) == 1:  # of parts that have one the page says the total alone
            continue
        for row in each.rows:
            assert row in known or any("other rule" in said(one) for one in row), row


def test_a_figure_says_its_value(view):
    """The text of a figure is its value in its unit, up to how many digits it has."""
    typed = [run for run in runs([*view.first, *view.sections]) if run.value is not None and run.unit in SCALES]
    assert len(typed) > 4 or view.verb == "check"
    for run in typed:
        assert holds(run), run


def holds(run: Run) -> bool:
    found = re.fullmatch(r"(?:> |over |under )?([+-]?[\d,]*\.?\d+)( [a-zA-Z%]+)?", run.text)
    if found is None:  # to the byte, or unlike a figure
        return "bytes)" in run.text
    digits = found[1].replace(",", "")
    step = 10.0 ** -len(digits.partition(".")[2])
    if "." not in digits and abs(float(digits)) >= 1000:
        step = 1.0
    scales = SCALES[run.unit].get(found[2] or "", [])
    return any(abs(float(digits) * scale - run.value) <= 1.01 * step * scale for scale in scales)


def test_the_view_comes_back_from_json(asked, view):
    plain = json.loads(json.dumps(plain_view(view), allow_nan=False))
    back = view_of_plain(plain)
    assert back == view and html(back) == html(view)
    assert mw.view(asked[0]) == plain


def test_every_sample_of_a_verb_of_this_file_is_asked():
    assert set(NAMES) <= set(SAMPLES)


def test_a_figure_that_is_spelled_wrong_is_found():
    """What the tests above rest on can fail."""
    assert holds(figure(0.0123, seconds)) and holds(figure(3 * GIB, bare_gib)) and holds(figure(0.113, percent))
    assert not holds(Run("12.3 s", value=0.0123, unit="s"))
    assert not holds(Run("11.3%", value=0.113, unit="ratio")), "another spelling"
    shown = table(["a"], [[cell(figure(2 * GIB, gib))]])
    assert [said(row[0]) for row in shown.rows] == ["2.0 GiB"]
