"""Steps of reinforcement learning, phase by phase, against sums made by hand."""

from __future__ import annotations

import pytest
from tests.report.diagnosis_samples import PHASES, view_of

from meshwright.diagnose.phases import phases_of
from meshwright.domain.observed import Step
from meshwright.domain.observed.steady import steady
from meshwright.report.diagnose import told_of_view
from meshwright.report.pages.diagnose import page_of_view


def phases(step_s, **parts):
    return phases_of(steady([Step(number=1, step_s=step_s, line=1, parts=parts)]), "the timers of a.log")


def test_phases_stand_in_the_order_of_the_step_and_what_is_left_is_other():
    found = phases(100.0, update_actor=20.0, gen=60.0, ref=5.0, old_log_prob=6.0, update_weights=4.0)
    names = [each.name for each in found.phases]
    assert names == ["generation", "old_log_probs", "reference_log_probs", "actor", "weights"]
    assert found.other_s == pytest.approx(5.0)
    assert found.ratio("old_log_probs", "reference_log_probs") == pytest.approx(0.11)
    assert found.ratio("critic") is None


def test_a_step_that_only_trains_has_no_phases():
    assert phases(1.0, forward_compute=0.5) is None
    assert phases(1.0, policy_training=0.9, data_processing=0.05) is None


def test_phases_that_go_on_beside_each_other_leave_nothing_that_could_be_told():
    assert phases(100.0, gen=80.0, update_actor=60.0).other_s is None


def test_an_rl_step_is_told_on_a_terminal_and_on_a_page():
    view = view_of(phases=PHASES, split=None, expected={})
    said = next(each for each in told_of_view(view) if getattr(each, "title", "").startswith("An RL step of 10.0 s"))
    words = ["".join(run.text for run in each.words) for each in said.blocks]
    assert [each.split("  ")[0] for each in words] == ["generation", "log probabilities, reference", "training, actor", "other"]
    assert "60.0 %" in words[0]
    page = page_of_view(view)
    assert any(section.title.startswith("An RL step") for section in page.sections)
