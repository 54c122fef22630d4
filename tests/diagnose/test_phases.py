"""Steps of reinforcement learning, phase by phase, against sums made by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers import log_texts
from tests.report.diagnosis_samples import PHASES, view_of

from meshwright.api.views.diagnose import phases_view
from meshwright.diagnose import Run
from meshwright.diagnose import diagnose as judged
from meshwright.diagnose.comparison import compare_runs
from meshwright.diagnose.phases import phases_of
from meshwright.diagnose.remedies import _table
from meshwright.domain.observed import RunLog, Step
from meshwright.domain.observed.steady import steady
from meshwright.errors import InputError
from meshwright.frameworks import framework
from meshwright.readers.formats import observe
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


SPOILED = st.sampled_from([
    ("timing_s/step:", "timing_s/step:-"), ("timing_s/step:", "timing_s/step:0.000 "), ("74.020", "nan"), ("3.566", "1e400"),
    ("14.302", "99999999.0"), ("- ", ""), ("step:1 ", "step:999999999999999999 "), ("1024.000", "inf"), ("325.0", "0.0"),
    ("timing_s/", "timing/"),
    ("'ppo_mini_batch_size': 256", "'ppo_mini_batch_size': 0"), ("\n", " "), ("update_actor", "gen"),
])

TEXTS = (log_texts.VERL, log_texts.NEMO_RL, log_texts.SLIME, log_texts.CHATLEARN_BY_MODEL)


@given(st.lists(SPOILED, max_size=4), st.sampled_from(TEXTS))
@settings(max_examples=25, deadline=None)
def test_whatever_a_log_says_its_phases_are_shares_of_a_step(tmp_path_factory, spoils, text):
    for theirs, ours in spoils:
        text = text.replace(theirs, ours)
    path = tmp_path_factory.mktemp("log") / "run.log"
    path.write_text(text)
    try:
        found = judged(Run(observations=observe([path]).observations))
    except InputError:
        return
    told = found.run.phases
    if told is not None and told.other_s is not None:
        assert sum(each.time_s for each in told.phases) + told.other_s == pytest.approx(told.step_s, rel=0.02)
    view = phases_view(found.run)
    json.dumps(view, allow_nan=False)
    assert view is None or all(0.0 <= each["ratio"] <= 1.0 for each in view["phases"])
    assert all(each.loss_ratio is None or 0.0 <= each.loss_ratio <= 1.0 for each in found.findings)


def test_an_rl_step_is_told_on_a_terminal_and_on_a_page():
    view = view_of(phases=PHASES, split=None, expected={})
    said = next(each for each in told_of_view(view) if getattr(each, "title", "").startswith("An RL step of 10.0 s"))
    words = ["".join(run.text for run in each.words) for each in said.blocks]
    assert [each.split("  ")[0] for each in words] == [
        "generation", "log probabilities, reference", "training, actor", "other",
        "tokens of a response: mean 300, the longest 1,200", "4 optimizer steps", "MFU of the actor's update 30.0 %",
    ]
    assert "60.0 %" in words[0]
    page = page_of_view(view)
    assert any(section.title.startswith("An RL step") for section in page.sections)


def run_of(step_s=300.0, framework="verl", settings=None, said=None, **parts):
    step = Step(number=1, step_s=step_s, line=7, parts=parts, **(said or {}))
    return Run(observations=(RunLog(file="a.log", format="verl_log", framework=framework, steps=(step,), settings=settings or {}),))


def findings(run):
    return {each.id: each for each in judged(run).findings}


def test_verl_7203_its_passes_take_as_long_as_the_update():
    """Generation 29 s, old and reference log probabilities 84 and 82 s, the update 91 s: passes that take 92 and 90 % of it.

    Source: verl-project/verl issue 7203 (2.3 to 2.7 % MFU). Beyond a third of the update are 84 + 82 - 2 x 91 / 3 = 105 of 290 s.
    """
    found = findings(run_of(290.0, gen=29.0, old_log_prob=84.0, ref=82.0, update_actor=91.0))
    assert list(found) == ["phases.log_probs"]
    passes = found["phases.log_probs"]
    assert passes.severity == "warning"
    assert passes.loss_ratio == pytest.approx((84 + 82 - 2 * 91 / 3) / 290)
    assert "92.3 %" in str(passes.message)
    assert [(each.place.file, each.place.line) for each in passes.evidence] == [("a.log", 7)] * 2
    assert "log_prob_max_token_len_per_gpu" in passes.remedies[0]


@pytest.mark.parametrize(("framework", "key"), [
    ("nemo-rl", "logprob_batch_size"), ("slime", "--log-probs-max-tokens-per-gpu"), ("chatlearn", "keep nothing"),
])
def test_remedies_are_in_the_words_of_the_framework_whose_log_it_is(framework, key):
    found = findings(run_of(290.0, framework, gen=29.0, old_log_prob=84.0, ref=82.0, update_actor=91.0))
    assert key in found["phases.log_probs"].remedies[0]


def test_both_passes_in_one_timer_may_take_twice_as_much():
    """A third of the update each, and told from a half each; whether there are two is not said."""
    def told(spent):
        return "phases.log_probs" in findings(run_of(generation=100.0, policy_and_reference_logprobs=spent, policy_training=90.0))
    assert not told(89.0)
    assert told(91.0)


@given(update=st.floats(1.0, 100.0), share=st.floats(0.01, 0.49), recomputed=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_forward_pass_by_its_operations_is_never_told(update, share, recomputed):
    forward = update / (4 if recomputed else 3)
    found = findings(run_of(300.0, gen=100.0, old_log_prob=forward, ref=min(forward, share * update), update_actor=update))
    assert "phases.log_probs" not in found


def test_generation_says_what_the_longest_response_is_beside_the_mean():
    """verl issue 1208: 74 of 96.6 s; the longest has 1024 tokens, the mean 325: 3.2 times."""
    parts = {"gen": 74.0, "update_actor": 14.3}
    lengths = {"response_mean_tokens": 325.0, "response_most_tokens": 1024.0}
    tail = findings(run_of(96.6, said=lengths, **parts))["phases.generation"]
    assert tail.severity == "warning"
    assert "3.2 times" in str(tail.message)
    bare = findings(run_of(96.6, **parts))["phases.generation"]
    assert bare.severity == "advice"
    assert "response" not in str(bare.message)
    assert "phases.generation" not in findings(run_of(200.0, **parts))


def test_weights_and_switching_above_a_tenth_are_told_together():
    found = findings(run_of(100.0, gen=40.0, update_actor=40.0, update_weights=6.0, switch_to_trainer=5.0))["phases.weights"]
    assert found.loss_ratio == pytest.approx(0.11)
    assert len(found.evidence) == 2
    assert "phases.weights" not in findings(run_of(100.0, gen=40.0, update_actor=40.0, update_weights=6.0))


@pytest.mark.parametrize(("freed", "reserved", "told"), [("False", 40.0, True), ("True", 40.0, False), ("False", 20.0, False)])
def test_an_engine_that_keeps_its_memory_beside_a_trainer_that_needs_it(freed, reserved, told):
    rollout = {f"actor_rollout_ref.rollout.{key}": value for key, value in
               (("gpu_memory_utilization", "0.6"), ("free_cache_engine", freed))}
    run = run_of(100.0, settings=rollout, said={"memory_bytes": reserved * 2**30}, gen=40.0, update_actor=40.0)
    assert ("phases.memory" in findings(replace(run, device_memory_bytes=80 * 2**30))) is told


COUNTED = {"data.train_batch_size": "1024", "actor_rollout_ref.actor.ppo_mini_batch_size": "256"}


@pytest.mark.parametrize(("settings", "said", "steps"), [
    (COUNTED, {}, 4), (COUNTED | {"actor_rollout_ref.actor.ppo_epochs": "2"}, {}, 8),
    ({}, {"optimizer_steps": 3}, 3), ({}, {}, None),
    ({"data.train_batch_size": "1024"}, {}, None), (COUNTED | {"data.train_batch_size": "<unknown>"}, {}, None),
    ({"grpo.num_prompts_per_step": "32", "grpo.num_generations_per_prompt": "16", "policy.train_global_batch_size": "256"}, {}, 2),
])
def test_optimizer_steps_are_known_where_log_or_files_say_them(settings, said, steps):
    training = run_of(100.0, settings=settings, said={"tokens": 8192, **said}, gen=40.0, update_actor=48.0).training
    assert (training.update_s, training.optimizer_steps) == (48.0, steps)
    assert training.step_s == (None if steps is None else 48.0 / steps)
    assert training.tokens == (None if steps is None else 8192 / steps)


def test_two_runs_say_which_phase_changed_and_which_lengths_did():
    a = run_of(100.0, said={"response_mean_tokens": 300.0}, gen=60.0, update_actor=30.0)
    b = run_of(140.0, said={"response_mean_tokens": 450.0}, gen=100.0, update_actor=30.0)
    found = compare_runs(a, b)
    parts = {each.part: each for each in found.parts}
    assert parts["generation"].why == "tokens of the mean response 300 -> 450"
    assert (parts["actor"].why, parts["other"].why) == ("the same", "the same")
    assert not found.settings_changed


def test_keys_of_verl_are_those_of_its_releases():
    known = framework("verl-megatron").surface().keys | framework("verl-fsdp").surface().keys
    for finding, rows in _table().items():
        for key in (each.get("keys", {}).get("verl", "") for each in rows):
            for name in re.findall(r"(?:actor_rollout_ref|data|algorithm|trainer)[a-z_0-9.]*[a-z]", key):
                assert any(each == name or each.startswith(f"{name}.") for each in known), (finding, name)


def test_a_phase_that_is_longer_than_the_step_goes_on_in_all_of_it():
    """Generation of 300 s beside steps of 95 s was 315 % of the step."""
    told = findings(run_of(95.0, gen=300.0, update_actor=14.0))["phases.generation"]
    assert "takes 100.0 % of the step" in str(told.message)
    assert phases(95.0, gen=300.0, update_actor=14.0).ratio("generation") == 1.0


def test_timers_are_no_step_beside_steps_that_are_said():
    """A step of which the log says no time had that of its timers, which may be a part of it."""
    steps = [Step(number=1, step_s=None, line=1, parts={"update_actor": 20.0}),
             Step(number=2, step_s=90.0, line=2, parts={"gen": 60.0, "update_actor": 20.0})]
    found = steady(steps)
    assert (found.step_s, len(found.steps)) == (90.0, 1)
    assert steady(steps[:1]).step_s == 20.0
