"""The loop on this machine: every ending is classed, retried where that helps, and nothing stays behind."""

import subprocess

import pytest
from trials_here import conducted

from meshwright.measure.executors.processes import marked

ENDS = {
    "ok": ("ok", 1), "oom": ("oom", 1), "clash": ("nccl", 3), "silent": ("hang", 1), "stubborn 50 6 3": ("hang", 1),
    "exits": ("user", 1), "garbage": ("parse", 1), "nan": ("user", 1), "diverging": ("user", 1),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return conducted(tmp_path_factory.mktemp("sweep") / "s.db", *ENDS)


def test_every_ending_has_its_class_and_is_tried_again_where_that_helps(run):
    _, found = run
    seen = {kind: (attempts[-1].outcome.status, len(attempts)) for kind, attempts in found.items()}
    assert seen == ENDS
    assert found["oom"][0].outcome.rank == 1 and "out of memory" in found["oom"][0].outcome.evidence
    assert found["nan"][0].outcome.step_s and not found["nan"][0].outcome.measured
    assert "diverges" in found["diverging"][0].outcome.evidence
    assert "after step 6" in found["stubborn 50 6 3"][0].outcome.evidence and "of its start" in found["silent"][0].outcome.evidence


def test_nothing_of_any_trial_runs_on(run):
    _, found = run
    assert not [each.mark for attempts in found.values() for each in attempts if marked(each.mark)]
    assert subprocess.run(["pgrep", "-f", "sleep 1001"], capture_output=True, check=False).returncode == 1
