"""A published run of exactly the planned case that contradicts a plan is said beside it."""

import csv
from csv import DictReader
from dataclasses import replace

import pytest

import meshwright as mw
from meshwright.api import measured_beside
from meshwright.evidence.rows import attempts
from meshwright.evidence.rows.attempts import KEY, cells_of, corpus, runs_beside
from meshwright.evidence.rows.table import _content, _lines_with, rows_like
from meshwright.words import seconds

CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 128, "sequence": 8192}


@pytest.fixture(scope="module")
def planned():
    """A plan of a case that was published, too."""
    answer = mw.plan(mw.PlanRequest(**CASE, top=4))
    assert answer.closest is not None and not answer.closest.differs
    return answer


def said(planned, monkeypatch, *runs):
    """Identifiers and values of what is said where these layouts took so long, the fastest of them the best of the cell."""
    best = planned.closest.cell.best
    given = [replace(best, id=f"run-{place}", label=label, step_s=step_s) for place, (label, step_s) in enumerate(runs)]
    monkeypatch.setattr(attempts, "runs_beside", lambda cell: tuple(given))
    cell = replace(planned.closest.cell, best=min(given, key=lambda run: run.step_s))
    found = measured_beside.against(planned.given, planned.result, replace(planned.closest, cell=cell))
    return [(each.id, dict(each.values)) for each in found]


@pytest.mark.parametrize("place", range(4))
def test_a_listed_plan_that_took_far_longer_is_named(planned, monkeypatch, place):
    plan = planned.result.plans[place]
    upper = plan.estimate.interval.step_s[1]
    label = plan.label.replace(" overlap=none", "")
    ((id_, values),) = said(planned, monkeypatch, (label, 3.0 * upper))
    assert (id_, values["rank"], values["id"]) == ("plan.measured-slower", place + 1, "run-0")
    assert ("plan 2 is the first" in values["instead"]) == (place == 0)
    assert not said(planned, monkeypatch, (label, 1.01 * upper))
    assert not said(planned, monkeypatch, (label, 3.0 * upper), (label, upper)), "the fastest run of a layout counts"


def test_a_layout_that_took_less_than_the_first_plan_is_named_with_what_is_predicted_of_it(planned, monkeypatch):
    first = planned.result.plans[0]
    other = "tp8 pp1 dp1 mb1 sp zero0"
    ((id_, values),) = said(planned, monkeypatch, (other, 0.9 * first.estimate.step_s))
    own = mw.estimate(mw.EstimateRequest(**CASE, layout=other)).estimate
    assert id_ == "plan.measured-faster" and values["label"] == other
    assert f"{own.step_s:.1f} s" in values["here"] and "measure it" in values["more"]
    assert not said(planned, monkeypatch, (other, 1.01 * first.estimate.step_s))
    ((_, values),) = said(planned, monkeypatch, ("tp64 pp1 dp1 mb1 zero0", 0.9 * first.estimate.step_s))
    assert values["here"] == "a layout that cannot be run here" and not values["more"]


def test_a_faster_run_is_predicted_as_it_ran_where_that_differs_from_the_case(tmp_path):
    """NVIDIA's run tiles its collectives and keeps gradients in BF16, which the case does not: that explains the difference."""
    wanted = {"model": "llama3-70b", "device": "h100-sxm", "nodes": 64, "global_batch": 1024, "sequence": 8192}
    (note,) = [each for each in mw.plan(mw.PlanRequest(**wanted, top=1)).result.notes if each.id == "plan.measured-faster"]
    assert "overlap=grad,param,tp,p2p, gradients of 2 bytes, not 4" in note.values["ran"] and not note.values["more"]
    cells = cells_of(note.values["id"])
    csv, rows = tmp_path / "one.csv", tmp_path / "rows.csv"
    csv.write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in (cells, cells.values())), encoding="utf-8")
    mw.validate(mw.ValidateRequest(csv=csv, rows=rows))
    (row,) = DictReader(rows.read_text(encoding="utf-8").splitlines())
    assert seconds(float(row["predicted_step_s"])) in note.values["ran"]


def test_nothing_is_said_of_another_case(planned):
    assert not [*measured_beside.against(planned.given, planned.result, None)]
    other = next(near for near in [planned.closest])
    differs = replace(other, differs=(object(),), cell=replace(other.cell, best=replace(other.cell.best, step_s=0.1)))
    assert not [*measured_beside.against(planned.given, planned.result, differs)]


def test_runs_of_a_cell_are_those_that_the_whole_corpus_has(planned):
    best = planned.closest.cell.best
    rows = corpus()
    own = next(row for row in rows if row.id == best.id)

    def key(row):
        return [row.word(column).lower() for column in KEY]

    wanted = {row.id for row in rows if key(row) == key(own) and not row.flag and row.status == "ok"}
    assert {run.id for run in runs_beside(planned.closest.cell)} == wanted and len(wanted) == planned.closest.cell.ran


def test_records_of_the_shipped_corpus_are_lines_and_those_alike_are_found_among_them() -> None:
    path = attempts.data_path("measured_runs.csv")
    with path.open(newline="", encoding="utf-8") as stream:
        names, *records = csv.reader(stream)
    assert len(records) + 1 == len(path.read_text(encoding="utf-8").splitlines())
    places = [names.index(column) for column in KEY]
    for number in range(0, len(records), 601):
        alike = [row for row in records if all(row[at].strip().lower() == records[number][at].strip().lower() for at in places)]
        found = {row.id for row in rows_like(path, records[number][names.index("id")], KEY)}
        assert found <= {row[names.index("id")] for row in alike}
        assert found >= {row[names.index("id")] for row in alike if row[names.index("status")] == "ok"
                         and not row[names.index("flag")]}


def test_lines_are_found_by_any_word_with_their_numbers(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,model,gpu\na,Opt,H100\nb,opt,h100\n\nc,OPT,A100\nab,opt,H100\n")
    content, small = _content(path)
    lines = dict(enumerate(path.read_text().splitlines(), start=1))
    for word in (b"opt", b"h100", b"a", b"c,opt", b""):
        alike = {number: each for number, each in lines.items() if word.decode() in each.lower()}
        assert dict(_lines_with(content, small, word)) == alike
