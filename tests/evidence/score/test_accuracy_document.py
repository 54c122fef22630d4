"""The accuracy document: pictures and tables from predictions of the priors on some rows."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from benchmarks.accuracy import MAX_BYTES, pictures
from benchmarks.accuracy_text import document, table
from benchmarks.disclosure import seen_priors
from benchmarks.regimes import LEAST_ROWS, disjoint_sets, regimes
from benchmarks.worst import worst

from meshwright.api.verbs.validate import refusals
from meshwright.evidence.fit.fitters import prior_fitter
from meshwright.evidence.rows.table import shipped_table
from meshwright.evidence.score.validation import Validation, validate


@pytest.fixture(scope="module")
def found() -> Validation:
    """Every eighth row by the priors, as if they were calibrated."""
    whole = shipped_table()
    some = replace(whole, rows=whole.rows[::8], skipped=whole.skipped[:5])
    result = validate(some, scheme="grouped", fitter=prior_fitter(), legal=refusals, jobs=1)
    bounded = [
        replace(row, step_interval_s=(row.predicted_step_s / 1.5, row.predicted_step_s * 1.5)) if row.predicted_step_s else row
        for row in result.rows
    ]
    return replace(result, rows=tuple(bounded))


def test_pictures_are_well_formed_small_and_the_same_again(found):
    drawn = pictures(found)
    assert set(drawn) == {"steps.svg", "memory.svg", "regimes.svg", "coverage.svg"}
    for text in drawn.values():
        ElementTree.fromstring(text)
        assert len(text) < MAX_BYTES
        assert not re.search(r"\bnan\b", text)
    assert drawn == pictures(found)


def test_pictures_do_without_intervals(found):
    bare = replace(found, rows=tuple(replace(row, step_interval_s=None) for row in found.rows))
    assert "uncalibrated" in pictures(bare)["coverage.svg"]


def test_the_document_holds_every_part(found):
    text = document({"grouped": found})
    for part in ("<!-- summary -->", "accuracy/steps.svg", "## The 10 worst rows", "## Targets, by scheme", "## Rows left out",
                 "SimuMax 52 %", "## Decisions", "## NVIDIA rows that their neighbours contradict",
                 "Median width of the", "they do not choose the form again"):
        assert part in text
    assert "None" not in text
    assert not re.search(r"\bnan\b", text)


def test_each_scheme_has_its_scores(found):
    fitted = replace(found, calibration="refitted@0")
    text = document({"grouped": fitted, "leave-one-source-out": fitted})
    assert "## Scores: leave-one-source-out" in text
    assert "*leave-one-source-out*" in text


def test_predictions_of_priors_are_not_called_held_out(found):
    text, drawn = document({"grouped": found}), pictures(found)
    assert "This is no held-out test" in text
    assert "has not seen it" not in text
    assert all("not held out" in each and "out-of-fold" not in each for each in drawn.values())
    fitted = replace(found, calibration="refitted@0")
    assert "The fit alone is held out" in document({"grouped": fitted})


def test_priors_read_off_rows_are_listed(found):
    text = document({"grouped": found})
    for name in ("stall_nodes", "stall_s", "collective_skew_s", "collective_host_s"):
        assert f"| `{name}` |" in text
    assert {"gemm_setup_k", "launch_s"}.isdisjoint(seen_priors())


def test_every_table_has_as_many_cells_as_its_head(found):
    widths: list[int] = []
    for line in document({"grouped": found}).splitlines():
        if line.startswith("|"):
            widths.append(line.count("|"))
        else:
            assert len(set(widths)) <= 1
            widths = []


def test_sets_of_the_panels_do_not_lie_in_each_other(found):
    ids = [{row.id for row in rows} for _, rows in disjoint_sets(found.rows)]
    assert not any(one < other for one in ids for other in ids)


def test_each_kind_of_regime_divides_the_rows(found):
    timed = [row for row in found.rows if row.timed]
    by_kind: dict[str, int] = {}
    for each in regimes(timed):
        assert len(each.rows) >= LEAST_ROWS
        by_kind[each.kind] = by_kind.get(each.kind, 0) + len(each.rows)
    assert by_kind["model"] == by_kind["TP and PP"] == len(timed)


def test_the_worst_rows_have_reasons_from_their_own_figures(found):
    rows = worst(found.rows, 10)
    assert len(rows) == 10
    assert all(each.reasons and all(each.reasons) for each in rows)
    factors = [max(each.scored.step_ratio, 1 / each.scored.step_ratio) for each in rows]
    assert factors == sorted(factors, reverse=True)


def test_a_measurement_that_disagrees_with_itself_is_named(found):
    row = next(row for row in found.rows if row.timed and row.row.framework == "nanotron")
    again = replace(row, id="again-1", measured_step_s=row.measured_step_s * 10, row=replace(row.row, id="again-1"))
    first = worst([row, again], 1)[0]
    assert any("the same settings" in words for words in first.reasons)


def test_a_table_is_markdown():
    assert table(("a", "b"), [("x", "1")]) == ["| a | b |", "| --- | ---: |", "| x | 1 |"]
