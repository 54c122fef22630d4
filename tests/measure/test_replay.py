"""Recorded runs instead of hardware: cells of a file, what its failures say, and the tuner and other samplers against them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.api import TuneRequest, tune
from meshwright.api.legality import ANY_FRAMEWORK
from meshwright.errors import InputError, NoAnswerError
from meshwright.evidence.fit.fitters import prior_fitter
from meshwright.evidence.rows.table import read_table, shipped_path
from meshwright.measure.chooser import Listed
from meshwright.measure.outcome import Outcome
from meshwright.measure.tuning.replay import RecordedCell, cell_of, cells, replayed, words_of
from meshwright.measure.tuning.samplers import shuffled
from meshwright.measure.tuning.tuner import Tuner

MODEL, DEVICES, BATCH = "gpt-L12-h1024", "8", "64"


def rows() -> list[dict[str, str]]:
    """Eleven rows of one question, each measured once."""
    every = csv.DictReader(io.StringIO(shipped_path().read_text(encoding="utf-8")))
    return [row for row in every if (row["model"], row["n_gpus"], row["gbs"]) == (MODEL, DEVICES, BATCH)]


def written(folder: Path, found: Sequence[dict[str, str]]) -> Path:
    """A file of rows."""
    path = folder / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, found[0])
        writer.writeheader()
        writer.writerows(found)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows, one of them measured again 10 % slower, and two that failed, of which one says why."""
    found = rows()
    rates = dict.fromkeys(("tokens_per_s_per_gpu", "samples_per_s", "tflops_per_gpu", "mfu"), "")
    again = {**found[0], **rates, "id": "mine-1", "step_time_s": f"{float(found[0]['step_time_s']) * 1.1}"}
    blank = {**rates, "step_time_s": "", "mem_gb": "", "mem_kind": ""}
    oom = {**found[1], **blank, "id": "mine-2", "zero": "1", "status": "failed", "notes": "oom on rank 3"}
    lost = {**found[2], **blank, "id": "mine-3", "zero": "1", "status": "failed", "notes": "plotted as crashed/OOM"}
    return written(tmp_path_factory.mktemp("replay"), [*found, again, oom, lost])


@pytest.fixture(scope="module")
def cell(path: Path) -> RecordedCell:
    return cells(read_table(path))[0]


def test_a_cell_has_each_layout_once_with_the_median_of_its_runs_and_the_failures_as_they_are_told(cell: RecordedCell) -> None:
    found = rows()
    assert len({each.label for each in cell.candidates}) == len(cell.candidates) == len(found) + 2
    assert cell.measured == len(found)
    first = next(each for each in cell.candidates if each.id == found[0]["id"])
    assert first.outcome.step_s == pytest.approx(1.05 * float(found[0]["step_time_s"]))
    assert first.outcome.tokens_per_s_per_device == pytest.approx(64 * 1024 / first.outcome.step_s / 8)  # type: ignore[operator]
    assert cell.noise_ratio == pytest.approx(0.05 / 1.05)
    endings = {each.id: each.outcome.status for each in cell.candidates if not each.outcome.measured}
    assert endings == {"mine-2": "oom", "mine-3": "unknown"}, "a source that does not separate causes proves nothing"


def test_a_cell_is_named_by_any_part_that_only_it_has(cell: RecordedCell) -> None:
    other = replace(cell, id="elsewhere/8")
    assert cell_of([cell, other], cell.id, "f") is cell
    assert cell_of([cell, other], "ELSEWHERE", "f") is other
    for wanted, reason in (("8", "is part of 2 cells"), ("nothing", "no cell 'nothing'")):
        with pytest.raises(InputError, match=reason):
            cell_of([cell, other], wanted, "f")


