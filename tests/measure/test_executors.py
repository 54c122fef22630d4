"""Executors keep the promises of ``meshwright.testing.executors``; how jobs of Slurm are said, and what its words mean."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace

import pytest
from pretended_slurm import PretendedSlurm

from meshwright.errors import InputError
from meshwright.measure.executors import executor, executors, pilot, slurm_asking
from meshwright.measure.executors.allocations import Allocation
from meshwright.measure.executors.local import Local
from meshwright.measure.executors.processes import marked
from meshwright.measure.executors.slurm import Slurm
from meshwright.measure.executors.slurm_scripts import LASTS, Kind, allocation_of, array_of, script_of
from meshwright.measure.trial import Limits, Trial
from meshwright.testing.executors import executor_promises

SOON = executor_promises(Local)
JOBS = executor_promises(Slurm)


@pytest.fixture(autouse=True)
def _leases(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # of its own: tests run beside each other


@pytest.mark.parametrize("promise", SOON.values(), ids=SOON)
def test_this_machine(promise, tmp_path):
    promise(tmp_path)


@pytest.mark.skipif(shutil.which("sinfo") is None or subprocess.run(["sinfo"], capture_output=True, check=False).returncode != 0,
                    reason="no Slurm that answers: python -m benchmarks.trial_faults.cluster -- python -m pytest ...")
@pytest.mark.parametrize("promise", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("reuse", [False, True], ids=["jobs", "allocations"])
def test_slurm(promise, reuse, tmp_path, holding):
    holding(reuse, every_s=0.3)
    promise(tmp_path)


@pytest.fixture
def holding(monkeypatch):
    """Executors of Slurm that are asked often, and hold allocations; those that a test makes let go behind it."""
    made = []
    whole = Slurm.__init__

    def init(self):
        whole(self)
        made.append(self)

    def how(reuse, *, every_s):
        monkeypatch.setattr(Slurm, "__init__", init)
        monkeypatch.setattr(Slurm, "reuse", reuse)
        monkeypatch.setattr(Slurm, "every_s", every_s)

    yield how
    for each in made:
        each.let_go()


@pytest.fixture
def pretended(monkeypatch):
    """Slurm's commands over processes of this machine."""
    slurm = PretendedSlurm()
    monkeypatch.setattr(slurm_asking, "asked", slurm)
    yield slurm
    slurm.end()


