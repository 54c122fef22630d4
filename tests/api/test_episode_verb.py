"""``episode``: what it asks for, what it says, and what it refuses in one line each."""

import io
import json
from importlib import import_module

import pytest

from meshwright.api import EpisodeRequest, PlanRequest, episode, plan
from meshwright.errors import InputError, NoAnswerError
from meshwright.frameworks import File, framework
from meshwright.frameworks.slime.episode import episode as slime_episode
from meshwright.report.console import show
from meshwright.report.episode import told_of

ASKED = {
    "model": "qwen3-8b", "device": "h100-sxm", "nodes": 1, "prompts": 64, "responses": 4, "prompt_tokens": 256,
    "response_tokens": 512, "calibration": "none", "framework": "verl-megatron", "updates": 2,
}


def printed(answer):
    stream = io.StringIO()
    show(told_of(answer), stream, 120)
    return stream.getvalue()


@pytest.fixture(scope="module")
def answer():
    return episode(EpisodeRequest(**ASKED, layout="tp2 dp4 mb1 sp zero1"))


def test_a_step_and_its_document(answer):
    document = json.loads(json.dumps(answer.to_json()))
    assert answer.ok
    assert document["samples"] == 256
    assert document["step_s"] == pytest.approx(sum(phase["seconds"] for phase in document["phases"]))
    assert [phase["name"] for phase in document["phases"]][:4] == ["generation", "old log-probabilities", "reference", "training"]
    assert document["engine"]["tensor_parallel"] in (1, 2, 4, 8)
    assert document["training"]["layout"]["tensor_parallel"] == 2
    assert answer.given.case.batch.packing is not None


def test_what_is_told(answer):
    told = printed(answer)
    for words in ("256 samples", "2 optimizer steps", "generation", "old log-probabilities", "the tail", "no run of an engine"):
        assert words in told


def test_the_layout_is_searched_where_none_is_given_and_pins_hold():
    found = episode(EpisodeRequest(**ASKED, pin=["tp=4"], max_tokens=4096))
    assert found.trained.layout.tensor_parallel == 4
    assert found.ok


def test_an_engine_without_room_is_a_no():
    found = episode(EpisodeRequest(**{**ASKED, "engine_memory": 0.2, "engine_tp": 1}, layout="tp2 dp4 mb1 sp zero1"))
    assert (found.ok, found.status) == (False, 1)
    assert "no room" in printed(found)
    assert found.to_json()["step_s"] is None


@pytest.mark.parametrize(
    ("changed", "ids"),
    [
        ({"prompts": None, "response_tokens": None}, {"episode.missing"}),
        ({"longest_response": 100}, {"episode.longest"}),
        ({"updates": 7}, {"episode.updates"}),
        ({"prompts": 10**8, "responses": 2}, {"episode.samples"}),
        (dict.fromkeys(("prompts", "updates", "response_tokens"), 10**12), {"number.high"}),
        ({"engine_tp": 3}, {"episode.engine"}),
        ({"engine_memory": 1.5, "prompts": -3, "updates": 0}, {"number.share", "number.low"}),
        ({"layout": "tp3"}, None),
        ({"model": "nomodel", "longest_response": 100}, None),
    ],
)
def test_bad_input_is_said_all_at_once(changed, ids):
    with pytest.raises(InputError) as caught:
        episode(EpisodeRequest(**{**ASKED, **changed}))
    found = {message.id for message in caught.value.messages}
    assert ids is None or len(found) == len(ids) or ids <= found
    assert all("\n" not in str(message) for message in caught.value.messages)


def test_a_model_that_no_layout_fits_has_no_answer_and_no_other_cluster_is_looked_for(monkeypatch):
    """What would close the gap was searched for each cap of a pack, and not shown: minutes for prompts of a billion tokens."""
    monkeypatch.setattr(import_module("meshwright.search.plan"), "levers", lambda *_, **__: pytest.fail("looked for"))
    with pytest.raises(NoAnswerError) as caught:
        episode(EpisodeRequest(**{**ASKED, "model": "llama3.1-405b"}))
    assert "no layout of the trainer fits" in str(caught.value)


