"""Ranks end together, and the user is told why: whatever dies, one line names the first cause."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.parity import case

from meshwright.engine import launch as launcher
from meshwright.engine.classify import Failure, by_signal, classify, first_cause
from meshwright.engine.launch import Task, launch, warn_of_cores
from meshwright.engine.request import Options
from meshwright.engine.run import run_request
from meshwright.errors import InputError, NoAnswerError, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytest.importorskip("torch")
STUCK_S = 600.0


def started(code: str, ranks: int = 2, **more: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return launch(Task(target="builtins:exec", payload=code), ranks, **more)


def failure(code: str, **more: Any) -> str:
    with pytest.raises(NoAnswerError) as caught:
        started(code, **more)
    (message,) = caught.value.messages
    return str(message)


def test_a_rank_that_dies_ends_the_other_and_is_named(tmp_path: Path) -> None:
    """The other one would wait for a minute; its process is gone when the error is raised."""
    code = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['RANK']).write_text(str(os.getpid()))\n"
        "import torch.distributed as dist; dist.barrier()\n"
        "if os.environ['RANK'] == '1': raise ValueError('the second one')\n"
        f"time.sleep({STUCK_S})\n"
    )
    begin = time.monotonic()
    text = failure(code)
    assert text == "rank 1: error: ValueError: the second one"
    assert time.monotonic() - begin < STUCK_S
    for rank in ("0", "1"):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / rank).read_text()), 0)


def test_a_rank_that_says_nothing_is_told_by_its_exit() -> None:
    dying = "import os, sys; print('halfway', flush=True); os.environ['RANK'] == '0' and os._exit(7); import time; time.sleep(600)"
    assert failure(dying) == "rank 0: error: exit status 7; its last lines: halfway"
    killed = "import os, signal; os.environ['RANK'] == '1' and os.kill(os.getpid(), signal.SIGKILL); import time; time.sleep(600)"
    assert failure(killed).startswith("rank 1: killed: killed by the system (signal 9)")


def test_memory_that_runs_out_is_classified_and_a_lost_peer_is_no_cause() -> None:
    code = (
        "import os, torch, torch.distributed as dist\n"
        "torch.empty(1 << 50) if os.environ['RANK'] == '1' else dist.all_reduce(torch.zeros(1))"
    )
    text = failure(code)
    assert text.startswith("rank 1: out of memory: ")
    assert str(4 << 50) in text


def test_a_port_that_is_taken_is_said_by_its_number(tmp_path: Path) -> None:
    """Only ranks that another program starts meet at a port: here as the first of two."""
    launcher.write_task(tmp_path, Task(target="os:getenv", payload="RANK"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        found = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-m", "meshwright.engine.worker", str(tmp_path)]
        done = subprocess.run(command, env={**os.environ, **found}, check=False, capture_output=True)
    assert done.returncode == 1
    said = json.loads((tmp_path / "failure-0").read_text())
    assert said["kind"] == "port"
    assert said["text"] == f"MASTER_PORT {port}, at which ranks meet, is taken by another program: choose one that is free"


def test_ranks_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    own = f"pathlib.Path({str(tmp_path)!r}, os.environ['RANK'])"
    inside = f"import os, pathlib, time; {own}.write_text(str(os.getpid())); time.sleep(600)"
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        f"from meshwright.engine.launch import Task, launch; launch(Task(target='builtins:exec', payload={inside!r}), 2)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code])
    try:
        pids = [int(wait_for(lambda rank=rank: read(tmp_path / rank))) for rank in "01"]
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    for pid in pids:
        wait_for(lambda pid=pid: not alive(pid))


def wait_for(found: Callable[[], Any]) -> Any:
    """What ``found`` gives as soon as it gives anything; a minute is far more than it takes."""
    until = time.monotonic() + 60.0
    while not (value := found()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return value


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_run_that_takes_too_long_is_ended() -> None:
    assert failure("import time; time.sleep(600)", limit_s=0.5).startswith("rank 0: timeout: not done within 0.5 s")


@pytest.mark.usefixtures("fresh")
def test_results_come_back_by_rank_and_no_port_is_used() -> None:
    """MASTER_PORT of the surroundings, taken or not, does not matter."""
    task = Task(target="os:getenv", payload="RANK")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert launch(task, 2, environment={}) == ["0", "1"]


def test_a_loss_that_is_no_number_stops_the_run() -> None:
    _, request = case("dense dp2 zero0", 2)
    model = replace(request.model, rotary_base=1e-300)  # frequencies without bound
    with warnings.catch_warnings(), pytest.raises(NoAnswerError) as caught:
        warnings.simplefilter("ignore", UserWarning)
        run_request(replace(request, model=model))
    (message,) = caught.value.messages
    assert message.id == "engine.nan"
    assert "the loss of step 0 is nan" in str(message)


def test_a_run_reports_and_writes_what_it_measured(tmp_path: Path) -> None:
    _, request = case("dense dp2 zero1 mb2", 2)
    trace = tmp_path / "trace"
    request = replace(
        request, flops_per_step=1e9, peak_flops_per_s=1e11, options=Options(steps=3, warmup_steps=1, trace=str(trace))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        report = run_request(request, save=tmp_path / "run.json")
    assert len(report.steps_s) == 3
    assert len(report.losses) == 4
    assert report.tokens == 8 * 32
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["step_s"] == report.step_s == sorted(report.steps_s)[1]
    assert written["step"]["p90_s"] == written["step"]["max_s"] == max(report.steps_s)
    assert written["step"]["min_s"] == min(report.steps_s)
    assert written["tokens_per_s"] == pytest.approx(256 / report.step_s)
    assert written["mfu_ratio"] == pytest.approx(1e9 / report.step_s / 2 / 1e11)
    assert [rank["rank"] for rank in written["ranks"]] == [0, 1]
    for rank in report.ranks:
        memory = rank.memory_bytes
        assert memory["parameters"] == memory["gradients"] == 4 * rank.parameters
        assert memory["optimizer"] == 8 * rank.parameters / 2, "two moments of half of the elements: ZeRO-1"
        assert memory["activations"] is not None
        assert memory["activations"] > 0
        assert rank.communication_s is not None
        assert rank.communication_exposed_s is not None
        assert 0 < rank.communication_exposed_s <= rank.communication_s
    assert sorted(path.name for path in trace.iterdir()) == ["rank-0.json", "rank-1.json"]
    assert json.loads((trace / "rank-0.json").read_text())["traceEvents"]


def test_a_request_that_cannot_run_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_start", None)
    _, request = case("dense dp2 zero1", 2)
    with pytest.raises(InputError, match="offload"):
        run_request(replace(request, layout=replace(request.layout, offload=("optimizer",))))


def test_a_rank_that_cannot_start_leaves_none_behind() -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, task: Task, rank: int, ranks: int, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        if rank:
            raise NoAnswerError(fault("test", "no room").messages)
        begun.append(subprocess.Popen(["sleep", str(STUCK_S)], start_new_session=True))
        return begun[0]

    with pytest.raises(NoAnswerError, match="no room"):
        started("pass", start=start)
    assert begun[0].poll() == -signal.SIGTERM


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install 'meshwright\[torch\]'"):
        started("pass")


def test_more_ranks_than_cores_warn() -> None:
    task = Task(target="", payload=None)
    with pytest.warns(UserWarning, match=r"100000 ranks x 1 threads on \d+ cores"):
        warn_of_cores(100_000, task)
    warn_of_cores(100_000, replace(task, backend="cuda"))
    warn_of_cores(1, task)


def test_exceptions_are_classified() -> None:
    wrapped = RuntimeError("a stage failed")
    wrapped.__cause__ = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    assert classify(wrapped)[0] == "out-of-memory"
    accelerator = type("OutOfMemoryError", (RuntimeError,), {})("HIP failed")  # torch.OutOfMemoryError, whatever it says
    assert classify(accelerator)[0] == "out-of-memory"
    assert classify(MemoryError()) == ("out-of-memory", "MemoryError")
    assert classify(RuntimeError("[pair.cc] Connection closed by peer [127.0.0.1]:1"))[0] == "peer"
    assert classify(fault("a.b", "no {x}", x=1)) == ("refused", "no 1")
    assert classify(KeyError("k")) == ("error", "KeyError: 'k'")
    assert by_signal(0, -11, ()).text == "signal SIGSEGV"


def test_the_first_cause_is_no_lost_connection() -> None:
    lost, own = (Failure(rank=rank, kind=kind, text="") for rank, kind in ((0, "peer"), (1, "error")))  # type: ignore[arg-type]
    assert first_cause([lost, own]) is own
    assert first_cause([lost]) is lost
