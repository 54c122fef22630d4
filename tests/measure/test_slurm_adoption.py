"""A sweep that was killed after it had submitted: tasks of its array and trials of its allocations are found, and none runs twice.

Slurm is pretended here; docs/sweep.md has the same under a real one (``python -m benchmarks.trial_faults.cluster``).
"""

from __future__ import annotations

import json
import sqlite3

import pytest
from pretended_slurm import PretendedSlurm
from trials_here import candidates, conducted, trial_of

from meshwright.measure.conduct.verdict import AGAIN
from meshwright.measure.executors import slurm_asking
from meshwright.measure.executors.base import Handed
from meshwright.measure.executors.slurm import Slurm
from meshwright.measure.store import Store
from meshwright.measure.trial import Limits

LIMITS = Limits(first_step_s=20.0, step_s=20.0, silence_s=20.0, total_s=60.0, dying_s=1.0, grace_s=0.5)
DEAD = json.dumps({"host": "", "boot": "", "pid": 1, "start": 0})


@pytest.mark.parametrize("reuse", [False, True], ids=["array", "allocations"])
@pytest.mark.parametrize("noted", [2, 1, 0])
def test_a_killed_sweep_is_gone_on_with(reuse, noted, tmp_path, monkeypatch):
    pretended = PretendedSlurm()
    monkeypatch.setattr(slurm_asking, "asked", pretended)
    monkeypatch.setattr(Slurm, "every_s", 0.05)
    first, second = Slurm(), Slurm()
    first.reuse = second.reuse = reuse
    labels = ("brisk 50 20 1", "ok 50 0 1")
    try:
        with Store(tmp_path / "s.db") as store:
            handed, claims = [], []
            for each in candidates(*labels):
                trial = trial_of(each, LIMITS)
                claim = store.claim("stand-in", each.label, executor="slurm", folder=trial.name, retry=AGAIN, most=3)
                folder = store.folder.absolute() / claim.attempt.folder
                trial.fill(folder)
                handed.append(Handed(trial, folder, claim.attempt.mark))
                claims.append(claim.attempt)
            handles = first.submit_all(handed)
            for attempt, handle in list(zip(claims, handles, strict=True))[:noted]:
                store.started(attempt, handle)
        with sqlite3.connect(tmp_path / "s.db") as db:
            db.execute("UPDATE attempts SET owner=json_set(?, '$.host', json_extract(owner, '$.host'))", (DEAD,))
        events = []
        _, found = conducted(tmp_path / "s.db", *labels, runner=second, limits=LIMITS, at_once=2, told=events.append)
    finally:
        first.let_go()
        second.let_go()
        pretended.end()
    assert [each["label"] for each in events if each["event"] == "adopted"] == list(labels)
    assert {label: [(each.attempt, each.status) for each in several] for label, several in found.items()} == {
        label: [(1, "ok")] for label in labels}
    assert len(pretended.scripts) == (2 if reuse else 1), "nothing was handed over again"