def test_what_a_framework_never_trains_is_not_searched(monkeypatch):
    """Such a search took as long as one for a larger cluster, and said nothing of it."""
    from meshwright import search

    monkeypatch.setattr(search, "plan", lambda *_, **__: pytest.fail("searched"))
    on_ascend = {name: value for name, value in ASKED.items() if name != "framework"} | {"device": "ascend-910b"}
    with pytest.raises(NoAnswerError) as caught:
        episode(EpisodeRequest(**on_ascend))
    assert "has no plan" in str(caught.value)


@pytest.mark.parametrize(("framework", "file"), [("verl-megatron", "run.sh"), ("slime", "run.sh")])
def test_files_say_the_step_and_flags_win(tmp_path, framework, file):
    """A plan of 64 samples an optimizer step: 8 prompts of 8 responses, a KL term, its layout and cap."""
    words = {"device": "h100-sxm", "nodes": 1, "calibration": "none"}
    more = {"global_batch": 64, "sequence": 4096, "framework": framework, "pin": ["tp=2"]}
    plan(PlanRequest(model="qwen3-8b", **words, **more, save=tmp_path / "out"))
    asked = {**words, "model": "qwen3-8b", "files": [str(tmp_path / "out" / file)], "response_tokens": 500}
    found = episode(EpisodeRequest(**asked))
    step = found.estimate.episode
    assert (step.prompts, step.responses, step.updates, step.old, step.reference) == (8, 8, 1, True, True)
    assert step.prompt_tokens + step.response.longest_tokens == 4096
    assert found.trained.layout.tensor_parallel == 2
    assert (found.engine.memory_ratio, found.engine.running) == (0.6, 256)
    pinned = episode(EpisodeRequest(**asked, pin=["tp=4"]))
    assert (pinned.trained.layout.tensor_parallel, pinned.estimate.episode.prompts) == (4, 8)
    said = episode(EpisodeRequest(**asked, layout="tp8 dp1 mb1 sp zero0"))
    assert said.trained.layout.tensor_parallel == 8
    flags = {"prompts": 16, "no_reference": True, "engine_memory": 0.5, "updates": 2, "epochs": 3}
    other = episode(EpisodeRequest(**{**asked, **flags}))
    assert (other.estimate.episode.updates, other.estimate.episode.epochs, step.epochs) == (2, 3, 1)
    assert (other.estimate.episode.prompts, other.estimate.episode.reference, other.engine.memory_ratio) == (16, False, 0.5)


def test_files_that_start_no_such_step_are_said(tmp_path):
    words = {"device": "h100-sxm", "nodes": 1, "calibration": "none"}
    plan(PlanRequest(model="qwen3-8b", **words, global_batch=64, sequence=4096, framework="megatron", save=tmp_path / "out"))
    asked = {**words, "model": "qwen3-8b", "files": [str(tmp_path / "out" / "train.sh")], "response_tokens": 500}
    with pytest.raises(InputError) as caught:
        episode(EpisodeRequest(**asked))
    assert [message.id for message in caught.value.messages] == ["episode.files"]


def test_recipes_of_nemo_rl_bound_prompts_apart_only_where_responses_are_shorter(tmp_path):
    words = {"device": "h100-sxm", "nodes": 1, "calibration": "none"}
    folder = tmp_path / "out"
    more = {"global_batch": 64, "sequence": 4096, "framework": "nemo-rl-megatron", "pin": ["tp=2"]}
    plan(PlanRequest(model="qwen3-8b", **words, **more, save=folder))
    asked = {**words, "model": "qwen3-8b", "files": [str(folder / "recipe.yaml")], "response_tokens": 500}
    with pytest.raises(InputError) as caught:
        episode(EpisodeRequest(**asked))
    assert [message.values["names"] for message in caught.value.messages] == ["--prompt-tokens is"]
    step = episode(EpisodeRequest(**asked, prompt_tokens=300)).estimate.episode
    assert (step.samples, step.updates, step.prompt_tokens) == (64, 1, 300)