def test_regret_and_trials_to_a_layout_near_the_best_by_hand(cell: RecordedCell) -> None:
    by_speed = sorted((each for each in cell.candidates if each.outcome.measured), key=lambda each: each.outcome.step_s or 0.0)
    failed = [each for each in cell.candidates if not each.outcome.measured]
    known = cell.beliefs(prior_fitter().predictor, ANY_FRAMEWORK)
    found = replayed(replace(cell, noise_ratio=0.0), known, Listed([failed[0], by_speed[-1], by_speed[0]]))
    slowest, fastest = by_speed[-1].outcome.step_s or 0.0, by_speed[0].outcome.step_s or 0.0
    assert found.regret_by_trial == pytest.approx((1.0, 1.0 - fastest / slowest, 0.0))
    assert found.trials_to_near == 3
    assert found.best is by_speed[0]
    assert found.implied_failures == 0
    assert replayed(cell, known, Listed(failed)).best is None
    assert replayed(cell, known, Listed([by_speed[-1]]), onward=Listed([*by_speed[::-1]])).trials_to_near is not None


def test_a_failure_that_an_earlier_one_implied_is_counted(cell: RecordedCell) -> None:
    failed = [each for each in cell.candidates if not each.outcome.measured]
    known = cell.beliefs(prior_fitter().predictor, ANY_FRAMEWORK)
    same = replace(known, terms=known.terms * 0.0)
    assert replayed(cell, same, Listed(failed)).implied_failures == 1
    assert replayed(cell, same, Listed(failed[:1])).implied_failures == 0


def test_the_tuner_against_the_cell_is_the_same_on_each_run_and_tries_nothing_twice(cell: RecordedCell) -> None:
    known = cell.beliefs(prior_fitter().predictor, ANY_FRAMEWORK)
    assert len(words_of(known)) == len(known) == len(cell.candidates)
    one, two = (replayed(cell, known, Tuner(cell.candidates, known)) for _ in range(2))
    assert [each.id for each in one.tried] == [each.id for each in two.tried]
    assert len({each.label for each in one.tried}) == len(one.tried) <= len(cell.candidates)
    whole = replayed(cell, known, Tuner(cell.candidates, known, stop_probability=0.0))
    assert whole.regret_by_trial[-1] == 0.0
    assert list(whole.regret_by_trial) == sorted(whole.regret_by_trial, reverse=True)


def test_chance_is_the_same_for_a_seed(cell: RecordedCell) -> None:
    def order(seed: int) -> list[str]:
        chooser = shuffled(cell.candidates, seed)
        found = []
        while (each := chooser.ask()) is not None:
            chooser.tell(each, Outcome(status="unknown"))
            found.append(each.id)
        return found

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(each.id for each in cell.candidates)


def test_the_verb_answers_in_the_words_of_the_contract(path: Path) -> None:
    document = tune(TuneRequest(replay=path, calibration="none", seeds=2)).to_json()
    assert {"trials", "best_label", "best_tokens_per_s_per_device", "regret_by_trial", "trials_to_2_percent", "stopped_after",
            "implied_failures_tried", "probability_better", "expected_gain_ratio"} <= set(document)
    assert document["trials"] == len(document["regret_by_trial"]) == len(document["runs"]) == document["stopped_after"]
    assert len(document["seeds"]) == 2
    assert document["known_configurations"] > 0
    assert document["stopped"] in document["verdict"]
    assert tune(TuneRequest(replay=path, calibration="none", trials=1, sampler="random")).to_json()["trials"] == 1


def test_every_fault_of_the_request_is_one_line(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError) as caught:
        tune(TuneRequest(replay=path, cell="nowhere", calibration="none"))
    assert "no cell 'nowhere'" in str(caught.value)
    alone = written(tmp_path, rows()[:1])
    with pytest.raises(InputError, match="no two measured layouts"):
        tune(TuneRequest(replay=alone, calibration="none"))
    with pytest.raises(InputError, match="--replay"):
        tune(TuneRequest(cell="x"))
    monkeypatch.setattr("meshwright.measure.tuning.samplers.find_spec", lambda _name: None)
    with pytest.raises(NoAnswerError, match="needs optuna"):
        tune(TuneRequest(replay=path, sampler="tpe"))
