"""``meshwright tune``: trials of a stand-in are chosen, learnt from and ended; what does not go together is said first."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Answer

    Cli = Callable[..., Answer]

STAND_IN = Path(__file__).parents[2] / "benchmarks" / "stand_in.py"
CASE = ("llama3-8b", "--layers", "4", "--device", "cpu", "--devices", "2", "--global-batch", "8", "--sequence", "64")
SCRIPT = f"""#!/bin/bash
# {{pipeline_parallel}} {{data_parallel}} {{num_microbatches}}
case {{tensor_parallel}}{{pipeline_parallel}} in 2*) kind=oom; ms=30000;; 12) kind=ok; ms=20000;; *) kind=ok; ms=30000;; esac
exec python3 {STAND_IN} "$kind" "$ms"
"""
LAYOUTS = ("dp2 mb1", "dp2 mb2", "dp2 mb4", "pp2 mb1", "tp2 mb1", "tp2 mb4")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script and some layouts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(SCRIPT)
    (tmp_path / "layouts.txt").write_text("\n".join(LAYOUTS))
    return tmp_path


@pytest.fixture
def words(here: Path) -> tuple[str, ...]:
    return ("tune", *CASE, "--template", "run.sh", "--layouts", "layouts.txt", "--steps", "9")


def test_a_tune_finds_the_fastest_and_says_what_is_left(cli: Cli, words: tuple[str, ...], here: Path) -> None:
    dry = cli(*words, "--dry-run", "--json")
    assert dry.status == 0, dry.err
    assert len(dry.json["dry_run"]) == 1 and dry.json["layouts"] == len(LAYOUTS), "the first trial is sure, no other is"
    assert not (here / "runs.db").exists()
    found = cli(*words, "--yes", "--json", "--out", "runs.csv", "--events", "e.jsonl").json
    begun = [each["label"] for each in map(json.loads, (here / "e.jsonl").read_text().splitlines()) if each["event"] == "started"]
    assert dry.json["dry_run"][0]["label"] == begun[0]
    assert dry.json["planned"][0]["predicted_step_s"] == min(each["predicted_step_s"] for each in dry.json["planned"])
    assert found["best"]["label"] == "tp1 pp2 dp1 mb1 zero0"
    assert found["best"]["step_s"] == pytest.approx(20.0, rel=0.2)
    assert 0 < len(found["trials"]) <= len(LAYOUTS)
    assert found["sampler"] == "model" and 0.0 <= found["probability_better"] <= 1.0 and found["expected_gain_ratio"] >= 0.0
    assert f"{len(found['trials'])} trials of 6 layouts" in found["verdict"]
    assert (here / "runs.csv").exists() and found["out"] == "runs.csv"
    more = cli(*words, "--yes", "--resume", "--json").json
    assert more["device_hours"] == 0.0 and more["verdict"] == found["verdict"], "nothing was run again, and all of it was paid"
    again = cli(*words, "--yes", "--resume")
    assert again.status == 0, again.err
    assert "Best: tp1 pp2 dp1 mb1" in again.out and "device-hours: tp1 pp2" in again.out


def test_chance_has_no_rule_to_stop_and_a_budget_is_kept(cli: Cli, words: tuple[str, ...]) -> None:
    found = cli(*words, "--yes", "--sampler", "random", "--trials", "2", "--json").json
    assert len(found["trials"]) == 2 and found["stopped"] == "the budget of 2 trials is spent"
    assert found["probability_better"] is None and "random does not say what is left" in found["verdict"]


WRONG = {
    "--cell x": "--cell: needs --replay CSV: recorded runs",
    "--seeds 2": "--seeds: needs --replay CSV: recorded runs",
    "--sampler best": "--sampler: 'best' is none of model, tpe, gp, random",
    "--stop-probability 2": "--stop-probability: 2 must be above 0 and at most 1",
    "--replay no.csv": "MODEL: is the file's to say with --replay: leave it out",
    "--top 3": "--top: --top, --layouts name different layouts: one of them",
    "--trials 0": "--trials: 0 must be at least 1",
}


@pytest.mark.parametrize("given", WRONG)
def test_what_does_not_go_together_is_one_line(cli: Cli, words: tuple[str, ...], given: str, here: Path) -> None:
    found = cli(*words, *given.split(), "--yes")
    assert found.status == 2
    assert any(line.startswith(f"error: {WRONG[given]}") for line in found.lines), found.err
    assert not (here / "runs.db").exists()


def test_nobody_who_can_be_asked_means_that_nothing_is_started(cli: Cli, words: tuple[str, ...], here: Path) -> None:
    found = cli(*words)
    assert found.status == 2 and "at most 6 trials" in found.err and "--yes" in found.err
    assert not (here / "runs.db").exists()


PRETENDED = {
    "torchrun": f"""#!/bin/bash
kind=ok; ms=300
case "$*" in *"--tensor-model-parallel-size 2"*) kind=oom;; *"--micro-batch-size 2"*) ms=200;; esac
exec python3 {STAND_IN} $kind $ms
""",
    "nvidia-smi": "#!/bin/bash\ncase \"$*\" in *index,uuid*) printf '0, GPU-0\\n1, GPU-1\\n';; esac\n",
}
"""Programs in the place of PyTorch's launcher and of the driver's tool: two accelerators, and a log of Megatron's."""


def test_a_frameworks_own_launch_files_are_tuned(cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "bin").mkdir()
    for name, text in PRETENDED.items():
        (here / "bin" / name).write_text(text)
        (here / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{here / 'bin'}:{os.environ['PATH']}")
    (here / "layouts.txt").write_text("dp2 mb1 zero1\ndp2 mb2 zero1\ntp2 sp mb1\ntp2 sp mb2\n")
    found = cli(
        "tune", "llama3-8b", "--layers", "4", "--device", "h100-sxm", "--devices", "2", "--devices-per-node", "2",
        "--global-batch", "8", "--sequence", "4096", "--framework", "megatron", "--layouts", "layouts.txt", "--steps", "9",
        "--yes", "--json",
    )
    assert found.status == 0, found.err
    assert found.json["program"].startswith("Megatron-LM") and found.json["best"]["label"] == "tp1 pp1 dp2 mb2 zero1"
    assert any(path.endswith("train.sh") for path in found.json["best"]["files"])
    assert {each["status"] for each in found.json["trials"]} <= {"ok", "oom"}


def test_rows_that_cannot_be_written_lose_no_finding(cli: Cli, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(path: str, rows: object, *, force: bool) -> None:
        raise fault("file.full", "no space left on the device", path=path)

    monkeypatch.setattr("meshwright.api.measuring.rows.write_rows", no_room)
    late = cli(*words, "--yes", "--trials", "1", "--out", "r.csv")
    assert late.status == 2 and "1 trial of 6 layouts" in late.out
    assert late.lines[-1] == "error: r.csv: no space left on the device"
