"""The loop on this machine: every ending is classed, retried where that helps, and nothing stays behind."""

import pytest
from trials_here import conducted

from meshwright.measure.conduct.alike import FirstFailures
from meshwright.measure.conduct.budget import Budget
from meshwright.measure.conduct.verdict import LAST_LINE
from meshwright.measure.executors.processes import marked
from meshwright.measure.outcome import Outcome

ENDS = {
    "ok": ("ok", 1), "oom": ("oom", 1), "clash": ("nccl", 3), "silent": ("hang", 1), "stubborn 50 6 3": ("hang", 1),
    "exits": ("user", 1), "garbage": ("parse", 1), "ok 0": ("parse", 1), "nan": ("user", 1), "diverging": ("user", 1),
    "half": ("oom", 1), "alone": ("node", 3),
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


def test_a_call_whose_first_trials_fail_alike_ends_and_others_go_on(tmp_path):
    first, found = conducted(tmp_path / "a.db", "user", "user 41", "user 42", "ok")
    assert list(found) == ["user", "user 41", "user 42"]
    assert first.stopped == "the first 3 trials failed alike: pretrain_gpt.py: error: unrecognized arguments: --foo"
    _, found = conducted(tmp_path / "b.db", "user", "user 41", "exits", "user 42", "ok")
    assert found["ok"][0].outcome.status == "ok", "they failed each its own way"


def test_what_programs_say_counts_and_not_on_which_node_they_said_it():
    first = FirstFailures()
    srun = "srun: error: n{0}: task {0}: Exited with exit code 2" + LAST_LINE + "no x.py"
    said = [first.note(Outcome(status="user", evidence=srun.format(each)), "tp1-1") for each in range(3)]
    assert said[:2] == ["", ""] and said[2].endswith("no x.py")


def test_what_launch_files_say_counts_and_not_in_which_line_of_them():
    first, other = FirstFailures(), FirstFailures()
    words = "exit status 1" + LAST_LINE + "train.sh: line {}: no tokenizer"
    said = [first.note(Outcome(status="user", evidence=words.format(each)), "t") for each in (109, 105, 103)]
    assert list(map(bool, said)) == [False, False, True]
    words = "exit status 1" + LAST_LINE + "hidden is not divisible by {}"
    assert not any(other.note(Outcome(status="user", evidence=words.format(each)), "t") for each in (3, 5, 7)), "others may run"


@pytest.mark.parametrize(("statuses", "wanted"), [
    (("user", "user", "user"), True), (("user", "oom", "user", "user", "user"), False), (("ok", "user", "user", "user"), False),
    (("user", "user"), False),
])
def test_only_failures_of_the_user_from_the_first_trial_on_are_hopeless(statuses, wanted):
    first = FirstFailures()
    said = [first.note(Outcome(status=each, evidence=f"no file /runs/t{number}/x.py"), f"t{number}")
            for number, each in enumerate(statuses)]
    assert any(said) == wanted


def test_nothing_of_any_trial_runs_on(run):
    _, found = run
    assert not [each.mark for attempts in found.values() for each in attempts if marked(each.mark)]


def test_a_budget_of_time_ends_what_runs_and_it_is_run_again(tmp_path):
    first, found = conducted(tmp_path / "s.db", "slow", budget=Budget(wall_s=0.5))
    assert [each.outcome.status for each in found["slow"]] == ["cancelled"]
    assert first.stopped == "the budget of 0.00833 minutes is spent" == found["slow"][0].outcome.evidence
    _, found = conducted(tmp_path / "s.db", "slow", "ok", budget=Budget(device_s=0.3))
    assert [each.outcome.status for each in found["slow"]] == ["cancelled", "cancelled"] and "ok" not in found


def test_trials_of_one_sweep_may_share_the_processors(tmp_path):
    together, most = set(), 0

    def told(event):
        nonlocal most
        if event["event"] == "started":
            together.add(event["label"])
        if event["event"] == "ended":
            together.discard(event["label"])
        most = max(most, len(together))

    _, found = conducted(tmp_path / "s.db", "ok 40", "ok 41", "ok 42", told=told, at_once=2)
    assert most == 2 and {each[-1].outcome.status for each in found.values()} == {"ok"}
