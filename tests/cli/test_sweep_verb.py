"""``meshwright sweep``: what is wrong is said before anything starts; what is run is shown, kept, and not run again."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meshwright.api.verbs.sweep import SweepRequest, sweep
from meshwright.errors import NoAnswerError, fault
from meshwright.evidence.rows.reading import read_runs
from meshwright.evidence.rows.table import read_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Answer

    Cli = Callable[..., Answer]

STAND_IN = Path(__file__).parents[2] / "benchmarks" / "stand_in.py"
LABELS = ["tp1 pp1 dp2 mb1 zero0", "tp2 pp1 dp1 mb1 zero0", "tp1 pp1 dp2 mb4 zero0"]
CASE = ("llama3-8b", "--layers", "4", "--device", "cpu", "--devices", "2", "--global-batch", "8", "--sequence", "64")
SCRIPT = f"""#!/bin/bash
# {{{{kept}}}} ${{HOME}} pp {{pipeline_parallel}} {{label}}
case {{tensor_parallel}} in 2) kind=oom; ms=30000;; *) kind=ok; ms=$((30000 + {{microbatch_sequences}}));; esac
exec python3 {STAND_IN} "$kind" "$ms"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a template and three layouts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(SCRIPT)
    (tmp_path / "layouts.txt").write_text("# two that differ in memory\ndp2 mb1\ntp2 mb1\n\ndp2 mb4\ntp1 dp2 mb1\n")
    return tmp_path


@pytest.fixture
def words(here: Path) -> tuple[str, ...]:
    return ("sweep", *CASE, "--template", "run.sh", "--layouts", "layouts.txt", "--steps", "9")


def test_a_sweep_is_run_shown_kept_and_gone_on_with(cli: Cli, words: tuple[str, ...], here: Path) -> None:
    dry = cli(*words, "--dry-run", "--json")
    assert dry.status == 0 and [each["label"] for each in dry.json["dry_run"]] == LABELS
    assert not (here / "runs.db").exists(), "a dry run makes nothing"
    first = cli(*words, "--yes", "--trials", "2", "--events", "e.jsonl", "--json")
    assert first.status == 0, first.err
    found = {each["label"]: each for each in first.json["trials"]}
    assert [found[label]["status"] for label in LABELS[:2]] == ["ok", "oom"]
    assert first.json["stopped"] == "the budget of 2 trials is spent" and first.json["best"]["label"] == "tp1 pp1 dp2 mb1 zero0"
    [script] = first.json["best"]["files"]
    assert script.startswith("runs.trials/tp1-pp1-dp2-mb1-zero0-") and script.endswith("-1/run.sh")
    filled = (here / script).read_text()
    assert "# {kept} ${HOME} pp 1 'tp1 pp1 dp2 mb1 zero0'" in filled
    events = {json.loads(line)["event"] for line in (here / "e.jsonl").read_text().splitlines()}
    assert events >= {"started", "ended", "best", "stopped"}
    assert "--resume goes on with it" in cli(*words, "--yes").err
    second = cli(*words, "--yes", "--resume", "--out", "r.csv")
    assert second.status == 0, second.err
    assert "tp2 mb1: oom on rank 1: torch.OutOfMemoryError" in second.out and "Best: tp1 pp1 dp2 mb1" in second.out
    with sqlite3.connect(here / "runs.db") as db:
        assert db.execute("SELECT count(*), max(attempt) FROM attempts").fetchone() == (3, 1), "nothing is run twice"
    rows = list(csv.DictReader((here / "r.csv").read_text().splitlines()))
    assert [(row["status"], row["tp"], row["framework"]) for row in rows] == [
        ("ok", "1", "megatron"), ("failed", "2", "megatron"), ("ok", "1", "megatron")]
    assert rows[1]["step_time_s"] == "" and float(rows[0]["step_time_s"]) > 30
    assert len(read_runs(read_table(here / "r.csv")).runs) == 3, "validate and calibrate read them"


def test_the_fastest_are_measured_again_by_turns(cli: Cli, words: tuple[str, ...], here: Path) -> None:
    found = cli(*words, "--yes", "--finals", "2", "--json", "--out", "r.csv").json
    assert found["price"]["trials"] == 3 + 3 * 2, "as many blocks as there may be"
    rounds = {each["label"]: each["blocks_s"] for each in found["finals"]["layouts"]}
    assert set(rounds) == {LABELS[0], LABELS[2]} and all(len(steps) == 2 for steps in rounds.values())
    assert found["finals"]["verdict"].startswith("by turns, 2 rounds: ")
    assert {each["label"] for each in found["trials"]} == set(LABELS), "a block is no layout of its own"
    assert found["best"]["label"] in rounds and found["best"]["interval"] == [min(rounds[found["best"]["label"]]),
                                                                              max(rounds[found["best"]["label"]])]
    assert len(list(csv.DictReader((here / "r.csv").read_text().splitlines()))) == 3 + 4
    again = cli(*words, "--yes", "--resume", "--finals", "2")
    assert "By turns, 2 rounds: " in again.out
    with sqlite3.connect(here / "runs.db") as db:
        assert db.execute("SELECT count(*), max(attempt) FROM attempts").fetchone() == (7, 1), "no block is run twice"


