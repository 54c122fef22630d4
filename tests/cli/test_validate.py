"""``meshwright validate``: tables and JSON, the rows, and every way to get the input wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest
from tests.evidence.runs_csv import cells, write_runs

from meshwright.api.verbs.validate import SCHEMES, _fitter
from meshwright.catalog.calibrations import calibrations
from meshwright.evidence.fit.fitters import Pooled
from meshwright.evidence.rows.groups import Scheme
from meshwright.evidence.rows.table import read_table, shipped_path, shipped_table
from meshwright.evidence.score.validation import is_shipped

KEYS = {
    "n", "skipped", "step_mape_ratio", "step_median_ape_ratio", "step_bias_ratio", "spearman", "memory_mape_ratio",
    "memory_bias_ratio", "fit_accuracy_ratio", "fit_accuracy_memory_only_ratio", "interval_coverage_ratio",
    "memory_interval_coverage_ratio",
}


@pytest.fixture
def runs(tmp_path):
    rows = [{"mbs": str(2**index), "step_time_s": str(0.5 + index / 10), "mem_gb": "10"} for index in range(4)]
    rows += [{"tp": "2"}, {"zero": "1"}, {"id": "fail-1", "status": "failed", "step_time_s": "", "tp": "4"}, {"flag": "doubt"}]
    return str(write_runs(tmp_path / "runs.csv", *rows))


def test_the_document_has_the_keys_of_the_contract(cli, runs):
    document = cli("validate", runs, "--json").json
    assert document["groups"]["a"].keys() >= KEYS
    assert document["groups"]["a"]["n"] == 6
    assert document["groups"]["a"]["skipped"] == 1
    assert document["all"]["regret_ratio"].keys() == {"mean", "worst"}
    assert document["all"].keys() >= {"failed_choices", "spearman_within_cells_median"}
    (cell,) = document["cells"]
    assert cell["key"]["model"] == "tiny"
    assert 0.0 <= cell["regret_ratio"] <= 1.0
    assert document["scheme"] is None
    assert document["skipped_rows"] == [{"id": "a-8", "line": 9, "reason": "flagged: 'doubt'"}]


def test_the_report_says_what_was_scored_and_left_out(cli, runs):
    answer = cli("validate", runs)
    assert answer.status == 0, answer.err
    for words in ("7 rows predicted", "not fitted anew", "Decisions", "Probability to run", "flagged, as line 9"):
        assert words in answer.out
    assert "scheme grouped" in cli("validate", runs, "--scheme", "grouped", "--calibration", "none").out


def test_what_predicts_follows_from_the_scheme_and_the_calibration():
    fitter = _fitter(None, "grouped", None)
    assert isinstance(fitter, Pooled)
    assert _fitter("none", "grouped", None).label == "none@0"
    assert _fitter(None, None, None).label.partition("@")[0] in calibrations()


def test_rows_are_written_whole_and_may_be_read_again(cli, runs, tmp_path):
    out = tmp_path / "out.csv"
    assert cli("validate", runs, "--rows", str(out)).status == 0
    assert len(out.read_text().splitlines()) == 9
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    assert cli("validate", runs, "--rows", str(out)).status == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["none.csv"], "no such file"),
        (["."], "not a regular file"),
        (["RUNS", "--scheme", "groupd"], "is none of grouped"),
        (["RUNS", "--calibration", "mine"], "unknown calibration"),
        (["RUNS", "--calibration", "shipped", "--scheme", "grouped"], "give one of them"),
        (["RUNS", "--rows", "RUNS"], "is the file that is read"),
        (["RUNS", "--rows", "."], "is a directory"),
        (["RUNS", "--rows", "/dev/null"], "is not a regular file"),
        (["RUNS", "--rows", "none/at/all.csv"], "its directory does not exist"),
    ],
)
def test_wrong_input_is_one_clear_line(cli, runs, arguments, line):
    answer = cli("validate", *(runs if each == "RUNS" else each for each in arguments))
    assert answer.status == 2
    assert len(answer.lines) == 1
    assert line in answer.err
    assert not answer.out


@pytest.mark.parametrize("rows", [[], [{"gpu": "abacus"}], [{"step_time_s": "fast"}], [{"flag": "doubt"}]])
def test_a_file_without_a_usable_row_is_wrong_input(cli, tmp_path, rows):
    answer = cli("validate", str(write_runs(tmp_path / "runs.csv", *rows)))
    assert answer.status == 2
    assert "no usable row" in answer.err


def test_hostile_text_does_not_reach_the_terminal(cli, tmp_path):
    hidden = {"model": "\x1b[31mred", "notes": "\x07"}
    marked = {"framework": "[bold]x[/bold]"}
    answer = cli("validate", str(write_runs(tmp_path / "runs.csv", hidden, marked, {"gpu": "\x1b]0;title\x07"})))
    assert answer.status == 0
    assert "\x1b" not in answer.out + answer.err
    assert r"\x1b[31mred" in answer.out
    assert "[bold]x[/bold]" in answer.out


def test_schemes_are_those_of_the_evidence():
    assert get_args(Scheme) == SCHEMES


@pytest.mark.slow
def test_ctrl_c_ends_at_once_with_one_line():
    command = [sys.executable, "-m", "meshwright", "validate", "--calibration", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        children, until = Path(f"/proc/{process.pid}/task/{process.pid}/children"), time.monotonic() + 20
        while time.monotonic() < until and not (children.exists() and children.read_text(encoding="ascii")):
            time.sleep(0.05)  # until others work for it
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == "error: interrupted\n"
    assert out == ""


def test_the_shipped_corpus_is_known_whatever_its_name(tmp_path):
    copy = tmp_path / "copy.csv"
    copy.write_bytes(shipped_path().read_bytes())
    assert is_shipped(read_table(copy))
    assert not is_shipped(read_table(write_runs(tmp_path / "runs.csv", {})))


@pytest.mark.slow
def test_a_part_of_the_corpus_is_scored_by_its_sets(cli, tmp_path):
    """Every fourth row of the playbook up to one node, every tenth other row: seconds instead of minutes."""
    rows = shipped_table().rows
    one_node = [each for each in rows if each.framework == "nanotron" and each.num_devices == 8]
    others = [each for each in rows if not each.id.startswith(("playbook", "fail"))]
    chosen = [*one_node[::4], *others[::10]]
    path = write_runs(tmp_path / "part.csv", *(cells(each) for each in chosen))
    document = cli("validate", str(path), "--scheme", "grouped", "--calibration", "none", "--json").json
    assert document["scheme"] == "grouped"
    assert document["folds"] == 10
    assert document["rows"] + document["skipped"] == len(chosen)
    assert [each for each in document["cells"] if each["key"]["source"] == "playbook"]
    for name in ("playbook above 10 % MFU", "NVIDIA dense pre-training BF16"):
        assert 0 < document["sets"][name]["n"] < len(chosen)
