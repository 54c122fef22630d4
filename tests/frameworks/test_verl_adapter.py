"""verl's scripts as users have them: what is read, what is found wrong, in its own words, and what is written.

The verdicts are those of verl 1dda039b9 on these words (``tests/frameworks/oracles/verl_hydra.py``).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracles_run import judge, needs

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.documents.shell import parse_shell
from meshwright.documents.source import File
from meshwright.domain.label import label
from meshwright.frameworks import framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.settings import Given
from meshwright.testing import legal_plans

A, R = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
SOUND = {
    "model_engine": "megatron", f"{R}name": "vllm", "algorithm.adv_estimator": "grpo", "trainer.nnodes": 2,
    "trainer.n_gpus_per_node": 8, "data.train_batch_size": 128, f"{R}n": 8, f"{A}ppo_mini_batch_size": 64,
    f"{A}ppo_micro_batch_size_per_gpu": 2, f"{R}log_prob_micro_batch_size_per_gpu": 4,
    f"{A}megatron.tensor_model_parallel_size": 2, f"{A}megatron.pipeline_model_parallel_size": 2,
    f"{R}tensor_model_parallel_size": 2,
}
DYNAMIC = {f"{A}use_dynamic_bsz": True}
CASES = {
    "sound": ({}, "", ""),
    "grid": ({f"{A}megatron.tensor_model_parallel_size": 3}, "grid",
             "n_gpus (16) must be divisible by model_parallel_size (6) times context_parallel_size (1)"),
    "minimal batch": ({f"{A}ppo_micro_batch_size_per_gpu": 3}, "minimal-batch",
                      "real_train_batch_size (1024) must be divisible by minimal possible batch size (12)"),
    "no micro-batch": ({f"{A}ppo_micro_batch_size_per_gpu": "null"}, "no-microbatch",
                       "unsupported operand type(s) for *: 'int' and 'NoneType'"),
    "both": ({f"{A}ppo_micro_batch_size": 16}, "both-microbatches",
             "[actor] You have set both 'actor.ppo_micro_batch_size' AND 'actor.ppo_micro_batch_size_per_gpu'."),
    "mini-batch": ({f"{A}ppo_mini_batch_size": 256}, "mini-batch-size",
                   "train_batch_size (128) must be >= actor.ppo_mini_batch_size (256)"),
    "rollout": ({f"{R}tensor_model_parallel_size": 3}, "rollout-world",
                "rollout world_size: 16 is not divisible by infer_world_size: 3"),
    "rollout experts": ({f"{R}expert_parallel_size": 4}, "rollout-experts",
                        "expert_parallel_size must be equal to tensor_model_parallel_size * data_parallel_size"),
    "sync": ({f"{R}mode": "sync"}, "rollout-mode", "Rollout mode 'sync' has been removed."),
    "no log-prob": ({f"{R}log_prob_micro_batch_size_per_gpu": "null"}, "log-prob-microbatch",
                    "[actor_rollout_ref.rollout] Please set at least one of"),
    "plus on a value": ({f"+{A}megatron.override_transformer_config.attention_backend": "fused"}, "appended",
                        "Could not append to config. An item is already at"),
    "no plus": ({f"{A}megatron.override_transformer_config.moe_grouped_gemm": True}, "not-appended", "Could not override"),
    "plus on a dataclass": ({f"+{A}megatron.recompute_granularity": "full"}, "unexpected",
                            "McoreEngineConfig.__init__() got an unexpected keyword argument 'recompute_granularity'"),
}
"""What is changed -> the check that finds it, and verl's own words."""
SILENT = {
    "experts": ({f"{A}megatron.expert_model_parallel_size": 64}, "expert-ranks"),
    "grid with packs": ({**DYNAMIC, f"{A}megatron.tensor_model_parallel_size": 3}, "grid"),
    "mini above the prompts": ({**DYNAMIC, f"{A}ppo_mini_batch_size": 256}, "padded-batch"),
    "mini that does not divide": ({f"{A}ppo_mini_batch_size": 48}, "padded-batch"),
    "misspelt": ({f"+{A}megatron.override_transformer_config.recompute_granularty": "full"}, "misspelt"),
    "cap": ({**DYNAMIC, f"{A}ppo_max_token_len_per_gpu": 100}, "cap"),
    "strategy": ({f"{A}strategy": "fsdp"}, "strategy"),
    "dead cap": ({"critic.ppo_max_token_len_per_gpu": 9999}, "dead-cap"),
    "balance": ({"trainer.balance_batch": False}, "balance"),
}
"""What verl takes although it is wrong, or reads nowhere -> the check that says so."""