def test_rows_as_parquet_are_validated_as_they_are(cli: Cli, words: tuple[str, ...], here: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra arrow is not installed: pip install 'meshwright[arrow]'")
    assert cli(*words, "--yes", "--out", "r.parquet").status == 0
    assert cli(*words, "--yes", "--resume", "--out", "r.csv").status == 0
    both = [cli("validate", name, "--json").json | {"path": ""} for name in ("r.parquet", "r.csv")]
    assert both[0] == both[1] and both[0]["all"]["n"] == 3


WRONG = {
    "--trials 0": "--trials: 0 must be at least 1",
    "--minutes 0": "--minutes: 0 must be above zero",
    "--device-hours 0": "--device-hours: 0 must be above zero",
    "--out same.csv --store same.csv": "same.csv: is the store: name another --out",
    "--out some.csv --force --layouts some.csv": "some.csv: is the file that is read",
    "--events run.sh": "run.sh: --events needs a file of its own: this one is read or written as well",
    "--events runs.db": "runs.db: --events needs a file of its own: this one is read or written as well",
    "--events kind.txt": "kind.txt: holds something else than events: name another --events",
    "--executor local --executor slurm": "--executor: a trial runs on one executor, and local, slurm are given",
    "--executor docker": "--executor: unknown executor 'docker'",
    "--executor ssh --hosts a --reuse": "--reuse: ssh holds nothing between trials: --executor local or slurm",
    "--finals -1": "--finals: -1 must be at least 1",
    "--template none.sh": "none.sh: no such file",
    "--top 3": "--top: --top, --layouts name different layouts: one of them",
    "--reference": "--reference: runs the reference step and --template a script of yours: one of them",
    "--hidden 64": "--hidden: cuts down the model of the reference step: it needs --reference",
    "--out r.txt": "r.txt: is neither a .csv nor a .parquet",
    "--pin tp=2": "--pin: narrows a search, and --layouts names the layouts themselves",
    "--store none/r.db": "none/r.db: its folder is not there",
    "--store torn.db": "torn.db: is there: --resume goes on with it, another --store begins anew",
    "--store torn.db --resume --yes": "torn.db: is no store of trials, or a damaged one (file is not a database): name another "
                                      "--store; a copy of it is torn.db.kept",
    "--store new.db --resume --yes": "new.db: is of version 99, and this release knows 1 and older ones: name another --store; "
                                     "a copy of it is new.db.kept",
    "--store other.db --resume --yes": "other.db: is a database of another program: name another --store",
    "--template some.sh": "some.sh:2: unknown field 'tensor_paralel' (a brace of your own is written twice: "
                          "{{tensor_paralel}}); did you mean tensor_parallel",
    "--template same.sh": "same.sh: has no field {tensor_parallel} or {data_parallel} or {num_microbatches}: 'tp1 pp1 dp2 mb1 "
                          "zero0' and 'tp2 pp1 dp1 mb1 zero0' would run the same",
    "--template kind.txt": "kind.txt: is neither a shell script (.sh) nor a program of Python (.py)",
    "--layouts bad.txt": "bad.txt:2: unknown word 'nonsense'",
    "--layouts empty.txt": "empty.txt: names no layout",
}


@pytest.mark.parametrize("more", WRONG)
def test_what_is_wrong_is_one_line_before_anything_starts(cli: Cli, words: tuple[str, ...], here: Path, more: str) -> None:
    (here / "torn.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    (here / "same.sh").write_text("#!/bin/bash\necho {microbatch_sequences}\n")
    (here / "some.sh").write_text("#!/bin/bash\necho {label} {tensor_paralel}\n")
    (here / "kind.txt").write_text("echo {label}\n")
    (here / "some.csv").write_text("dp2 mb1\n")
    (here / "bad.txt").write_text("dp2 mb1\ntp2 nonsense\n")
    (here / "empty.txt").write_text("# nothing\n")
    with sqlite3.connect(here / "new.db") as db:
        db.execute("PRAGMA application_id=0x4D534857")
        db.execute("PRAGMA user_version=99")
    with sqlite3.connect(here / "other.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    given = [word for word in words if not (word in ("--layouts", "layouts.txt") and "--layouts" in more)]
    given = [word for word in given if not (word in ("--template", "run.sh") and more.startswith("--template"))]
    answer = cli(*given, *more.split())
    assert (answer.status, answer.out) == (2, "")
    assert answer.lines[0].startswith(f"error: {WRONG[more]}"), answer.err
    assert not (here / "runs.db").exists() and not (here / "runs.trials").exists()
    kept = more.startswith("--store") and "kept" in WRONG[more]
    assert [path.name for path in here.glob("*.kept")] == ([more.split()[1] + ".kept"] if kept else [])


def test_nobody_who_could_be_asked(cli: Cli, words: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = cli(*words)
    assert answer.status == 2 and "start it with --yes" in answer.err and "3 trials" in answer.err


def test_fewer_layers_stand_for_all_with_what_that_may_be_wrong_by(cli: Cli, words: tuple[str, ...], here: Path) -> None:
    (here / "run.sh").write_text(SCRIPT.replace("{{kept}}", "layers {layers}"))
    answer = cli(*words, "--yes", "--trials", "1", "--truncate", "2", "--json", "--out", "r.csv")
    (trial,) = answer.json["trials"]
    factor = float(re.search(r"2 of 4 layers, times ([\d.]+) by the cost model", trial["evidence"])[1])  # type: ignore[index]
    error = float(re.search(r"off by ([\d.]+) %", trial["evidence"])[1]) / 100  # type: ignore[index]
    assert 1.0 < factor < 2.0 and trial["step_s"] == pytest.approx(32.1 * factor, rel=0.05)
    assert trial["interval"][1] / trial["step_s"] - 1 >= 0.9 * error > 0
    (row,) = csv.DictReader((here / "r.csv").read_text().splitlines())
    assert row["flag"] == "scaled from 2 layers"
    assert "# layers 2 " in (here / "runs.trials" / trial["folder"] / "run.sh").read_text()
    more = ("--yes", "--store", "b.db", "--truncate")
    assert "--truncate: llama3-8b-4l has 4 layers: fewer are wanted" in cli(*words, *more, "4").err
    (here / "run.sh").write_text("#!/bin/bash\n# {label}\n")
    assert "run.sh: has no field {layers}, and --truncate" in cli(*words, *more, "2").err


def test_whoever_is_asked_may_say_no(words: tuple[str, ...], here: Path) -> None:
    (here / "plans.json").write_text(json.dumps({"plans": [{"label": "dp2 mb1"}, {"label": "tp2 mb1"}]}))
    request = SweepRequest(model="llama3-8b", layers=4, device="cpu", devices=2, global_batch=8, sequence=64, template="run.sh",
                           layouts="plans.json")
    said: list[str] = []

    def no(line: str) -> bool:
        said.append(line)
        return False

    with pytest.raises(NoAnswerError, match="nothing was started"):
        sweep(request, confirm=no)
    assert said[0].startswith("2 trials of run.sh, as Megatron-LM lays it out on local: about ") and not (here / "runs.db").exists()


def test_an_output_without_a_step_is_no_measurement(cli: Cli, words: tuple[str, ...], here: Path) -> None:
    (here / "run.sh").write_text(f"#!/bin/bash\n# {{label}}\nexec python3 {STAND_IN} nothing\n")
    answer = cli(*words, "--yes", "--trials", "1")
    assert answer.status == 1
    assert "parse: it ended well and printed no step; its last line: hello" in answer.out
    assert "No trial ended with a measured step." in answer.out


def test_another_sweep_that_measures_on_this_machine(cli: Cli, words: tuple[str, ...], here: Path) -> None:
    from meshwright.measure.executors.devices_here import leased

    lease = leased(1, accelerators=False)
    answer = cli(*words, "--yes")
    lease.close()
    assert (answer.status, answer.out) == (1, "")
    assert answer.lines == ["error: --executor: another sweep of yours is measuring on this machine: it would measure both"]


def test_no_accelerators(cli: Cli, words: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.measure.executors.devices_here.accelerators_here", lambda: ((0,), {0: "python (7)"}))
    given = [("h100-sxm" if word == "cpu" else word) for word in words]
    assert "--executor: 2 accelerators are needed and this machine has 1" in cli(*given, "--yes").err
    monkeypatch.setattr("meshwright.measure.executors.devices_here.accelerators_here", lambda: ((0, 1), {0: "python (7)"}))
    busy = cli(*given, "--yes")
    assert (busy.status, busy.lines) == (1, ["error: --executor: 2 accelerators are needed and 1 are free (device 0: python (7))"])


def test_rows_that_cannot_be_written_lose_no_measurement(
    cli: Cli, words: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "r.csv").write_text("mine\n")
    refused = cli(*words, "--yes", "--out", "r.csv")
    assert refused.status == 2 and "r.csv" in refused.err and not (here / "runs.db").exists(), "before anything has started"
    (here / "r.csv").unlink()
    monkeypatch.setattr("meshwright.api.measuring.rows.write_rows", _no_room)
    late = cli(*words, "--yes", "--trials", "1", "--out", "r.csv")
    assert late.status == 2 and "Best: tp1 pp1 dp2 mb1" in late.out
    price, runs, ended, error = late.lines
    assert "1 trial of run.sh" in price and "device-hours" in price, "said where nobody is asked"
    assert runs.endswith(" dp2 mb1 runs") and "[1 of 1 trials" in ended and "predicted)" in ended
    assert error == "error: r.csv: no space left on the device"


def _no_room(path: str, rows: object, *, force: bool) -> None:
    raise fault("file.full", "no space left on the device", path=path)