def test_micro_batches_of_so_many_samples_are_packs_of_as_many_mean_ones(tmp_path):
    words = {"device": "h100-sxm", "nodes": 1, "calibration": "none"}
    more = {"global_batch": 512, "sequence": 4096, "framework": "slime", "pin": ["tp=2", "mb=8"]}
    plan(PlanRequest(model="qwen3-8b", **words, **more, save=tmp_path / "out"))
    asked = {**words, "model": "qwen3-8b", "files": [str(tmp_path / "out" / "run.sh")], "prompt_tokens": 1000}
    short, long = (episode(EpisodeRequest(**asked, response_tokens=mean)).given.case.batch for mean in (200, 1000))
    assert short.sequence_tokens == pytest.approx(8 * 1200, abs=512)
    assert long.sequence_tokens == pytest.approx(8 * 2000, abs=512)


def test_a_step_whose_engine_takes_the_whole_device_is_a_no():
    found = episode(EpisodeRequest(**ASKED, layout="tp2 dp4 mb1 sp zero1", engine_memory=0.99))
    assert (found.ok, found.status) == (False, 1)
    assert "generation does not fit" in printed(found)


SLIME = (
    "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --rollout-batch-size 8 --n-samples-per-prompt 8 "
    "--rollout-max-prompt-len 512 --rollout-max-response-len $LONGEST --num-steps-per-rollout $STEPS --micro-batch-size 1 "
    "--tensor-model-parallel-size 2 --sequence-parallel --kl-loss-coef 0.001 {more}\n"
)


def test_what_files_leave_to_the_run_is_asked_for_and_taken_in_the_options_of_a_step(tmp_path):
    """It was asked for as --global-batch and --sequence, which there are not."""
    (tmp_path / "run.sh").write_text(SLIME.format(more=""))
    asked = {"model": "qwen3-8b", "device": "h100-sxm", "nodes": 1, "calibration": "none", "files": [str(tmp_path / "run.sh")],
             "from_": "slime", "response_tokens": 200}
    with pytest.raises(InputError) as caught:
        episode(EpisodeRequest(**asked))
    assert "what --prompts, --responses and --updates, --prompt-tokens and --longest-response would say" in str(caught.value)
    found = episode(EpisodeRequest(**asked, updates=1, longest_response=1000)).estimate.episode
    assert (found.samples, found.updates, found.prompt_tokens, found.response.longest_tokens) == (64, 1, 512, 1000)


@pytest.mark.parametrize(
    ("more", "scores"), [("", False), ("--use-kl-loss", True), ("--kl-coef 0.1", True), ("--kl-coef 0", False)]
)
def test_slime_has_a_reference_where_its_loss_or_its_rewards_ask_for_one(tmp_path, more, scores):
    """Whatever the coefficient of the loss is: with_ref=args.kl_coef != 0 or args.use_kl_loss."""
    script = File(path="run.sh", text=SLIME.format(more=more))
    assert slime_episode(framework("slime").read([script])).reference is scores


def test_what_the_search_says_of_the_batch_is_said_of_prompts_and_responses():
    asked = {name: value for name, value in ASKED.items() if name != "framework"}
    with pytest.raises((InputError, NoAnswerError)) as caught:
        episode(EpisodeRequest(**{**asked, "model": "gpt2", "longest_response": 2048}))
    assert str(caught.value).startswith("--longest-response: gpt2 has learned 1,024 positions")
    with pytest.raises((InputError, NoAnswerError)) as caught:
        episode(EpisodeRequest(**{**asked, "nodes": 100_000, "prompts": 8, "responses": 1, "updates": 1}))
    assert "--global-batch" not in str(caught.value)
    assert "--prompts: no layout on 800000 devices shares" in str(caught.value)


def test_a_step_grows_with_the_longest_response_where_packs_stay_as_long():
    """Packs of one longest sample each are longer and fewer as it grows: generation alone is longer then."""
    asked = {"model": "qwen3-8b", "device": "h100-sxm", "nodes": 2, "framework": "verl-megatron", "prompts": 512, "responses": 8,
             "prompt_tokens": 512, "response_tokens": 1500, "updates": 4, "layout": "tp2 pp1 dp8 mb1 zero1 sp"}

    def phases(**more):
        return {each.name: each.seconds for each in episode(EpisodeRequest(**asked, **more)).estimate.phases}

    short, long = (phases(longest_response=tokens, max_tokens=16896) for tokens in (2048, 8192))
    assert all(short[name] <= long[name] for name in short)
    own = [phases(longest_response=tokens) for tokens in (2048, 8192)]
    assert own[0]["generation"] < own[1]["generation"] and own[0]["training"] > own[1]["training"]