def words(changed, *, without=()):
    given = {**{key: value for key, value in SOUND.items() if f"+{key}" not in changed}, **changed}
    return [f"{key}={value}" for key, value in given.items() if key not in without]


def script(changed, *, head="python3 -m verl.trainer.main_ppo"):
    return "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" + " \\\n  ".join([head, *words(changed)]) + "\n"


def found(name, text, *, version=None):
    there = framework(name)
    reading = there.read([File(path="run.sh", text=text)], version=version)
    checks = there.at(reading.version).checks
    return {each.message.id.partition(".")[2]: str(each.message) for check in checks for each in check.findings(reading, None)}


@pytest.mark.parametrize("case", CASES)
def test_what_verl_refuses_is_found_in_its_own_words(case):
    changed, check, said = CASES[case]
    told = found("verl-megatron", script(changed))
    assert told == {} if not check else said in told[check]


@pytest.mark.parametrize("case", SILENT)
def test_what_verl_takes_is_found_as_well(case):
    changed, check = SILENT[case]
    assert check in found("verl-megatron", script(changed))


@needs("verl")
@pytest.mark.oracle
@pytest.mark.slow
def test_verl_says_so_itself():
    verdicts = judge("verl", [{"argv": words(changed)} for changed, *_ in (*CASES.values(), *SILENT.values())])
    for verdict, (_, _, said) in zip(verdicts, CASES.values(), strict=False):
        assert verdict["accepted"] == (not said) and said in verdict["why"], verdict
    assert all(verdict["accepted"] for verdict in verdicts[len(CASES) :])


@needs("verl")
@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("name", ["verl-megatron", "verl-fsdp"])
def test_verl_takes_what_is_written(name):
    plans = [*legal_plans(name, 12), *((_tuned(case), layout) for case, layout in legal_plans(name, 6, seed=2))]
    verdicts = judge(name.partition("-")[0], [
        {"argv": _argv(name, case, layout), "checks": {"tuning": case.training.task == "sft"}} for case, layout in plans
    ])
    assert all(verdict["accepted"] for verdict in verdicts), [verdict["why"] for verdict in verdicts if not verdict["accepted"]]


def _tuned(case):
    return replace(case, training=replace(case.training, task="sft"))


def _argv(name, case, layout):
    text = next(file.text for file in framework(name).write(case, layout) if file.path == "run.sh")
    return [word.text for word in parse_shell(text, environment={"HOME": "/root"}).launch.arguments]


def test_a_batch_is_prompts_times_responses_and_a_cap_is_of_a_gpu():
    text = script({**DYNAMIC, f"{A}megatron.context_parallel_size": 2, f"{A}ppo_max_token_len_per_gpu": 1024,
                   "data.max_prompt_length": 256, "data.max_response_length": 256})
    reading = framework("verl-megatron").read([File(path="run.sh", text=text)])
    assert (reading.said.devices, reading.said.global_batch_sequences, reading.said.sequence_tokens) == (16, 512, 512)
    assert label(reading.layout) == "tp2 cp2 pp2 dp2 mb4 sp zero1 overlap=p2p"


def test_a_script_is_expanded_with_its_variables_and_arrays():
    text = (
        'tp=${ACTOR_TP:-4}\nACTOR=(\n  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=${tp}\n'
        "  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1\n)\nLAUNCH=(python3)\n"
        'if [ "$(hostname)" = a ]; then LAUNCH=(uv run python3); fi\n'
        '"${LAUNCH[@]}" -m verl.trainer.main_ppo model_engine=megatron "${ACTOR[@]}" "$@"\n'
    )
    reading = framework("verl-megatron").read([File(path="run.sh", text=text)])
    assert reading.layout.tensor_parallel == 4 and reading.said.global_batch_sequences == 256


