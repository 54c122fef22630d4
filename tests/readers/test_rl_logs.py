"""Logs of reinforcement learning: what each framework's words come to, and which phases its timers are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers import log_texts

from meshwright.readers.logs import chatlearn, nemo_rl, slime, verl
from meshwright.readers.logs.parts import PHASES, split
from meshwright.readers.source import Source
from meshwright.units import GIB


@pytest.fixture
def read(tmp_path):
    def reading(module, text):
        path = tmp_path / "run.log"
        path.write_text(text)
        return module.FORMAT.read(Source(path))[0]

    return reading


def test_verl(read):
    log = read(verl, log_texts.VERL)
    first, second = log.steps
    assert (first.number, first.step_s, first.tokens, first.tokens_per_s_per_device) == (1, 96.551, 3_502_080, 4533.982)
    assert (first.memory_bytes, first.host_bytes) == (61.5 * GIB, 360 * GIB)
    assert (first.response_mean_tokens, first.response_most_tokens, first.prompt_mean_tokens) == (325.0, 1024.0, 102.5)
    assert first.parts == {"gen": 74.02, "old_log_prob": 3.566, "ref": 3.42, "adv": 1.167, "update_actor": 14.302}
    assert (second.step_s, second.parts) == (90.5, {"gen": 70.12345678901234, "update_actor": 14.2})
    assert second.memory_bytes == 62.5 * GIB
    assert log.world == 8
    assert [(each.name, each.most_s) for each in log.timers] == [("testing", 12.5)]


def test_the_share_of_the_actors_update_is_none_of_the_step_and_above_one_it_is_no_share(read):
    log = read(verl, log_texts.VERL)
    assert [(each.mfu_ratio, each.actor_mfu_ratio) for each in log.steps] == [(None, None), (None, 0.318)]
    assert any("above 1" in note for note in log.notes)


def test_the_configuration_that_a_log_dumps_is_kept_in_full_keys_and_the_actors_stands_first(read):
    said = read(verl, log_texts.VERL).settings
    assert {key.rpartition(".")[2]: value for key, value in said.items()} == {
        "ppo_epochs": "1", "ppo_mini_batch_size": "256", "train_batch_size": "1024", "free_cache_engine": "True",
        "gpu_memory_utilization": "0.6",
    }
    assert read(nemo_rl, log_texts.NEMO_RL).settings == {
        "grpo.num_prompts_per_step": "32", "grpo.num_generations_per_prompt": "16", "policy.train_global_batch_size": "512",
    }


def test_verl_of_older_releases(read):
    step, = read(verl, log_texts.VERL_OLDER).steps
    assert (step.number, step.step_s, step.parts["gen"], "testing" in step.parts) == (12, 33.6, 12.597, False)
    assert split(step.parts)["critic"] == 7.5


def test_nemo_rl_counts_on_where_an_epoch_begins_anew(read):
    log = read(nemo_rl, log_texts.NEMO_RL)
    first, second = log.steps
    assert (first.number, first.step_s, first.loss, first.response_mean_tokens) == (1, 68.58, 0.0123, 812.25)
    assert (first.tokens_per_s_per_device, log.world) == (1000.0, 8)
    assert (second.number, second.step_s, second.loss) == (2, 50.0, None)
    assert split(first.parts)["weights"] == 3.0
    assert split(first.parts)["switching"] == pytest.approx(5.0 - 3.0 + 1.2)
    assert split(second.parts) == {"generation": 12.0, "actor": 30.0, "weights": 2.0}


def test_slime_joins_the_two_that_print_and_counts_the_optimizer_steps_between(read):
    log = read(slime, log_texts.SLIME)
    step, = log.steps
    assert (step.number, step.step_s, step.optimizer_steps, step.loss) == (0, 118.17, 2, 0.02)
    assert step.tokens == round(35512.1 * 20.02)
    assert (step.response_mean_tokens, step.response_most_tokens) == (2773.71484375, 4096)
    parts = split(step.parts)
    assert (parts["generation"], parts["actor"], parts["weights"]) == (71.17, 20.02, 2.5)
    assert sum(parts.values()) == pytest.approx(84.33 + 33.84)


def test_generation_beside_training_takes_what_training_waits_for(read):
    log = read(slime, log_texts.SLIME.replace("'perf/rollout_time': 71.17", "'perf/rollout_time': 110.0"))
    assert split(log.steps[0].parts)["generation"] == pytest.approx(84.33 - 4.03 - 2.5 - 1.94 - 0.002)
    assert any("beside training" in note for note in log.notes)


def test_models_of_chatlearn_are_phases_and_the_episode_is_the_step(read):
    log = read(chatlearn, log_texts.CHATLEARN_BY_MODEL)
    step, = log.steps
    assert (step.number, step.step_s, step.optimizer_steps) == (3, 123.45, 3)
    parts = split(step.parts)
    assert (parts["generation"], parts["reference_log_probs"], parts["old_log_probs"]) == (61.0, 9.0, 8.0)
    assert parts["actor"] == pytest.approx(40.2 - 8.0)
    assert parts["weights"] == 6.0


TIMERS = ("gen", "reshard", "reward", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor", "update_weights")


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(TIMERS), st.floats(0.0, 1e4), min_size=1), st.integers(0, 10**9),
       st.sampled_from(["_s", ""]), st.sampled_from(["{:.3f}", "{!r}", "np.float64({!r})"]))
def test_a_line_of_verl_is_read_back_and_nothing_is_counted_twice(tmp_path_factory, timers, number, old, spelt):
    """Whatever phases a release prints, in three ways to print a figure."""
    whole = sum(value for name, value in timers.items() if name != "reshard" or "gen" not in timers) + 1.0
    said = " - ".join(f"timing{old}/{name}:{spelt.format(value)}" for name, value in timers.items())
    path = tmp_path_factory.mktemp("log") / "run.log"
    path.write_text(f"(TaskRunner pid=1) step:{number} - {said} - timing{old}/step:{spelt.format(whole)}\n")
    step, = verl.FORMAT.read(Source(path))[0].steps
    assert (step.number, list(step.parts)) == (number, list(timers))
    assert step.parts == pytest.approx(timers, abs=1e-3)
    parts = split(step.parts)
    assert set(parts) <= set(PHASES)
    assert sum(parts.values()) <= whole + max(0.0, timers.get("reshard", 0.0) - timers.get("gen", 0.0))


def test_a_log_of_nemo_rl_may_begin_at_nought(read):
    log = read(nemo_rl, log_texts.NEMO_RL.replace("Step 1/1000", "Step 0/1000", 1))
    assert [(each.number, each.step_s) for each in log.steps] == [(0, 68.58), (1, 50.0)]


@pytest.mark.parametrize(("module", "text", "behind"), [
    (verl, log_texts.VERL, "timing_s/step:9"), (slime, log_texts.SLIME, "'perf/step_time': 118.1"),
    (chatlearn, log_texts.CHATLEARN_BY_MODEL, "episode: 123.4"), (nemo_rl, log_texts.NEMO_RL, "Total step time: 68.5"),
])
def test_half_of_a_figure_at_the_end_of_a_file_is_none(read, module, text, behind):
    """A line that is still being written said 9 s of 96."""
    end = text.index(behind) + len(behind)
    whole, cut = (read(module, each).steps for each in (text, text[:end]))
    said = {each.number: each.step_s for each in whole}
    assert all(each.step_s is None or each.step_s == pytest.approx(said[each.number]) for each in cut)


def test_a_step_of_slime_without_its_sum_is_what_it_waits_and_trains(read):
    """Not the sum of all timers, of which some lie in others."""
    step, = read(slime, log_texts.SLIME.replace("'perf/step_time': 118.17, ", "")).steps
    assert step.step_s == pytest.approx(84.33 + 33.84)


def test_a_log_of_slime_of_the_process_that_generates_says_no_step(read):
    alone = "".join(f"{line}\n" for line in log_texts.SLIME.splitlines() if "RolloutManager" in line)
    assert [(each.step_s, each.parts) for each in read(slime, alone).steps] == [(None, {}), (None, {})]


def test_a_mean_of_two_decimals_counts_calls_only_where_it_has_some(read):
    text = log_texts.CHATLEARN_BY_MODEL.replace("avg: 10.03", "avg: 0.01")
    assert read(chatlearn, text).steps[0].optimizer_steps is None
