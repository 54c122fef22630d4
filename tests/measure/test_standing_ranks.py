"""Ranks that stay between trials: a stand-in takes trials until one fails; real ones leave nothing from one task to the next."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from meshwright.engine.launch import Task
from meshwright.measure.executors import hand, keeper
from meshwright.measure.executors.local import Local
from meshwright.measure.executors.pilot import Company
from meshwright.measure.executors.processes import MARK, marked
from meshwright.measure.trial import Limits, Resident, Trial

STAND_IN = """
import os, pathlib, sys, time
place, number = pathlib.Path(sys.argv[1]), 1
(place / "ranks").write_text("1")
while True:
    order = place / "orders" / str(number)
    while not order.exists():
        time.sleep(0.01)
    folder = pathlib.Path(order.read_text())
    task = (folder / "task").read_text()
    with (folder / "output.log").open("a") as log:
        log.write(f"{task} by {os.getpid()}\\n")
    if task == "hangs":
        time.sleep(1003)
    if task == "dies":
        os.kill(os.getpid(), 9)
    (folder / ("failure-0" if task == "fails" else "result-0")).touch()
    if task == "fails":
        sys.exit(1)
    number += 1
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # leases of its own: tests run beside each other
    (tmp_path / "ranks.py").write_text(STAND_IN)
    return tmp_path


def run(local, here, name, task, *, wait=True):
    """A trial on ranks that wait -> its exit status and what it printed."""
    place = here / name
    place.mkdir()
    resident = Resident(command=(sys.executable, str(here / "ranks.py")), task=task.encode())
    trial = Trial(label=name, command=("sh", "-c", "echo by itself; exit 7"), limits=Limits(grace_s=0.3), resident=resident)
    handle = local.submit(trial, place, f"mark-{here.name}-{name}")
    if not wait:
        return handle
    while local.poll([handle])[handle].phase != "ended":
        time.sleep(0.01)
    return local.collect(handle, place).exit_status, (place / "output.log").read_text().splitlines()


def test_ranks_take_one_trial_after_another_until_one_fails(here):
    local = Local()
    local.reuse = True
    found = [run(local, here, f"t{number}", task) for number, task in enumerate(("one", "two", "fails", "three", "dies", "four"))]
    local.let_go()
    [one, two, failed, three, dies, four] = found
    assert [each[0] for each in (one, two, three, four)] == [0, 0, 0, 0]
    ranks = [each[1][0].rpartition(" ")[2] for each in (one, two, three, four)]
    assert ranks[0] == ranks[1] != ranks[2] and ranks[2] != ranks[3], "the same, until one of their trials fails"
    for each, name, word in ((failed, "t2", "fails"), (dies, "t4", "dies")):
        assert each == (7, ["by itself"]), "what failed on ranks that had run another is run by its own command"
        assert (here / name / "reused-output.log").read_text().startswith(word)
    assert not [process for process in map(int, ranks) if Path(f"/proc/{process}").exists()]


def test_what_fails_on_fresh_ranks_has_failed(here):
    local = Local()
    local.reuse = True
    status, said = run(local, here, "t", "fails")
    local.let_go()
    assert status == 1 and len(said) == 1 and said[0].startswith("fails by")


def test_a_hang_ends_with_its_ranks_and_nothing_is_left(here):
    local = Local()
    local.reuse = True
    handle = run(local, here, "t", "hangs", wait=False)
    until = time.monotonic() + 20
    while not (here / "t" / "output.log").exists() or not (here / "t" / "output.log").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    [process] = [int(line.rpartition(" ")[2]) for line in (here / "t" / "output.log").read_text().splitlines()]
    local.cancel(handle, 0.3)
    while local.poll([handle])[handle].phase != "ended":
        time.sleep(0.02)
    assert local.collect(handle, here / "t").cause == "cancelled"
    assert not Path(f"/proc/{process}").exists(), "no rank waits for what nobody wants"
    assert run(local, here, "u", "one")[0] == 0, "the next trial has ranks of its own"
    local.let_go()
    assert not marked(f"mark-{here.name}-t")


def test_without_leave_or_ranks_a_trial_is_its_command(here):
    local = Local()
    assert run(local, here, "t", "one") == (7, ["by itself"])


CODE = """
import os, random, torch, torch.distributed as dist
from pathlib import Path
value = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(value)
group = dist.new_group([0])
print("groups", len(dist.distributed_c10d._world.pg_map), flush=True)
Path(f"said-{dist.get_rank()}").write_text(f"{os.getpid()} {value.tolist()} {os.getcwd()}")
"""


def test_real_ranks_meet_anew_for_every_task(tmp_path):
    pytest.importorskip("torch")
    company = Company(tmp_path, Path(keeper.__file__))
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "meshwright.engine.company"]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {MARK: f"company-{tmp_path.name}", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    waiting = company.ready([sys.executable, *words], environment)
    said = []
    try:
        for number, code in enumerate((CODE, CODE, "raise ValueError('of the second')")):
            place = tmp_path / str(number)
            place.mkdir()
            (place / "task").write_bytes(pickle.dumps(Task(target="builtins:exec", payload=code)))
            done = subprocess.run([sys.executable, "-I", "-S", hand.__file__, "sh", "-c", "exit 9"], cwd=place, timeout=120,
                                  env={**os.environ, "MESHWRIGHT_RANKS": str(waiting)}, check=False)
            ranks = [each.read_text().split(maxsplit=1) for each in sorted(place.glob("said-*"))]
            said.append((done.returncode, ranks, place))
    finally:
        company.end()
    assert [each[0] for each in said] == [0, 0, 9]
    assert [each[0] for each in said[0][1]] == [each[0] for each in said[1][1]], "the same processes"
    for _, ranks, place in said[:2]:
        assert [each[1] for each in ranks] == [f"[3.0, 3.0, 3.0] {place}"] * 2
        groups = sorted((place / "output.log").read_text().splitlines())
        assert groups == ["groups 1", "groups 2"], "the second is the first rank's alone, and none is of the task before"
    assert "ValueError: of the second" in (said[2][2] / "reused-output.log").read_text()
    assert json.loads((waiting / "ended.json").read_text())["exit_status"] != 0
    assert not marked(f"company-{tmp_path.name}")