def test_arrays_that_only_the_run_knows_are_no_defaults():
    text = (
        'ACTOR=(actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1)\nif [ "$(hostname)" = a ]; then ACTOR+=(x.y=1); fi\n'
        'python3 -m verl.trainer.main_ppo "${ACTOR[@]}"\n'
    )
    reading = framework("verl-fsdp").read([File(path="run.sh", text=text)])
    assert reading.layout is None and any(message.id == "verl.arguments" for message in reading.messages)


def test_a_tree_of_yaml_is_read_like_words():
    text = (
        "model_engine: dp\ntrainer: {nnodes: 1, n_gpus_per_node: 8}\ndata: {max_prompt_length: 1024, max_response_length: 3072}\n"
        "actor_rollout_ref:\n  actor:\n    ppo_mini_batch_size: 32\n    ppo_micro_batch_size_per_gpu: 2\n    strategy: fsdp2\n"
        "    fsdp_config: {ulysses_sequence_parallel_size: 2, fsdp_size: 4}\n  rollout: {name: vllm, n: 4}\n"
    )
    reading = framework("verl-fsdp").read([File(path="run.yaml", text=text)])
    layout = reading.layout
    assert (layout.context_parallel, layout.parameter_shards, layout.microbatch_sequences, layout.num_microbatches) == (2, 4, 2, 16)


def test_another_engine_is_told_where_it_is_read():
    reading = framework("verl-fsdp").read([File(path="run.sh", text=script({}))])
    assert reading.layout is None and "--from verl-megatron" in str(reading.messages[0])


@pytest.mark.parametrize(("name", "words_", "layout"), [
    ("verl-megatron", "engine=megatron engine.tensor_model_parallel_size=4 data.use_dynamic_bsz=False", "tp4 pp1 dp2"),
    ("verl-fsdp", "engine=fsdp engine.ulysses_sequence_parallel_size=2 data.use_dynamic_bsz=False", "tp1 cp2 pp1 dp4"),
])
def test_the_sft_trainer_is_read_by_its_own_keys(name, words_, layout):
    text = f"torchrun --nnodes 1 --nproc-per-node 8 -m verl.trainer.sft_trainer data.train_batch_size=64 {words_}\n"
    reading = framework(name).read([File(path="run.sh", text=text)])
    assert reading.said.task == "sft" and label(reading.layout).startswith(f"{layout} mb4")


@pytest.mark.parametrize("name", ["verl-megatron", "verl-fsdp"])
def test_sft_is_written_and_read_back(name):
    there = framework(name)
    for drawn, layout in legal_plans(name, 6, seed=4):
        case = _tuned(drawn)
        files = [file for file in there.write(case, layout) if file.path == "run.sh"]
        reading = there.read(files, given=Given(model=case.model))
        assert reading.layout == there.normal(case, layout), label(layout)
        assert (reading.said.task, reading.said.devices) == ("sft", layout.world)
        assert reading.said.global_batch_sequences == case.batch.global_batch_sequences


def test_an_edit_of_packed_batches_changes_the_cap_alone():
    text = script({**DYNAMIC, f"{A}ppo_max_token_len_per_gpu": 4096})
    there = framework("verl-megatron")
    case = make_case("qwen3-8b", cluster_for("h100-sxm", num_devices=16), global_batch_sequences=512, sequence_tokens=1024,
                     framework="verl-megatron")
    reading = there.read([File(path="run.sh", text=text)], given=Given(model=case.model))
    layout = replace(reading.layout, microbatch_sequences=2, num_microbatches=reading.layout.num_microbatches * 2)
    edited = edit(there, reading, case, layout)
    assert [each.key for each in edited.edits] == [f"{A}ppo_max_token_len_per_gpu"]
    assert f"{A}ppo_max_token_len_per_gpu=2048" in edited.files[0].text


def test_a_release_is_told_by_its_keys():
    old = script({"reward_model.use_reward_loop": True}).replace("model_engine=megatron", "--config-name=ppo_megatron_trainer.yaml")
    assert framework("verl-megatron").read([File(path="run.sh", text=old)]).version == "0.8"
    assert framework("verl-megatron").read([File(path="run.sh", text=script({}))]).version == "0.10"
