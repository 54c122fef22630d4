"""NeMo-RL: recipes above recipes, Hydra's words above them, the batch in samples, and what it says of what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from deepspeed_family import broken, case_of, findings, layout_of, read

from meshwright.api.likely import likely_framework
from meshwright.domain.label import label
from meshwright.domain.layout import Full, Selective
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.nemo_rl.writing import nested
from meshwright.frameworks.settings import Given
from meshwright.testing import legal_plans

NAME = "nemo-rl-megatron"
M, D, P = "policy.megatron_cfg", "policy.dtensor_cfg", "policy.sequence_packing"
E, C = "policy.generation.vllm_cfg", "policy.generation.colocated"
SOUND = {
    "cluster.num_nodes": 2, "cluster.gpus_per_node": 8, "grpo.num_prompts_per_step": 32, "grpo.num_generations_per_prompt": 16,
    "policy.train_global_batch_size": 512, "policy.train_micro_batch_size": 2,
    "policy.logprob_batch_size": "${policy.train_micro_batch_size}", "policy.max_total_sequence_length": 4096,
    "policy.precision": "bfloat16", "policy.make_sequence_length_divisible_by": f"${{{M}.tensor_model_parallel_size}}",
    f"{M}.enabled": True, f"{D}.enabled": False, f"{D}._v2": True, "policy.dynamic_batching.enabled": False,
    **{f"{M}.{name}_parallel_size": 1 for name in ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor")},
    **{f"{D}.{name}_parallel_size": 1 for name in ("tensor", "context", "expert")},
    **{f"{M}.num_layers_in_{end}_pipeline_stage": None for end in ("first", "last")},
    f"{M}.sequence_parallel": False, f"{M}.activation_checkpointing": False, f"{M}.recompute_granularity": "full",
    f"{D}.sequence_parallel": False, f"{D}.activation_checkpointing": False, f"{D}.cpu_offload": False,
    f"{M}.optimizer.use_distributed_optimizer": True, f"{M}.optimizer.optimizer_cpu_offload": False,
    f"{M}.optimizer.optimizer_offload_fraction": 0.0, f"{M}.distributed_data_parallel_config.overlap_grad_reduce": True,
    f"{M}.distributed_data_parallel_config.overlap_param_gather": True, f"{M}.moe_token_dispatcher_type": "alltoall",
    f"{M}.defer_fp32_logits": False, f"{P}.enabled": True, f"{P}.algorithm": "modified_first_fit_decreasing",
    f"{P}.train_mb_tokens": "${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}",
    f"{P}.logprob_mb_tokens": "${mul:${policy.max_total_sequence_length}, ${policy.logprob_batch_size}}",
    "policy.generation.backend": "vllm", f"{C}.enabled": True, f"{E}.tensor_parallel_size": 1, f"{E}.pipeline_parallel_size": 1,
    f"{E}.expert_parallel_size": 1, f"{E}.gpu_memory_utilization": 0.6, f"{E}.async_engine": False, f"{E}.precision": "bfloat16",
    "loss_fn.use_importance_sampling_correction": False, "grpo.async_grpo.enabled": False,
    "grpo.async_grpo.max_trajectory_age_steps": 1,
    "grpo.async_grpo.in_flight_weight_updates": False,
}
"""What recipes of it say where nobody says anything else."""


def recipe(changed=None, path="configs/base.yaml", **more):
    return File(path=path, text=yaml.safe_dump(more | nested(SOUND if changed is None else changed)))


def child(changed, base="../base.yaml"):
    return recipe(changed, "configs/mine/run.yaml", defaults=base)


def script(*words, program="grpo"):
    return File(path="run.sh", text=f"uv run --locked examples/run_{program}.py --config configs/mine/run.yaml {' '.join(words)}\n")


def found(changed, name=NAME):
    return {id.partition(".")[2]: str(each.message) for id, each in findings(name, child(changed), recipe()).items()}


def test_a_recipe_wins_over_its_base_and_words_over_both():
    own = child({f"{M}.tensor_model_parallel_size": 4, f"{M}.sequence_parallel": True, "cluster.num_nodes": 4})
    layout = read(NAME, own, recipe()).layout
    assert label(layout) == "tp4 pp1 dp8 mb2 sp zero1"
    words = script(f"{M}.pipeline_model_parallel_size=2", "policy.train_micro_batch_size=1", f"++{M}.activation_checkpointing=true")
    reading = read(NAME, words, recipe(), own)
    assert label(reading.layout) == "tp4 pp2 dp4 mb1 sp zero1 recompute=full"
    assert (reading.said.devices, reading.said.global_batch_sequences, reading.said.sequence_tokens) == (32, 512, 4096)
    assert reading.source.value(f"{P}.train_mb_tokens") == 4096 and not reading.messages


def test_sections_are_merged_replaced_and_taken_out():
    base = recipe(SOUND | {"policy.optimizer.kwargs.lr": 1.0, f"{M}.peft.enabled": True})
    own = child({"policy.optimizer": None, f"{M}.peft._override_": True, f"{M}.peft.dim": 8})
    settings = read(NAME, own, base, script(f"~{P}.algorithm")).source.settings
    assert settings["policy.optimizer"].value is None and "policy.optimizer.kwargs.lr" not in settings
    assert settings[f"{M}.peft.dim"].value == 8 and f"{M}.peft.enabled" not in settings and f"{P}.algorithm" not in settings


def test_a_base_that_is_not_there_is_asked_for_and_nothing_is_guessed():
    reading = read(NAME, child({f"{M}.enabled": True, f"{M}.tensor_model_parallel_size": 4}), devices=16)
    assert reading.layout is None
    (said,) = reading.messages
    assert said.id == "nemo-rl.absent" and "give ../base.yaml as well" in str(said)
    assert f"{M}.tensor_model_parallel_size" not in str(said) and f"{M}.context_parallel_size" in str(said)
    named = read(NAME, child({f"{M}.enabled": True}, "/elsewhere/base.yaml"), recipe())
    assert named.layout is not None  # found by its name


def test_references_in_a_circle_and_out_of_the_files_are_unknown():
    settings = read(NAME, recipe(SOUND | {"policy.a": "${policy.b}", "policy.b": "${policy.a}", "policy.c": "${oc.env:X}-1",
                                          "policy.d": "${div:7,0}", "policy.e": "${max:2,${.train_micro_batch_size}}/x"})).source
    assert {repr(settings.value(f"policy.{each}")) for each in "abcd"} == {"unknown"}
    assert settings.value("policy.e") == "2/x"


def test_devices_of_the_engine_are_not_the_trainers():
    apart = {f"{C}.enabled": False, f"{C}.resources.gpus_per_node": 8, f"{C}.resources.num_nodes": 1}
    assert read(NAME, child(apart), recipe()).said.devices == 8
    one = {**apart, f"{C}.resources.gpus_per_node": 4, "cluster.num_nodes": 1}
    assert read(NAME, child(one), recipe()).said.devices == 4
    teachers = child({"on_policy_distillation.non_colocated_teachers.enabled": True})
    assert read(NAME, teachers, recipe()).layout is None and read(NAME, teachers, recipe(), devices=8).layout is not None


def test_a_pair_is_two_sequences_and_layers_of_the_ends_need_the_model():
    pairs = {key: value for key, value in SOUND.items() if not key.startswith(("grpo.", P))} | {"dpo.max_num_steps": 1}
    reading = read(NAME, recipe(pairs))
    layout = reading.layout
    assert (reading.said.global_batch_sequences, layout.microbatch_sequences, layout.num_microbatches) == (1024, 4, 16)
    ends = child({f"{M}.pipeline_model_parallel_size": 4, f"{M}.num_layers_in_first_pipeline_stage": 7,
                  f"{M}.num_layers_in_last_pipeline_stage": 7})
    assert read(NAME, ends, recipe()).layout is None
    case = case_of(NAME, batch=512, sequence=4096)
    assert read(NAME, ends, recipe(), model=case.model).layout.stage_layers == ((7, 9, 9, 7),)


@pytest.mark.parametrize("name", ["nemo-rl-megatron", "nemo-rl-dtensor"])
def test_the_back_end_that_is_on_is_whose_files_they_are(name):
    files = [child({} if name == NAME else SWITCHED), recipe()]
    assert likely_framework(files)[0].name == name
    assert framework(name).read(files).layout is not None


def test_the_other_back_end_and_both_are_told():
    other = read(NAME, child({f"{M}.enabled": False, f"{D}.enabled": True}), recipe())
    assert other.layout is None and "--from nemo-rl-dtensor" in str(other.messages[0])
    assert found({f"{D}.enabled": True})["back-ends"].endswith("not both.")
    assert "Please either set" in found({f"{M}.enabled": False})["back-ends"]


MISTAKES = {
    "grid": {f"{M}.tensor_model_parallel_size": 3}, "total-batch": {"policy.train_global_batch_size": 500},
    "shards": {"policy.train_global_batch_size": 8}, "micro-batch": {f"{P}.enabled": False, "policy.train_micro_batch_size": 3},
    "on-policy-batch": {"loss_fn.force_on_policy_ratio": True, "policy.train_global_batch_size": 256},
    "tensor-accuracy": {f"{M}.tensor_model_parallel_size": 4, "policy.logprob_batch_size": 4},
    "batch-multiplier": {"grpo.batch_multiplier": 2}, "dynamic-batching": {"policy.dynamic_batching.enabled": True},
    "context-unpacked": {f"{M}.context_parallel_size": 2, f"{P}.enabled": False},
    "padding": {f"{M}.context_parallel_size": 2}, "packing-algorithm": {f"{P}.algorithm": "best_fit"},
    "packing-order": {f"{P}.microbatch_order": "smallest"}, "bins": {f"{P}.train_mb_tokens": 4000},
    "unread-tokens": {f"{P}.enabled": False, f"{P}.train_mb_tokens": 9999},
    "expert-ranks": {f"{M}.expert_model_parallel_size": 32}, "sequence-alone": {f"{M}.sequence_parallel": True},
    "expert-sequence": {f"{M}.expert_model_parallel_size": 2, f"{M}.tensor_model_parallel_size": 2},
    "optimizer-offload": {f"{M}.optimizer.optimizer_cpu_offload": True}, "chunked-logits": {"policy.logprob_chunk_size": 1024},
    "granularity": {f"{M}.activation_checkpointing": True, f"{M}.recompute_granularity": "block"},
    "recompute-unread": {f"{M}.recompute_granularity": "selective"}, "recompute-module": {f"{M}.recompute_modules": ["core_atn"]},
    "unread": {f"{M}.virtual_pipeline_model_parallel_size": 2}, "overrides": {f"{M}.model_overrides.sequence_parallel": True},
    "dispatcher": {f"{M}.moe_enable_deepep": True}, "activation-offload": {f"{M}.fine_grained_activation_offloading": True},
    "fused-logprobs": {f"{M}.use_fused_linear_logprobs": True}, "draft": {"policy.draft.enabled": True},
    "precision-aware": {f"{M}.optimizer.use_precision_aware_optimizer": True, f"{M}.optimizer.bf16": False},
    "rollout-world": {f"{E}.tensor_parallel_size": 3},
    "rollout-parallel": {f"{E}.expert_parallel_size": 3, f"{E}.tensor_parallel_size": 2},
    "rollout-memory": {f"{E}.gpu_memory_utilization": 60.0}, "rollout-fp8": {f"{E}.precision": "fp8"},
    "separate-engine": {f"{C}.enabled": False}, "asynchronous": {"grpo.async_grpo.enabled": True},
    "stale-weights": {"grpo.async_grpo.enabled": True, "grpo.async_grpo.max_trajectory_age_steps": 4},
}


OTHERS = {
    "context-packed": {f"{D}.context_parallel_size": 2}, "single": {f"{D}.cpu_offload": True, "cluster.num_nodes": 1,
                                                                    "cluster.gpus_per_node": 1},
    "context-sequence": {f"{D}.context_parallel_size": 2, f"{D}.tensor_parallel_size": 2, f"{D}.sequence_parallel": True},
    "first-worker": {f"{D}._v2": False, f"{D}.lora_cfg.enabled": True}, "replicate": {f"{D}.dp_replicate_size": 3},
    "idle-sequence": {f"{D}.sequence_parallel": True}, "draft": {"policy.draft.enabled": True},
    "triton": {f"{D}.tensor_parallel_size": 2, f"{D}.lora_cfg.enabled": True, f"{D}.lora_cfg.use_triton": True},
}
"""Mistakes of the other back end."""
SWITCHED = {f"{M}.enabled": False, f"{D}.enabled": True}


@pytest.mark.parametrize("id", OTHERS)
def test_a_mistake_of_the_other_back_end_is_found(id):
    assert id in found(SWITCHED | OTHERS[id], "nemo-rl-dtensor")


def test_the_other_back_end_is_read_by_its_own_keys():
    assert not found(SWITCHED, "nemo-rl-dtensor")
    own = child(SWITCHED | {f"{D}.tensor_parallel_size": 2, f"{D}.dp_replicate_size": 2, f"{D}.activation_checkpointing": True})
    layout = read("nemo-rl-dtensor", own, recipe()).layout
    assert (layout.tensor_parallel, layout.data_parallel, layout.parameter_shards, layout.recompute) == (2, 8, 4, Full())
    context = child(SWITCHED | {f"{D}.context_parallel_size": 2, f"{P}.enabled": False})
    assert label(read("nemo-rl-dtensor", context, recipe()).layout).startswith("tp1 cp2 pp1 dp8 mb2 zero3 context=all-gather")
    experts = read("nemo-rl-dtensor", child(SWITCHED | {f"{D}.expert_parallel_size": 8}), recipe())
    assert experts.layout is None and experts.messages[0].id == "nemo-rl.experts"
    assert read("nemo-rl-dtensor", recipe()).layout is None


@pytest.mark.parametrize("id", MISTAKES)
def test_a_mistake_is_found(id):
    assert id in found(MISTAKES[id])


def test_words_are_those_of_nemo_rl():
    assert not found({})
    assert found({f"{M}.tensor_model_parallel_size": 3})["grid"].split(": ", 1)[1].startswith(
        "World size (16) must be divisible by PP * CP * TP (3). The data parallel size (DP = world_size / (PP * CP * TP)) must be")
    assert "Total batch size (512) is not a multiple of batch_size (500)" in found(MISTAKES["total-batch"])["total-batch"]
    assert "divisible_by (1) is not a multiple of minimum_pad_factor (4)." in found(MISTAKES["padding"])["padding"]
    assert "Unknown packing algorithm: best_fit. Available algorithms: CONCATENATIVE" in str(found(MISTAKES["packing-algorithm"]))
    lost = {key: value for key, value in SOUND.items() if not key.endswith("activation_checkpointing")}
    assert "KeyError: 'activation_checkpointing'" in str([str(each.message) for each in findings(NAME, recipe(lost)).values()])


def test_a_word_whose_key_no_recipe_has_must_be_added():
    def said(*words):
        return {id.partition(".")[2] for id in findings(NAME, script(*words), child({}), recipe())}

    assert "not-appended" in said(f"{M}.attention_backend=flash")
    assert "not-appended" not in said(f"+{M}.attention_backend=flash", f"{M}.tensor_model_parallel_size=2")
    assert "architectures" in said()


def test_edits_go_to_the_recipe_and_references_follow():
    there, case = framework(NAME), case_of(NAME, batch=512, sequence=4096)
    reading = there.read([child({"policy.model_name": "x"}), recipe()], given=Given(model=case.model))
    other = replace(reading.layout, tensor_parallel=2, data_parallel=8, microbatch_sequences=1, num_microbatches=64,
                    optimizer_shards=8, sequence_parallel=True, recompute=Selective())
    edited = edit(there, reading, case, other)
    assert [file.path for file in edited.files] == ["configs/mine/run.yaml"] and not edited.messages
    assert {each.key.rpartition(".")[2] for each in edited.edits} == {
        "tensor_model_parallel_size", "sequence_parallel", "activation_checkpointing", "recompute_granularity", "recompute_modules",
        "train_micro_batch_size"}
    assert read(NAME, *edited.files, recipe()).layout == other


def test_sft_is_written_above_its_own_recipe_and_read_back():
    there = framework(NAME)
    for drawn, layout in legal_plans(NAME, 3, seed=4):
        case = replace(drawn, training=replace(drawn.training, task="sft"))
        files = there.write(case, layout)
        text = "\n".join(file.text for file in files)
        assert "examples/configs/sft.yaml" in text and "run_sft.py" in text and "no run of NeMo-RL is among the evidence" in text
        reading = there.read([file for file in files if file.path != "README.md"], given=Given(model=case.model))
        assert reading.layout == there.normal(case, layout), label(layout)
        assert (reading.said.task, reading.said.devices) == ("sft", layout.world)


def test_what_no_key_says_is_a_limit():
    case = case_of(NAME, "qwen3-30b-a3b", batch=64, sequence=4096)
    plain = layout_of(case, zero=1, pipeline_parallel=4)
    assert not broken(NAME, case, plain)
    for changed, id in (
        ({"virtual_stages": 2, "schedule": "interleaved"}, "schedule"), ({"recompute": Full(layers=2)}, "knobs"),
        ({"stage_layers": ((11, 13, 12, 12),)}, "split"), ({"num_microbatches": 8}, "microbatch"),
    ):
        assert f"{NAME}.{id}" in broken(NAME, case, replace(plain, **changed))


@pytest.mark.parametrize(("files", "way"), [
    ([("configs/a.yaml", "a.yaml")], "a.yaml -> a.yaml"),
    ([("configs/a.yaml", "b.yaml"), ("configs/b.yaml", "./a.yaml")], "a.yaml -> b.yaml -> a.yaml"),
    ([("configs/run.yaml", "a.yaml"), ("configs/a.yaml", ["c.yaml", "b.yaml"]), ("configs/b.yaml", "a.yaml"),
      ("configs/c.yaml", [])], "a.yaml -> b.yaml -> a.yaml"),
])
def test_recipes_that_build_on_themselves_are_refused(files, way):
    with pytest.raises(InputError) as caught:
        read(NAME, *(recipe(SOUND, path, defaults=base) for path, base in files))
    (message,) = caught.value.messages
    assert message.id == "nemo-rl.circle" and f"lead back to itself ({way})" in str(message)


def test_two_recipes_may_build_on_one():
    files = [recipe({}, "configs/run.yaml", defaults=["b.yaml", "c.yaml"]), recipe({}, "configs/b.yaml", defaults="a.yaml"),
             recipe({}, "configs/c.yaml", defaults="a.yaml"), recipe(SOUND, "configs/a.yaml")]
    assert read(NAME, *files).layout is not None