@pytest.mark.parametrize("promise", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("reuse", [False, True], ids=["jobs", "allocations"])
def test_the_same_where_slurm_is_pretended(promise, reuse, tmp_path, pretended, holding):
    holding(reuse, every_s=0.0)
    promise(tmp_path)


def test_an_allocation_takes_one_trial_after_another_and_is_given_back(tmp_path, pretended, holding):
    holding(True, every_s=0.0)
    runs, found = Slurm(), []
    for number in range(3):
        place = tmp_path / f"t{number}"
        place.mkdir()
        trial = Trial(label=str(number), command=("sh", "-c", f"echo $PPID; exit {number}"), limits=Limits(total_s=60.0))
        found.append(runs.submit(trial, place, f"m{number}"))
        while runs.poll(found)[found[-1]].phase != "ended":
            pass
        assert runs.collect(found[-1], place).exit_status == number
    assert len(pretended.scripts) == 1, "one job for all of them"
    assert f"--time={LASTS * 2}" in pretended.scripts[0]
    long = Trial(label="long", command=("true",), limits=Limits(total_s=7 * 60.0))
    other = tmp_path / "long"
    other.mkdir()
    last = runs.submit(long, other, "long")
    assert len(pretended.scripts) == 1, "there is time enough"
    while runs.poll([last])[last].phase != "ended":
        pass
    (tmp_path / "away").mkdir()
    runs.submit(long, tmp_path / "away", "away", avoid=("n1",))
    assert len(pretended.scripts) == 2, "its node is set aside"
    runs.let_go()
    [first, second] = [process for process, _ in pretended.jobs.values()]
    assert first.wait(timeout=10) == 0 and second.wait(timeout=10) == 0
    assert (tmp_path / "away" / "ended.json").exists(), "what was handed over is run to its end"


def test_what_waits_for_an_allocation_goes_to_one_that_has_nothing_to_do(tmp_path, pretended, holding):
    holding(True, every_s=0.0)
    pretended.room = 1
    runs, handles, places = Slurm(), [], [tmp_path / f"t{number}" for number in range(4)]
    for number, place in enumerate(places):
        place.mkdir()
        trial = Trial(label=str(number), command=("sh", "-c", f"exit {number}"), limits=Limits(total_s=60.0))
        if number < 3:
            handles.append(runs.submit(trial, place, f"m{number}"))
    until = time.monotonic() + 30.0
    while any(each.phase != "ended" for each in runs.poll(handles).values()):
        assert time.monotonic() < until, "they wait until the first allocation is given back"
    assert [runs.collect(handle, place).exit_status for handle, place in zip(handles, places, strict=False)] == [0, 1, 2]
    assert len(pretended.scripts) == 3 and list(pretended.jobs) == ["1"], "one job for all of them"
    found = Slurm().adopt(places[2], "m2", handles[2])
    assert found != handles[2] and '"job": "1"' in found, "and whoever goes on finds it where it ran"
    handles.append(runs.submit(trial, places[3], "m3"))
    assert len(pretended.scripts) == 3, "an idle one is held"
    while runs.poll(handles[3:])[handles[3]].phase != "ended":
        pass
    runs.let_go()
    assert not pretended.queue and pretended.cancelled == {"2", "3"}, "nothing stays in the queue"


def test_a_trial_that_has_begun_is_not_moved(tmp_path):
    held = [Allocation(folder=tmp_path / name, job=name, kind=Kind(1, 1, False), minutes=10) for name in "ab"]
    for each in held:
        (each.folder / "inbox").mkdir(parents=True)
    idle, other = held
    folders = [tmp_path / f"t{number}" for number in range(2)]
    for folder in folders:
        folder.mkdir()
    assert other.hand(folders[0], 60.0) and idle.takes_over(other) and (idle.trial, other.trial) == (folders[0], None)
    assert '"a"' in (folders[0] / "handed.json").read_text()
    assert other.hand(folders[1], 60.0) and not idle.takes_over(other), "it is busy"
    (folders[0] / "ended.json").write_text("{}")
    other.order.unlink()
    assert not idle.takes_over(other) and other.trial == folders[1], "its pilot was sooner"
    other.hand(folders[1], 6000.0)
    assert not idle.takes_over(other), "it would be cut by the limit of the job"
    other.hand(folders[1], 60.0)
    pilot._closed(idle.folder / "inbox")
    assert not idle.takes_over(other) and other.order.exists()


def test_a_trial_that_comes_too_late_finds_no_inbox(tmp_path):
    (tmp_path / "inbox").mkdir()
    held = Allocation(folder=tmp_path, job="1", kind=Kind(1, 1, False), minutes=10)
    trial = Trial(label="x", command=("true",), limits=Limits(total_s=60.0))
    assert held.takes(trial, ()) and not held.takes(replace(trial, nodes=2), ())
    assert not held.takes(replace(trial, limits=Limits(total_s=599.0)), ()), "it would be cut by the limit of the job"
    assert pilot._closed(tmp_path / "inbox") == tmp_path / "inbox.closed"
    assert not held.takes(trial, ()) and not held.hand(tmp_path / "t", 60.0)


def test_where_a_keeper_is_killed_the_allocation_goes_on(tmp_path, pretended, holding):
    holding(True, every_s=0.0)
    runs = Slurm()
    for number, command in enumerate((("sh", "-c", "echo up; kill -9 $PPID; sleep 1003"), ("sh", "-c", "exit 4"))):
        place = tmp_path / f"t{number}"
        place.mkdir()
        handle = runs.submit(Trial(label="x", command=command, limits=Limits(total_s=60.0)), place, f"mark-{number}")
        while runs.poll([handle])[handle].phase != "ended":
            pass
        ended = runs.collect(handle, place)
        assert (ended.cause, ended.exit_status) == (("lost", None), ("", 4))[number]
        until = time.monotonic() + 5.0
        while marked(f"mark-{number}"):
            assert time.monotonic() < until, "something goes on without its keeper"
    assert len(pretended.scripts) == 1


def test_inside_an_allocation_this_machine_is_its_nodes(tmp_path, monkeypatch):
    trial = Trial(label="x", command=("sh", "-c", "echo $NODE_RANK of $MASTER_ADDR"), devices=4, nodes=2, devices_per_node=2,
                  spreads=False, limits=Limits(grace_s=0.3))
    with pytest.raises(InputError, match="the layouts need 2 nodes and local is this machine alone"):
        Local().check([trial])
    (tmp_path / "srun").write_text('#!/bin/sh\nshift; for n in 0 1; do SLURM_NODEID=$n "$@"; done\n')
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'n1\\nn2\\n'\n")
    for name in ("srun", "scontrol"):
        (tmp_path / name).chmod(0o755)
    for name, value in {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}.items():
        monkeypatch.setenv(name, value)
    local = Local()
    local.check([trial])
    handle = local.submit(trial, tmp_path, "mark-of-two")
    while local.poll([handle])[handle].phase != "ended":
        time.sleep(0.01)
    assert local.collect(handle, tmp_path).exit_status == 0
    assert (tmp_path / "output.log").read_text() == "0 of n1\n1 of n1\n"
    with pytest.raises(InputError, match="need 3 nodes and local is this allocation of 2"):
        local.check([replace(trial, nodes=3)])


def test_every_executor_has_its_name():
    assert {name: executor(name).name for name in executors()} == {name: name for name in executors()}
    with pytest.raises(InputError, match="unknown executor 'slrm'; did you mean slurm"):
        executor("slrm")


TRIAL = Trial(label="tp8 pp2 $(id)", command=("bash", "train.sh"), devices=16, nodes=2, devices_per_node=8, accelerators=True,
              environment={"TRAIN_ITERS": "30", "WORDS": "a 'b' $c"}, limits=Limits(total_s=1790.0))


def test_a_job_is_readable_and_takes_no_name_for_a_command():
    lines = script_of(TRIAL, "abc-1-ff", ("n7",)).splitlines()
    assert lines[0] == "#!/bin/bash"
    wants = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    assert wants[1:] == ["comment=abc-1-ff", "nodes=2", "ntasks-per-node=1", "time=30", "output=output-slurm.log",
                         "open-mode=append", "no-requeue", "gpus-per-node=8", "exclusive", "exclude=n7"]
    assert wants[0].startswith("job-name=tp8-pp2-") and "$" not in wants[0]
    text = "\n".join(line for line in lines if line.startswith("export"))
    told = subprocess.run(["bash", "-c", f'{text}\nprintf "%s|" "$WORDS" "$TRAIN_ITERS" "$MESHWRIGHT_TRIAL"'], capture_output=True,
                          text=True, check=True, env={}).stdout
    assert told == "a 'b' $c|30|abc-1-ff|"
    assert "# bash train.sh" in lines, "a launch script of a framework reaches the other nodes by itself"
    alone = Trial(label="x", command=("echo", "it's"), devices=2, nodes=2, limits=Limits())
    assert "srun" not in script_of(alone, "m", ()), "as it says unless told otherwise"


def test_scripts_of_arrays_and_allocations_are_readable():
    alone = Trial(label="x\n#SBATCH --wckey=y", command=("echo", "it's"), devices=2, limits=Limits())
    text = array_of(["a-1", "b'-1"], [alone, alone], "array-7", ("n7",))
    lines = text.splitlines()
    assert "#SBATCH --array=0-1" in lines and "#SBATCH --exclude=n7" in lines and "#SBATCH --comment=array-7" in lines
    assert not any("wckey" in line for line in lines if line.startswith("#SBATCH")), "no label becomes an option"
    told = subprocess.run(["bash", "-c", text.replace("cd ", "echo ").replace("exec bash job.sh", "true")], text=True, check=True,
                          capture_output=True, env={"SLURM_ARRAY_TASK_ID": "1"}).stdout
    assert told == "../b'-1\n"
    held = allocation_of(Kind.of(TRIAL), "allocation-7", 90, ())
    assert "#SBATCH --time=90" in held and "#SBATCH --gpus-per-node=8" in held and 'pilot.py "$PWD"' in held


class Answers:
    """Slurm's commands with answers prepared."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def __call__(self, *words, cwd=None):
        self.asked.append(words)
        return self.answers.get(words[0], (1, "", "slurm_load_jobs error: Unable to contact slurm controller"))


def test_a_controller_that_is_away_ends_no_job(monkeypatch):
    runs = Slurm()
    runs.every_s = 0.0
    monkeypatch.setattr(slurm_asking, "asked", Answers(squeue=(0, "7|RUNNING|None|n1\n8|PENDING|Resources|\n9|FAILED|x|n2\n", "")))
    assert {job: state.phase for job, state in runs.poll(["7", "8", "9", "10"]).items()} == {
        "7": "running", "8": "waiting", "9": "ended", "10": "ended"}
    monkeypatch.setattr(slurm_asking, "asked", Answers())
    assert [state.phase for state in runs.poll(["7", "8"]).values()] == ["running", "waiting"], "nothing has changed"
    assert Slurm().poll(["7"])["7"].phase == "waiting", "and who knows nothing waits"


@pytest.mark.parametrize(("state", "cause"), [
    ("TIMEOUT", "time"), ("NODE_FAIL", "node"), ("PREEMPTED", "preempted"), ("OUT_OF_MEMORY", "oom"), ("CANCELLED+", "cancelled"),
    ("FAILED", "lost"),
])
def test_what_slurm_says_of_an_end(state, cause, monkeypatch, tmp_path):
    line = f"JobId=7 JobName=x JobState={state} Reason=None ExitCode=1:0 NodeList=n1,n2 Comment=m\n"
    monkeypatch.setattr(slurm_asking, "asked", Answers(scontrol=(0, line, "")))
    found = Slurm().collect("7", tmp_path)
    assert (found.cause, found.exit_status, found.nodes) == (cause, 1, ("n1", "n2"))
    (tmp_path / "ended.json").write_text('{"exit_status": -15, "cause": "cancelled", "begun": 1.0, "ended": 4.0}')
    found = Slurm().collect("7", tmp_path)
    assert (found.cause, found.duration_s) == ("cancelled" if cause == "lost" else cause, 3.0)


def test_accounting_is_asked_where_the_controller_has_forgotten(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    answers = Answers(scontrol=(1, "", "Invalid job id specified"), sacct=(0, "NODE_FAIL|0:0|n3\n", ""))
    monkeypatch.setattr(slurm_asking, "asked", answers)
    assert Slurm().collect("7", tmp_path).cause == "node"
    monkeypatch.setattr(slurm_asking, "asked", Answers())
    assert Slurm().collect("7", tmp_path).cause == "lost", "without accounting nobody knows"


def test_no_slurm_is_one_line(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"--executor: sbatch is not here: trials are handed over where Slurm's commands are"):
        Slurm().check([TRIAL])


def test_a_trial_that_is_cancelled_before_its_keeper_is_up_is_cancelled(tmp_path):
    """The keeper died of it without a word, and the node was said to be at fault."""
    local, trial = Local(), Trial(label="t", command=("sleep", "60"), limits=Limits(first_step_s=60.0, grace_s=0.3), steps=1)
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        handle = local.submit(trial, folder, f"mark-{tmp_path.name}-{number}")
        local.cancel(handle, 0.3)
        until = time.monotonic() + 60.0
        while local.poll([handle])[handle].phase != "ended":
            assert time.monotonic() < until
            time.sleep(0.02)
        assert local.collect(handle, folder).cause == "cancelled"
        assert not marked(f"mark-{tmp_path.name}-{number}")
