"""The word of a keeper that is seen late, as over NFS: it is waited for where a job has ended by itself, and nowhere else."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended_slurm import PretendedSlurm

from meshwright.measure.conduct.nodes import Nodes
from meshwright.measure.executors import slurm, slurm_asking
from meshwright.measure.executors.base import Ended, Handed
from meshwright.measure.executors.slurm import Slurm
from meshwright.measure.outcome import Outcome
from meshwright.measure.trial import Limits, Trial

WAYS = ("job", "array", "allocation", "adopted")


@pytest.fixture
def pretended(monkeypatch):
    made = PretendedSlurm()
    monkeypatch.setattr(slurm_asking, "asked", made)
    monkeypatch.setattr(Slurm, "every_s", 0.0)
    yield made
    made.end()


def trial_of(command):
    return Trial(label="x", command=("sh", "-c", command), limits=Limits(total_s=60.0, grace_s=0.5))


def handed_over(way, tmp_path, command):
    """An executor, the handle of a trial, its folder."""
    runs = Slurm()
    runs.reuse = way == "allocation"
    handed = [Handed(trial_of(command), tmp_path / name, f"mark-{name}-{os.getpid()}") for name in ("one", "two")]
    for each in handed:
        each.folder.mkdir()
    if way == "array":
        return runs, runs.submit_all(handed)[0], handed[0].folder
    handle = runs.submit(*handed[0])
    if way == "adopted":
        runs = Slurm()
        handle = runs.adopt(handed[0].folder, handed[0].mark, None)
    return runs, handle, handed[0].folder


def gone(slurm_, handle):
    """Wait until the job of a trial has left the queue."""
    while slurm_.queue:
        slurm_("squeue")
    for process, _ in slurm_.jobs.values():
        process.wait(timeout=60)


@pytest.mark.parametrize("way", WAYS)
def test_a_word_that_is_late_is_waited_for(way, tmp_path, pretended):
    runs, handle, folder = handed_over(way, tmp_path, "sleep 0.3; exit 7")
    assert runs.poll([handle])[handle].phase != "ended"
    runs.let_go()
    gone(pretended, handle)
    (folder / "ended.json").rename(folder / "not-here-yet")
    assert [runs.poll([handle])[handle].phase for _ in range(3)] == ["running"] * 3
    (folder / "not-here-yet").rename(folder / "ended.json")
    assert runs.poll([handle])[handle].phase == "ended"
    assert (runs.collect(handle, folder).exit_status, runs.collect(handle, folder).cause) == (7, "")


@pytest.mark.parametrize("way", WAYS)
def test_a_word_that_never_comes_is_given_up(way, tmp_path, pretended, monkeypatch):
    monkeypatch.setattr(slurm, "LATE_S", 0.0)
    runs, handle, folder = handed_over(way, tmp_path, "exit 0")
    runs.let_go()
    gone(pretended, handle)
    (folder / "ended.json").unlink()
    assert runs.poll([handle])[handle].phase == "ended"
    assert runs.collect(handle, folder).cause == "lost"


def test_a_keeper_that_was_killed_and_a_job_that_was_cancelled_are_not_waited_for(tmp_path, pretended):
    runs, handle, folder = handed_over("job", tmp_path, "kill -9 $PPID; sleep 9")
    gone(pretended, handle)
    assert runs.poll([handle])[handle].phase == "ended" and (folder / "unkept").exists()
    assert runs.collect(handle, folder).cause == "lost"
    pretended.room = 0
    (tmp_path / "waits").mkdir()
    waits = runs.submit(trial_of("true"), tmp_path / "waits", "waits")
    assert runs.poll([waits])[waits].phase == "waiting"
    runs.cancel(waits, 0.5)
    assert runs.poll([waits])[waits].phase == "ended"


@pytest.mark.parametrize(("state", "cause"), [("TIMEOUT", "lost"), ("FAILED", "lost"), ("NODE_FAIL", "lost"), ("COMPLETED", "lost"),
                                              ("PREEMPTED", "preempted"), ("CANCELLED by 0", "cancelled")])
def test_what_becomes_of_an_allocation_is_no_fault_of_a_trial_that_it_never_began(tmp_path, pretended, monkeypatch, state, cause):
    pretended.room = 0
    runs, handle, folder = handed_over("allocation", tmp_path, "true")
    monkeypatch.setattr(slurm_asking, "job", lambda _: {"JobState": state, "NodeList": "n1", "ExitCode": "1:0"})
    found = runs.collect(handle, folder)
    assert found.cause == cause
    assert cause == "cancelled" or found.nodes == (), "no node is to blame"


@given(st.sampled_from(["time", "preempted", "node", "cancelled", "oom", ""]), st.sampled_from([0, 1, 3, -15, 143, -9, 137, None]),
       st.sampled_from(["", "cancelled"]))
def test_what_a_keeper_saw_end_by_itself_is_not_what_became_of_its_job(cause, status, said):
    before = slurm._before(Ended(exit_status=status, cause=said), cause)
    if said or status is None or cause == "oom" or status in (-15, 143, -9, 137):
        assert not before
    elif status == 0 or cause == "cancelled":
        assert before


@given(st.sampled_from(["n1", "n12", "node-1", "node-12"]), st.sampled_from(["n1", "n12", "node-1", "node-12", "n1.cluster"]))
def test_a_node_is_named_by_its_whole_name(node, named):
    found = Nodes().note((node,), Outcome(status="node", evidence=f"*** JOB 12 ON {named} CANCELLED DUE TO NODE FAILURE"))
    assert found == ([node] if node == named.partition(".")[0] else [])


def test_a_scheduler_that_gives_no_reason_has_none():
    assert [slurm_asking._state(f"7|PENDING|{reason}|")[1].said for reason in ("None", "Resources")] == ["", "Resources"]
