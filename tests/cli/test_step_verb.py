"""``meshwright step``: one layout for real, and everything that stands against one."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cli_case import instead

pytest.importorskip("torch")
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Answer

    Cli = Callable[..., Answer]

SMALL = (
    "llama3-8b", "--layers", "2", "--hidden", "256", "--vocabulary", "256", "--global-batch", "4", "--sequence", "16",
    "--steps", "2", "--warmup", "1",
)


@pytest.mark.usefixtures("forked")
def test_a_run_beside_its_estimate(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "run.json"
    record = ("--record", str(tmp_path / "record"))
    answer = cli("step", *SMALL, "--layout", "dp2 zero1", "--cluster", "cpu", "--profiled", "--save", str(place), *record)
    assert answer.status == 0, answer.err
    assert sorted(each.name for each in (tmp_path / "record").iterdir()) == ["rank-0.jsonl", "rank-1.jsonl"]
    again = cli("step", *SMALL, "--layout", "dp2 zero1", *record)
    assert again.status == 2
    assert "has the records of another run" in again.err
    for words in (
        "llama3-8b-2l: tp1 pp1 dp2 mb1 zero1",
        "step, median",
        "predicted",
        "exposed communication",
        "activations",
        "MFU",
    ):
        assert words in answer.out
    document = json.loads(place.read_text())
    assert document["world"] == 2 and document["tokens"] == 64
    assert len(document["steps_s"]) == 2 and len(document["losses"]) == 3
    assert document["error_ratio"] == pytest.approx(document["estimate"]["step_s"] / document["step_s"] - 1.0)
    assert all(math.isfinite(loss) for loss in document["losses"])
    assert len(document["ranks"]) == 2


def test_ranks_that_torchrun_started_join(tmp_path: Path) -> None:
    """As torchrun does: variables of each rank; the first one prints."""
    arguments = [sys.executable, "-m", "meshwright", "step", *SMALL, "--layout", "dp2", "--json"]
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    ranks = [
        subprocess.Popen(
            arguments, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]
    (first, _), (second, _) = (rank.communicate(timeout=120) for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0]
    document = json.loads(first)
    assert document["world"] == 2 and document["mfu_ratio"] is None and document["estimate"] is None
    assert second == ""


def _free_port() -> int:
    import socket

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--layout", "tp2"), "tp=2 does not divide the key-value heads (1)"),
        (("--layout", "dp2000"), "tp x cp x pp x dp = 2000 ranks are not within 1 and 64"),
        (("--layout", "dp3"), "global batch 4 is no multiple of dp x mb"),
        (("--layout", "dp2 zero9"), "ZeRO stages are 0 to 3"),
        (("--layout", "cp2 context=ring"), "context=ring is not in the reference step"),
        (("--layout", "CP2 CONTEXT=RING"), "context=ring is not in the reference step"),
        (("--layout", "tp2 overlap=tp"), "overlap=tp is not in the reference step"),
        (("--layout", "dp2 offload=optimizer"), "offload=optimizer is not in the reference step"),
        (("--layout", "dp2", "--precision", "fp8-cs"), "precision fp8-cs is not in the reference step"),
        (("--layout", "dp2", "--steps", "0"), "--steps: 0 must be at least 1"),
        (("--layout", "dp2", "--hidden", "9999"), "hidden=9999"),
        (("--layout", "dp2", "--save", "/nowhere/run.json"), "its directory does not exist"),
        (("--layout", "dp2", "--cluster", "nowhere.yaml"), "nowhere.yaml"),
        ((), "--layout is missing"),
    ],
)
def test_what_stands_against_it_is_said_before_anything_starts(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    answer = cli("step", *instead(SMALL, arguments))
    assert answer.status == 2
    assert any(said in line for line in answer.lines), answer.err
    assert all(line.startswith("error: ") for line in answer.lines)


def test_everything_that_is_missing_is_said_at_once(cli: Cli) -> None:
    answer = cli("step")
    assert answer.status == 2
    assert answer.lines == [f"error: {name} is missing" for name in ("MODEL", "--layout", "--global-batch", "--sequence")]


def test_what_the_host_cannot_hold_is_not_started(cli: Cli) -> None:
    answer = cli("step", "llama3-405b", "--global-batch", "4", "--sequence", "16", "--layout", "dp2")
    assert answer.status == 1
    assert "of this host are free" in answer.err and len(answer.lines) == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "RANK is set, as under torchrun, but MASTER_ADDR, MASTER_PORT are not"),
        ({"RANK": "0", "WORLD_SIZE": "two", "MASTER_ADDR": "here", "MASTER_PORT": "1"}, "WORLD_SIZE='two' is not a number"),
        ({"RANK": "0", "WORLD_SIZE": "²", "MASTER_ADDR": "here", "MASTER_PORT": "1"}, "WORLD_SIZE='²' is not a number"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}, "RANK=2 is not in a world of WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "1"}, "the layout is for 2 ranks"),
    ],
)
def test_ranks_that_do_not_go_together(cli: Cli, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", *variables):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    answer = cli("step", *SMALL, "--layout", "dp2")
    assert answer.status == 2
    assert any(said in line for line in answer.lines), answer.err
