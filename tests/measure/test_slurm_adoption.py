"""A sweep that was killed after it had submitted: tasks of its array and trials of its allocations are found, and none runs twice.

Slurm is pretended here; docs/sweep.md has the same under a real one (``python -m benchmarks.trial_faults.cluster``).
"""

from __future__ import annotations

import json
import sqlite3

import pytest
from pretended_slurm import PretendedSlurm
from tests.draws import one_of
from trials_here import candidates, conducted, trial_of

from meshwright.measure.chooser import Listed
from meshwright.measure.conduct.budget import Budget
from meshwright.measure.conduct.verdict import AGAIN
from meshwright.measure.executors import slurm_asking
from meshwright.measure.executors.base import Handed
from meshwright.measure.executors.slurm import Slurm
from meshwright.measure.outcome import Outcome
from meshwright.measure.store import Store
from meshwright.measure.trial import Limits

LIMITS = Limits(first_step_s=20.0, step_s=20.0, silence_s=20.0, total_s=60.0, dying_s=1.0, grace_s=0.5)
DEAD = json.dumps({"host": "", "boot": "", "pid": 1, "start": 0})


def killed(path, runner, labels, noted):
    """A sweep that has submitted some trials, noted so many of them, and is gone."""
    with Store(path) as store:
        handed, claims = [], []
        for each in candidates(*labels):
            trial = trial_of(each, LIMITS)
            claim = store.claim("stand-in", each.label, executor="slurm", folder=trial.name, retry=AGAIN, most=3)
            folder = store.folder.absolute() / claim.attempt.folder
            trial.fill(folder)
            handed.append(Handed(trial, folder, claim.attempt.mark))
            claims.append(claim.attempt)
        handles = runner.submit_all(handed)
        for attempt, handle in list(zip(claims, handles, strict=True))[:noted]:
            store.started(attempt, handle)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE attempts SET owner=json_set(?, '$.host', json_extract(owner, '$.host'))", (DEAD,))


@pytest.fixture
def pretended(monkeypatch):
    slurm = PretendedSlurm()
    monkeypatch.setattr(slurm_asking, "asked", slurm)
    monkeypatch.setattr(Slurm, "every_s", 0.05)
    yield slurm
    slurm.end()


def test_whoever_goes_on_knows_and_watches_what_it_would_not_ask_for_now(tmp_path, pretended):
    with Store(tmp_path / "s.db") as store:
        for label, status in (("ok 49", "ok"), ("ok 48", "cancelled")):
            claim = store.claim("stand-in", label, executor="slurm", folder="x", retry=AGAIN, most=3)
            store.finish(claim.attempt, Outcome(status=status, step_s=0.049))
    killed(tmp_path / "s.db", Slurm(), ("brisk 50 20 1",), 1)
    told, events = [], []

    class Later(Listed):
        def tell(self, candidate, outcome):
            told.append((candidate.label, outcome.status))

    _, found = conducted(tmp_path / "s.db", chooser=Later(candidates("ok 51", "ok 49")), runner=Slurm(), limits=LIMITS,
                         told=events.append, known=("ok 51", "brisk 50 20 1", "ok 49", "ok 48"))
    said = [(each["event"], each["label"]) for each in events if each["event"] in ("known", "adopted", "started")]
    assert said == [("adopted", "brisk 50 20 1"), ("known", "ok 49"), ("started", "ok 51")]
    assert sorted(told) == [("brisk 50 20 1", "ok"), ("ok 49", "ok"), ("ok 51", "ok")], "each once"
    assert {label: len(several) for label, several in found.items()} == {"ok 49": 1, "ok 48": 1, "brisk 50 20 1": 1, "ok 51": 1}


def test_what_waits_is_taken_back_when_enough_is_known(tmp_path, pretended):
    pretended.room, events = 1, []

    class Enough(Listed):
        enough = False

        def ask(self):
            return None if self.enough else super().ask()

        def tell(self, candidate, outcome):
            self.enough = True

    def told(event):
        events.append((event["event"], event.get("label")))
        pretended.room = 0  # the others wait for good

    _, found = conducted(tmp_path / "s.db", chooser=Enough(candidates("ok 50", "ok 51", "ok 52", "ok 53")), runner=Slurm(),
                         limits=LIMITS, told=told, at_once=3, budget=Budget(wall_s=60.0))
    assert [each for each in events if each[0] == "withdrawn"] == [("withdrawn", "ok 51"), ("withdrawn", "ok 52")]
    assert {label: each[-1].status for label, each in found.items()} == {"ok 50": "ok"}, "as if nobody had asked"
    assert not pretended.queue


def test_a_budget_of_time_ends_what_waits(tmp_path, pretended):
    pretended.room = 0
    first, found = conducted(tmp_path / "s.db", "ok 50", "ok 51", runner=Slurm(), limits=LIMITS, at_once=2,
                             budget=Budget(wall_s=1.0))
    assert first.stopped == "the budget of 0.0167 minutes is spent" and not pretended.queue and not found


@pytest.mark.parametrize("reuse", [False, True], ids=["array", "allocations"])
@pytest.mark.parametrize("noted", [2, 1, 0])
def test_a_killed_sweep_is_gone_on_with(reuse, noted, tmp_path, pretended):
    first, second = Slurm(), Slurm()
    first.reuse = second.reuse = reuse
    labels = ("brisk 50 20 1", "ok 50 0 1")
    try:
        killed(tmp_path / "s.db", first, labels, noted)
        events = []
        _, found = conducted(tmp_path / "s.db", *labels, runner=second, limits=LIMITS, at_once=2, told=events.append)
    finally:
        first.let_go()
        second.let_go()
    assert [each["label"] for each in events if each["event"] == "adopted"] == list(labels)
    assert {label: [(each.attempt, each.status) for each in several] for label, several in found.items()} == {
        label: [(1, "ok")] for label in labels}
    assert len(pretended.scripts) == (2 if reuse else 1), "nothing was handed over again"


def test_an_adopted_trial_that_waits_goes_to_an_adopted_allocation_that_has_nothing_to_do(tmp_path, pretended):
    pretended.room = 1
    first, second = Slurm(), Slurm()
    first.reuse = second.reuse = True
    killed(tmp_path / "s.db", first, ("brisk 50 20 1", "ok 50 0 1"), 2)
    _, found = conducted(tmp_path / "s.db", "brisk 50 20 1", "ok 50 0 1", runner=second, limits=LIMITS, at_once=2)
    assert [each[-1].outcome.status for each in found.values()] == ["ok", "ok"]
    assert list(pretended.jobs) == ["1"], "the second allocation was taken out of the queue"


@pytest.mark.parametrize("together", one_of(2, [1, 2], first=1))
def test_a_node_that_was_set_aside_is_taken_again_where_the_others_do_not_suffice(tmp_path, pretended, together):
    whole, refused, events = pretended.sbatch, [], []

    def few(*words, cwd):
        if "--exclude=n1" in (cwd / words[-1]).read_text():
            refused.append(cwd)
            return 1, "", "sbatch: error: Batch job submission failed: Requested node configuration is not available"
        return whole(*words, cwd=cwd)

    pretended.sbatch = few
    _, found = conducted(tmp_path / "s.db", "clash", "nccl", "ok 41", runner=Slurm(), limits=LIMITS, told=events.append,
                         at_once=together)
    assert refused and any(each["evidence"].startswith("is needed again") for each in events if each["event"] == "node")
    last = {label: several[-1].outcome.status for label, several in found.items()}
    assert last == {"clash": "nccl", "nccl": "nccl", "ok 41": "ok"} and len(found["clash"]) == 3
