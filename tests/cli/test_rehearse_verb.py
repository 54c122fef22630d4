"""``meshwright rehearse``: what is wrong is said before anything is measured; what is run is shown, kept, and not run again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cli_case import instead

from meshwright.measure.rehearse.rounds import Ran

pytest.importorskip("torch")
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Answer
    from meshwright.measure.rehearse.rounds import Job, Runner

    Cli = Callable[..., Answer]

TINY = ("--cluster", "cpu", "--ranks", "2", "--step-seconds", "0.01", "--layouts", "4", "--rounds", "2")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Runs that were made, in place of real ones: each takes a quarter longer than predicted."""
    made: list[Job] = []

    def once(job: Job) -> Ran:
        made.append(job)
        return Ran([1.25 * job.predicted_s] * 3)

    def instead(start: object = None) -> Runner:
        return once

    monkeypatch.setattr("meshwright.measure.rehearse.rounds.real", instead)
    return made


def test_the_table_and_the_sentence(cli: Cli, runs: list[Job]) -> None:
    answer = cli("rehearse", *TINY)
    assert answer.status == 0, answer.err
    assert len(runs) == 8
    assert "2 ranks on" in answer.out
    assert "-20 %" in answer.out and "rank correlation" in answer.out
    assert "Believe the choice (its layout is the fastest of 4, repetitions differ by 0.0 %) and the seconds (" in " ".join(
        answer.out.split()
    )


def test_the_document_of_four_ranks_says_that_they_wait_for_each_other(
    cli: Cli, runs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshwright.measure.rehearse.rehearsal.cores_here", lambda: 2)
    answer = cli("rehearse", "--cluster", "cpu", "--ranks", "2", "--ranks", "4", "--quick", "--layouts", "3", "--json")
    assert answer.status == 0, answer.err
    two, four = answer.json["rehearsals"]
    assert (two["oversubscribed"], four["oversubscribed"], four["ranks"], four["rounds"]) == (False, True, 4, 2)
    assert four["verdict"] == "4 ranks on 2 cores wait for each other: shown, not judged."
    entry = two["entries"][0]
    assert entry["rank_predicted"] == entry["rank_measured"] == entry["planned"] == 1
    assert entry["measured_s"] == pytest.approx(1.25 * entry["predicted_s"])
    assert two["scores"]["median_error_ratio"] == pytest.approx(0.2)
    assert len(entry["runs_s"]) == 2
    assert not two["profiled"]


def test_what_is_kept_is_not_run_again(cli: Cli, runs: list[Job], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    first = cli("rehearse", *TINY, "--out", out, "--json")
    assert len(runs) == 8
    again = cli("rehearse", *TINY, "--out", out, "--json")
    assert len(runs) == 8
    assert first.json == again.json
    more = cli("rehearse", *instead(TINY, ("--layouts", "5")), "--out", out)
    assert (more.status, len(runs)) == (0, 10)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["rehearsal-2.json", "rehearsal-2.svg", "runs.jsonl"]
    assert json.loads((tmp_path / "out" / "rehearsal-2.json").read_text())["ranks"] == 2
    assert (tmp_path / "out" / "rehearsal-2.svg").read_text().startswith("<svg")


def test_one_rank_runs_several_models(cli: Cli, runs: list[Job], tmp_path: Path) -> None:
    out = tmp_path / "out"
    answer = cli("rehearse", "--cluster", "cpu", "--ranks", "1", "--quick", "--step-seconds", "0.01", "--out", str(out), "--json")
    assert answer.status == 0, answer.err
    views = answer.json["rehearsals"]
    assert [len(view["entries"]) for view in views] == [2, 2, 2]
    assert len({(view["model"], view["sequence_tokens"]) for view in views}) == 3
    assert len(runs) == 12
    assert [len(list(out.glob(f"rehearsal-1-{number}.*"))) for number in (1, 2, 3)] == [2, 2, 2]


def test_a_model_of_the_catalogue(cli: Cli, runs: list[Job]) -> None:
    answer = cli(
        "rehearse", *TINY, "--model", "llama3-8b", "--layers", "2", "--hidden", "512", "--vocabulary", "512",
        "--global-batch", "4", "--sequence", "64", "--json",
    )
    assert answer.status == 0, answer.err
    (view,) = answer.json["rehearsals"]
    assert (view["model"], view["global_batch_sequences"], view["sequence_tokens"]) == ("llama3-8b-2l", 4, 64)


def test_an_interrupt_shows_what_is_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Job] = []

    def once(job: Job) -> Ran:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(job)
        return Ran([1.0])

    monkeypatch.setattr("meshwright.measure.rehearse.rounds.real", lambda start=None: once)
    answer = cli("rehearse", *TINY)
    assert answer.status == 130
    assert "interrupted" in answer.out and "not reached" in " ".join(answer.out.split()), "lines are broken where the screen ends"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ranks", "0"), "--ranks: 0 must be at least 1"),
        (("--ranks", "1000"), "1000 ranks are not within 1 and 64"),
        (("--rounds", "0"), "--rounds: 0 must be at least 1"),
        (("--layouts", "-1"), "--layouts: -1 must be at least 1"),
        (("--step-seconds", "0"), "--step-seconds: 0 must be above zero"),
        (("--hidden", "64"), "--hidden needs --model"),
        (("--model", "llama3-8b"), "--model needs --global-batch"),
        (("--cluster", "nowhere.yaml"), "nowhere.yaml"),
        (("--precision", "fp7"), "fp7"),
        (("--backend", "tpu"), "'tpu' is none of cpu, cuda"),
        (("--model", "llama3-8b", "--global-batch", "4", "--sequence", "64"), "no layout of llama3-8b over 2 ranks fits"),
        (("--model", "llama3-8b", "--layers", "99", "--global-batch", "4", "--sequence", "64"), "99"),
    ],
)
def test_bad_input_is_one_line(cli: Cli, runs: list[Job], arguments: tuple[str, ...], said: str) -> None:
    answer = cli("rehearse", *instead(TINY, arguments))
    assert answer.status in (1, 2)
    assert any(said in line for line in answer.lines), answer.err
    assert all(line.startswith("error: ") for line in answer.lines)
    assert not runs


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "nobodys", "--global-batch", "4", "--sequence", "64"), "unknown model 'nobodys'"),
        (("--model", "llama3-8b", "--experts", "4", "--global-batch", "4", "--sequence", "64"), "llama3-8b has no experts"),
        (("--precision", "fp8-cs"), "precision fp8-cs is not in the reference step"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_profiled(
    cli: Cli, runs: list[Job], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the machine was profiled")

    monkeypatch.setattr("meshwright.measure.here.by_profile", never)
    answer = cli("rehearse", *arguments)
    assert (answer.status, len(answer.lines)) == (2, 1)
    assert said in answer.err
    assert not runs


def test_a_place_that_cannot_be_written(cli: Cli, runs: list[Job], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        answer = cli("rehearse", *TINY, "--out", str(place))
        assert answer.status == 2 and len(answer.lines) == 1
    assert not runs


def test_without_torch_the_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.engine.launch.find_spec", lambda name: None)
    for verb in (("rehearse",), ("step", "llama3-8b", "--global-batch", "2", "--sequence", "64", "--layout", "dp2")):
        answer = cli(*verb)
        assert answer.status == 2
        assert answer.lines == ["error: this needs PyTorch, which is not installed: pip install 'meshwright[torch]'"]
