"""A trial that comes to its own end between the last look at it and the word that it is to end: what it came to counts."""

from __future__ import annotations

import time
from contextlib import redirect_stdout
from io import StringIO
from typing import get_args

import pytest
from benchmarks import stand_in
from hypothesis import given
from hypothesis import strategies as st
from trials_here import conducted, trial_of

from meshwright.measure.chooser import Candidate
from meshwright.measure.conduct.budget import Budget
from meshwright.measure.conduct.running import Running, Why
from meshwright.measure.conduct.verdict import verdict
from meshwright.measure.executors.base import Ended, State
from meshwright.measure.executors.local import Local
from meshwright.measure.outcome import Outcome
from meshwright.measure.trial import Limits
from meshwright.measure.watching import seen

WHYS = [each for each in get_args(Why) if each]
OWN = {"ok": ("ok", 0), "oom": ("oom", 1), "nccl": ("nccl", 1), "user": ("user", 1), "exits": ("user", 3), "garbage": ("parse", 0),
       "nan": ("user", 0), "preempted": ("preempted", 1)}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Folders of trials that have ended by themselves, by what the stand-in did."""
    found = {}
    for kind in OWN:
        found[kind] = tmp_path_factory.mktemp(kind)
        with redirect_stdout(said := StringIO()), pytest.MonkeyPatch.context() as patch:
            patch.setattr(stand_in, "PACE_S", 0.0)
            patch.setattr(stand_in.os, "write", lambda _, data: said.write(data.decode("latin-1")))
            stand_in.main(kind)
        (found[kind] / "output.log").write_text(said.getvalue())
    return found


def told(folder, why, said="told"):
    candidate = Candidate(label="ok", layout=None)
    return Running(candidate=candidate, trial=trial_of(candidate), attempt=None, handle="h", folder=folder, why=why, said=said)


@given(st.sampled_from(sorted(OWN)), st.sampled_from(WHYS), st.sampled_from([None, 0, 3]))
def test_what_has_ended_by_itself_is_what_it_would_be_had_nobody_told_it(printed, kind, why, kills):
    status, code = OWN[kind]
    ended = Ended(exit_status=code, memory_kills=kills)
    found = verdict(told(printed[kind], why), ended, 64.0, 1.0)
    assert found == verdict(told(printed[kind], ""), ended, 64.0, 1.0) and found.outcome.status == status


@given(st.sampled_from(["ok", "exits"]), st.sampled_from(["enough", "lost", "budget", "hang"]),
       st.sampled_from([(-15, ""), (143, ""), (-9, ""), (137, ""), (-15, "cancelled"), (1, "cancelled"), (None, "lost")]))
def test_what_the_telling_has_ended_is_what_it_was_told_for(printed, kind, why, end):
    code, cause = end
    outcome = verdict(told(printed[kind], why), Ended(exit_status=code, cause=cause, memory_kills=0), 64.0, 1.0).outcome
    assert outcome.status == {"enough": "ok", "lost": "ok", "budget": "cancelled", "hang": "hang"}[why]
    assert outcome.evidence == "told"


@pytest.mark.parametrize("why", ["enough", "lost"])
def test_a_rank_that_died_before_the_telling_is_the_class_of_what_others_had_to_be_ended_for(printed, why):
    outcome = verdict(told(printed["oom"], why), Ended(exit_status=143, cause="cancelled"), 64.0, 1.0).outcome
    assert (outcome.status, outcome.rank) == ("oom", 1)


PATIENT = Limits(first_step_s=60.0, step_s=60.0, silence_s=60.0, total_s=120.0, dying_s=0.3, grace_s=0.5)


class Late(Local):
    """Sees that slow trials have ended only once they were told to, which they are when they have: as whoever asks a scheduler
    every few seconds may."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()
        self.hidden: set[str] = set()

    def poll(self, handles):
        found = super().poll(handles)
        self.hidden |= {name for name, state in found.items() if state.phase == "ended" and "-300-" in name} - self.told
        return {name: State(phase="running") if name in self.hidden - self.told else state for name, state in found.items()}

    def cancel(self, handle, grace_s):
        while super().poll([handle])[handle].phase != "ended":
            time.sleep(0.02)
        self.hidden.add(handle)
        super().cancel(handle, grace_s)
        self.told.add(handle)


@pytest.mark.parametrize(("kind", "status"), [("oom", "oom"), ("exits", "user"), ("ok 300 0", "ok")])
def test_a_trial_that_has_failed_when_it_is_told_that_it_has_lost_has_failed(tmp_path, kind, status):
    slow = kind if " " in kind else f"{kind} 300 6"
    runner = Late()
    over = Over(runner) if kind == "ok 300 0" else None
    conductor, found = conducted(tmp_path / "s.db", "ok 40", slow, runner=runner, limits=PATIENT, budget=over)
    (attempt,) = found[slow]
    assert runner.hidden == runner.told == {attempt.handle}
    assert attempt.outcome.status == status and conductor.best[0] == "ok 40"


class Over(Budget):
    """A budget that is spent as soon as a trial has ended unseen."""

    def __init__(self, runner):
        super().__init__()
        object.__setattr__(self, "runner", runner)

    def time_over(self, *, wall_s, device_s):
        return "the budget is spent" if self.runner.hidden else ""


STEP, DEATH = stand_in.LINE, stand_in.LAST["oom"]


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_run_that_goes_on_has_survived_what_a_rank_said(tmp_path_factory, before, behind):
    folder = tmp_path_factory.mktemp("log")
    steps = [STEP.format(step=number, samples=64, ms=50.0, loss="1.0") for number in range(1, before + behind + 1)]
    (folder / "output.log").write_text("\n".join([*steps[:before], DEATH, *steps[before:], ""]))
    assert bool(seen(folder).dying) == (behind <= (2 if before else 0))


def test_the_clock_of_a_dying_run_begins_anew_with_each_step_and_ends_where_it_lives(tmp_path):
    trial = told(tmp_path, "")
    trial.begins(0.0)
    log = tmp_path / "output.log"

    def at(now, step, *more):
        with log.open("a") as stream:
            stream.write("\n".join([STEP.format(step=step, samples=64, ms=50.0, loss="1.0"), *more, ""]))
        trial.look(now, at_once=True)
        return trial.due(now + 0.25, None)[0], trial.due(now + 0.35, None)[0]  # dying_s is 0.3

    assert at(0.0, 1, DEATH) == ("", "dying")
    assert at(0.3, 2) == ("", "dying")
    assert at(0.6, 3) == ("", "dying")
    assert at(0.9, 4) == ("", "")


def test_what_is_dying_is_not_judged_by_its_speed(tmp_path):
    trial, best = told(tmp_path, ""), Outcome(status="ok", step_s=0.001, interval_s=(0.001, 0.001))
    trial.begins(0.0)
    lines = [STEP.format(step=number, samples=64, ms=50.0, loss="1.0") for number in range(1, 7)]
    (tmp_path / "output.log").write_text("\n".join([*lines, ""]))
    trial.look(0.0, at_once=True)
    assert trial.due(0.1, best)[0] == "enough", "its steps are alike"
    (tmp_path / "output.log").write_text("\n".join([*lines, DEATH, ""]))
    trial.look(0.0, at_once=True)
    assert trial.due(0.1, best) == ("", "")
