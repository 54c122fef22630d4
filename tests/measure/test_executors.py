"""Executors keep the promises of ``meshwright.testing.executors``; how jobs of Slurm are said, and what its words mean."""

from __future__ import annotations

import shutil
import subprocess
import tempfile

import pytest

from meshwright.errors import InputError
from meshwright.measure.executors import executor, executors, slurm
from meshwright.measure.executors.local import Local
from meshwright.measure.executors.slurm import Slurm, script_of
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
def test_slurm(promise, tmp_path, monkeypatch):
    monkeypatch.setattr(Slurm, "every_s", 0.3)
    promise(tmp_path)


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
    monkeypatch.setattr(slurm, "_asked", Answers(squeue=(0, "7|RUNNING|None|n1\n8|PENDING|Resources|\n9|FAILED|x|n2\n", "")))
    assert {job: state.phase for job, state in runs.poll(["7", "8", "9", "10"]).items()} == {
        "7": "running", "8": "waiting", "9": "ended", "10": "ended"}
    monkeypatch.setattr(slurm, "_asked", Answers())
    assert [state.phase for state in runs.poll(["7", "8"]).values()] == ["running", "waiting"], "nothing has changed"
    assert Slurm().poll(["7"])["7"].phase == "waiting", "and who knows nothing waits"


@pytest.mark.parametrize(("state", "cause"), [
    ("TIMEOUT", "time"), ("NODE_FAIL", "node"), ("PREEMPTED", "preempted"), ("OUT_OF_MEMORY", "oom"), ("CANCELLED+", "cancelled"),
    ("FAILED", "lost"),
])
def test_what_slurm_says_of_an_end(state, cause, monkeypatch, tmp_path):
    line = f"JobId=7 JobName=x JobState={state} Reason=None ExitCode=1:0 NodeList=n1,n2 Comment=m\n"
    monkeypatch.setattr(slurm, "_asked", Answers(scontrol=(0, line, "")))
    found = Slurm().collect("7", tmp_path)
    assert (found.cause, found.exit_status, found.nodes) == (cause, 1, ("n1", "n2"))
    (tmp_path / "ended.json").write_text('{"exit_status": -15, "cause": "cancelled", "begun": 1.0, "ended": 4.0}')
    found = Slurm().collect("7", tmp_path)
    assert (found.cause, found.duration_s) == ("cancelled" if cause == "lost" else cause, 3.0)


def test_accounting_is_asked_where_the_controller_has_forgotten(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    answers = Answers(scontrol=(1, "", "Invalid job id specified"), sacct=(0, "NODE_FAIL|0:0|n3\n", ""))
    monkeypatch.setattr(slurm, "_asked", answers)
    assert Slurm().collect("7", tmp_path).cause == "node"
    monkeypatch.setattr(slurm, "_asked", Answers())
    assert Slurm().collect("7", tmp_path).cause == "lost", "without accounting nobody knows"


def test_no_slurm_is_one_line(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"--executor: sbatch is not here: trials are handed over where Slurm's commands are"):
        Slurm().check([TRIAL])
