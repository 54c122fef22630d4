"""Meshwright killed after it has told a trial to end and before that has ended: whoever goes on knows why it was told."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from trials_here import conducted

from meshwright.measure.conduct.running import Running
from meshwright.measure.executors.processes import marked
from meshwright.measure.trial import TOLD, Limits, Trial
from meshwright.measure.watching import Seen

KILLED = """
import os, signal, sys
from pathlib import Path
from meshwright.measure.executors.local import Local
from trials_here import conducted

end = Local.cancel

def cancel(self, handle, grace_s):
    if sys.argv[2] == "after":
        end(self, handle, grace_s)
    os.kill(os.getpid(), signal.SIGKILL)

Local.cancel = cancel
conducted(Path(sys.argv[1]), "hang 50 3 2")
"""


@pytest.mark.parametrize(("moment", "attempts"), [("after", 1), ("before", 2)])
def test_a_hang_that_a_killed_meshwright_was_ending_is_a_hang(tmp_path, moment, attempts):
    store = tmp_path / "s.db"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    killed = subprocess.run([sys.executable, "-c", KILLED, str(store), moment], env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert killed.returncode == -signal.SIGKILL
    _, found = conducted(store, "hang 50 3 2")
    (every,) = found.values()
    assert [each.outcome.status for each in every][-1] == "hang" and len(every) == attempts
    assert "after step 3" in every[-1].outcome.evidence
    assert not any(marked(each.mark) for each in every)


def started(folder):
    return Running(candidate=None, trial=Trial(label="x", command=("true",)), attempt=None, handle="h", folder=folder)


def test_why_a_trial_was_told_to_end_is_read_back_and_nothing_else_is(tmp_path):
    assert not started(tmp_path).recall()
    started(tmp_path).told_to_end("hang", "silent for 5 s after step 3")
    found = started(tmp_path)
    assert found.recall() and (found.why, found.said) == ("hang", "silent for 5 s after step 3")
    for odd in ("", "{", "[]", '{"why": "mine", "said": ""}', '{"why": "", "said": ""}', '{"why": ["hang"], "said": ""}', "\xff"):
        (tmp_path / TOLD).write_bytes(odd.encode("latin-1"))
        assert not started(tmp_path).recall(), odd


def test_a_folder_that_takes_no_note_keeps_no_trial_running(tmp_path):
    found = started(tmp_path / "gone")
    found.told_to_end("timeout", "not done within 1 s")
    assert found.why == "timeout"


def test_a_hang_that_was_looked_at_late_is_a_hang_and_one_that_goes_on_is_over_its_time():
    limits = Limits(first_step_s=2.0, step_s=1.0, silence_s=1.0, total_s=3.0)
    for steps, changed, wanted in ((0, 0.0, "hang"), (3, 0.5, "hang"), (3, 9.9, "timeout")):
        found = started(Path("nowhere"))
        found.trial, found.begun, found.now = replace(found.trial, limits=limits), 0.0, Seen(steps=steps)
        found._changed = found._stepped = changed
        assert found.due(10.0, None)[0] == wanted
    slow = started(Path("nowhere"))
    slow.trial, slow.begun = replace(slow.trial, limits=replace(limits, first_step_s=60.0)), 0.0
    assert slow.due(2.9, None)[0] == "" and slow.due(3.1, None)[0] == "timeout"
