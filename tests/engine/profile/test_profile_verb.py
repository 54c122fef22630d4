"""``meshwright profile`` end to end on a tiny list of jobs, and every way to ask wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli import main
from meshwright.domain.sample import Sample
from meshwright.engine.profile import run as profile_run
from meshwright.engine.profile.jobs import World, every_job, work_flops
from meshwright.engine.profile.request import Care

pytest.importorskip("torch")

TINY: dict[str, Any] = {
    "products": {"rows": [16, 64], "columns": [16, 48], "inner": [32, 64]},
    "attention": [[1, 2, 2, 16, 8], [1, 4, 2, 32, 8]],
    "grouped": [[16, 16, 16, 2]],
    "passes": {"norm": {"widths": [32], "elements": [8, 10]}, "gate": {"widths": [32], "elements": [8, 10]}},
    "collectives": [8, 11, 14],
    "transfers": [8, 12],
    "memory": [18],
    "messages": [64],
    "beside": [1024],
}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Few jobs, timed in haste, in a directory of their own; what a busy machine does to them does not matter."""
    monkeypatch.setattr(profile_run, "jobs", lambda kind, world, quick: tuple(every_job(TINY, kind, world)))
    monkeypatch.setattr(profile_run, "too_noisy", lambda _: False)
    monkeypatch.setattr(profile_run, "QUICK", Care(tolerance=100.0, block_s=1e-4))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profile(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["profile", *words])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_profile_is_a_cluster_file_that_plans_take(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--quick", "--minutes", "30", "--device", "cpu", "--ranks", "2", "--out", "here.yaml", "--force")
    status, out, err = profile(capsys, *words, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["path"] == "here.yaml"
    assert {"product", "attention", "pass"} <= {each["bench"] for each in found["fit"]}
    assert found["samples"] == len(every_job(TINY, "cpu", World(ranks=2, ranks_per_node=2)))
    assert found["noise_ratio"] >= 1.0
    assert found["seconds"] > 0
    assert found["device"]
    assert sum(each["samples"] for each in found["benches"]) == found["samples"]
    assert (tiny / "here.samples.jsonl").read_text().count("\n") == found["samples"] + 1

    status, out, err = profile(capsys, *words)
    assert status == 0
    assert f"{found['samples']} samples" in out
    assert "of them from before" in out
    assert "cluster file  here.yaml" in out
    assert "the cost model" in out and "says it again" in out
    for word in ("matrix product forward", "collective all-reduce of 2", "host, sharded unit backward", "pass norm"):
        assert word in out

    status = main(["estimate", "llama3-8b", "--cluster", "here.yaml", "--layers", "1", "--global-batch", "2", "--sequence", "64",
                   "--layout", "dp2 mb1", "--json"])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert json.loads(out)


def test_a_rank_that_dies_leaves_the_samples(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job that is given is measured; then one that no rank can build."""
    good, bad = (
        every_job(TINY, "cpu", World(ranks=1, ranks_per_node=1))[:6],
        profile_run.Job(bench="pass", arguments={"kind": "strange"}),
    )
    monkeypatch.setattr(profile_run, "jobs", lambda kind, world, quick: (*good, bad))
    status, _, err = profile(capsys, "--quick", "--device", "cpu", "--ranks", "1", "--out", "here.yaml")
    assert status == 1
    assert err.startswith("error: rank 0: error: KeyError: ")
    assert not (tiny / "here.yaml").exists()
    assert (tiny / "here.samples.jsonl").read_text().count("\n") == 7


def test_a_noisy_machine_gets_no_cluster_file_unless_forced(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples as a machine gives them whose blocks sometimes take four times as long."""
    products = [job for job in every_job(TINY, "cpu", World(ranks=1, ranks_per_node=1)) if job.bench == "product"]
    times = {"seconds": 1.1e-5, "low_s": 1e-5, "high_s": 1.3e-5, "best_s": 1e-5, "worst_s": 4e-5, "load": 3.0}
    samples = tuple(
        Sample(
            bench="product", arguments=job.arguments, busy_ranks=1, blocks=9, calls=5, values={"flops": work_flops(job)}, **times
        )
        for job in products
    )
    machine = profile_run.this_machine("cpu", ranks=1, ranks_per_node=1, threads=1)
    found = profile_run.Profile(machine=machine, samples=samples, seconds=1.0, reused=0)
    monkeypatch.setattr(profile_run, "measured", lambda *_: found)
    words = ("--quick", "--device", "cpu", "--ranks", "1", "--out", "here.yaml")
    status, out, err = profile(capsys, *words)
    assert status == 1
    assert "the machine was too noisy: blocks of products took up to 4.0 times" in err
    assert "matrix product forward" in out
    assert "noisy machine" in out
    assert not (tiny / "here.yaml").exists()
    status, out, _ = profile(capsys, *words, "--force", "--json")
    assert status == 0
    assert json.loads(out)["noisy"]
    assert (tiny / "here.yaml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "here.json"], "does not end in .yaml"),
        (["--out", "nowhere/here.yaml", "--samples", "s.jsonl"], "its directory does not exist"),
        (["--samples", "nowhere/s.jsonl"], "its directory does not exist"),
        (["--samples", "s.yaml"], "is the name of a cluster file"),
        (["--ranks", "0"], "0 ranks"),
        (["--ranks", "-1"], "--ranks"),
        (["--ranks", "two"], "is not a number"),
        (["--minutes", "0"], "--minutes"),
        (["--device", "tpu"], "--device"),
        (["--name", "My Cluster"], "is no name of a cluster"),
        (["--device", "cuda"], "reaches no cuda device"),
        (["--device", "npu"], "reaches no npu device"),
        (["extra"], "extra"),
    ],
)
def test_nothing_is_measured_for_a_question_that_is_wrong(
    words: list[str], said: str, tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_run, "launch", lambda *_, **__: pytest.fail("it is refused before"))
    status, out, err = profile(capsys, "--quick", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert list(tiny.iterdir()) == []


def test_samples_of_another_machine_or_nonsense_are_refused(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_run, "launch", lambda *_, **__: pytest.fail("it is refused before"))
    machine = profile_run.this_machine("cpu", ranks=1, ranks_per_node=1, threads=1).document() | {"name": "Another"}
    (tiny / "other.jsonl").write_text(json.dumps({"format": "meshwright samples 1", "machine": machine}) + "\n")
    (tiny / "nonsense.jsonl").write_text("rows,columns\n1,2\n")
    for file, said in (("other.jsonl", "another machine"), ("nonsense.jsonl", "line 1")):
        status, _, err = profile(capsys, "--device", "cpu", "--ranks", "1", "--samples", file)
        assert status == 2
        assert said in err
        assert len(err.splitlines()) == 1


def test_without_torch_the_extra_is_named(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.engine import launch

    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    status, _, err = profile(capsys, "--ranks", "1")
    assert status == 2
    assert "pip install 'meshwright[torch]'" in err


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "0", "WORLD_SIZE": "4"}, "MASTER_ADDR"),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "LOCAL_WORLD_SIZE is not set"),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "LOCAL_WORLD_SIZE=3"),
        ({"RANK": "0", "WORLD_SIZE": "many", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "many"),
    ],
)
def test_a_world_that_cannot_be_is_refused(
    environment: dict[str, str], said: str, tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    status, _, err = profile(capsys, "--device", "cpu")
    assert status == 2
    assert said in err


def test_a_file_that_no_profile_wrote_is_kept(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tiny / "mine.yaml").write_text("clusters: {mine: {like: workstation}}\n")
    status, _, err = profile(capsys, "--quick", "--ranks", "1", "--out", "mine.yaml")
    assert (status, err) == (2, "error: mine.yaml: exists; --force replaces it\n")
