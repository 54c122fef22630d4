from __future__ import annotations

import json
from dataclasses import replace

import pytest
from deepspeed_family import broken, case_of, findings, json_file, judged, layout_of, plans_for_oracles, read, script
from oracles_run import judge, needs
from tests.draws import draws, seed

from meshwright.domain.layout import Full, Overlap, Selective
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.base import Options
from meshwright.frameworks.editing import edit
from meshwright.testing import any_plans

NAME = "deepspeed"
GOOD = {
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True},
}
DENSE, MOE = "llama3-8b", "qwen3-30b-a3b"


def ids(values, *files, devices=8, case=None):
    return {id.removeprefix("deepspeed.") for id in findings(NAME, json_file(values), *files, devices=devices, case=case)}


# Reading: facts of public configurations (DeepSpeedExamples, accelerate's templates), not their text.
PUBLIC = {
    "bf16_master_weight/baseline": (
        {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
         "optimizer": {"type": "AdamW"},
         "zero_optimization": {"stage": 3, "overlap_comm": True, "reduce_bucket_size": 5e7,
                               "stage3_param_persistence_threshold": 0},
         "torch_autocast": {"enabled": False}},
        {"data_parallel": 8, "microbatch_sequences": 4, "num_microbatches": 1, "zero_stage": 3}, "bf16",
    ),
    "imagenet/ds_fp16_z1": (
        {"train_batch_size": 256, "gradient_accumulation_steps": 1, "optimizer": {"type": "Adam"},
         "zero_optimization": {"stage": 1},
         "zero_allow_untested_optimizer": True, "fp16": {"enabled": True, "auto_cast": True}, "cuda_visible_devices": 0},
        {"data_parallel": 8, "microbatch_sequences": 32, "num_microbatches": 1, "zero_stage": 1}, "fp16",
    ),
    "imagenet/ds_config": (
        {"train_batch_size": 256, "zero_optimization": {"stage": 0}},
        {"microbatch_sequences": 32, "num_microbatches": 1, "zero_stage": 0}, None,
    ),
    "DeepSpeed-ZenFlow/zf_config": (
        {"train_batch_size": 8, "bf16": {"enabled": True}, "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW"},
         "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True},
                               "zenflow": {"topk_ratio": 0.1}}},
        {"microbatch_sequences": 1, "zero_stage": 2, "offload": ("optimizer",)}, "bf16",
    ),
    "bing_bert/bsz4k": (
        {"train_batch_size": 4096, "train_micro_batch_size_per_gpu": 16, "fp16": {"enabled": True, "loss_scale": 0}},
        {"microbatch_sequences": 16, "num_microbatches": 32, "zero_stage": 0}, "fp16",
    ),
    "bing_bert/bsz64k_lamb": (
        {"train_batch_size": 65536, "train_micro_batch_size_per_gpu": 64, "optimizer": {"type": "Lamb"}, "fp16": {"enabled": True}},
        {"microbatch_sequences": 64, "num_microbatches": 128, "zero_stage": 0}, "fp16",
    ),
    "BingBertSquad/bsz24": (
        {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 3, "fp16": {"enabled": True}},
        {"microbatch_sequences": 3, "num_microbatches": 1}, "fp16",
    ),
    "pipeline_parallelism/ds_config": (
        {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "Adam"}},
        {"microbatch_sequences": 8, "num_microbatches": 4}, None,
    ),
    "gan": ({"train_batch_size": 64, "optimizer": {"type": "Adam"}}, {"microbatch_sequences": 8, "num_microbatches": 1}, None),
    "autosp": (
        {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
         "zero_optimization": {"stage": 0}, "compile": {"deepcompile": True, "passes": ["autosp"]}, "sequence_parallel_size": 2},
        {"data_parallel": 4, "context_parallel": 2, "context_kind": "ulysses"}, "bf16",
    ),
    "vit_finetuning/imagenet_random_ltd": (
        {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 16, "zero_optimization": {"stage": 0},
         "data_efficiency": {"enabled": True}},
        {"microbatch_sequences": 16, "num_microbatches": 2}, None,
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_configurations_are_read(name):
    values, expected, recipe = PUBLIC[name]
    reading = read(NAME, json_file(values), devices=8)
    assert reading.layout is not None, reading.messages
    assert {key: getattr(reading.layout, key) for key in expected} == expected
    assert reading.said.precision == recipe


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"--per_device_train_batch_size": 4, "--gradient_accumulation_steps": 1, "--gradient_checkpointing": True,
          "--zero_stage": 3},
         {"microbatch_sequences": 4, "num_microbatches": 1, "zero_stage": 3, "recompute": Full()}),
        ({"--per_device_train_batch_size": 8, "--gradient_accumulation_steps": 8, "--zero_stage": 2},
         {"microbatch_sequences": 8, "num_microbatches": 8, "zero_stage": 2}),
        ({"--per_device_train_batch_size": 96, "--max_seq_len": 512, "--zero_stage": 0}, {"microbatch_sequences": 96,
                                                                                          "zero_stage": 0}),
    ],
)
def test_scripts_of_deepspeed_chat_are_read(flags, expected):
    reading = read(NAME, script(flags | {"--deepspeed": True}, launcher="deepspeed --num_gpus 8", program="main.py"))
    assert reading.layout is not None, reading.messages
    assert {key: getattr(reading.layout, key) for key in expected} == expected


def test_flags_of_the_trainer_fill_what_is_auto():
    auto = {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 4},
    }
    flags = {
        "--per_device_train_batch_size": 2,
        "--gradient_accumulation_steps": 8,
        "--bf16": "True",
        "--gradient_checkpointing": "false",
    }
    reading = read(NAME, json_file(auto), script(flags))
    layout = reading.layout
    assert layout is not None, reading.messages
    assert (layout.tensor_parallel, layout.data_parallel, layout.microbatch_sequences, layout.num_microbatches) == (4, 2, 2, 8)
    assert (reading.said.global_batch_sequences, reading.said.precision) == (32, "bf16")
    alone = read(NAME, json_file(auto), devices=8)
    assert alone.layout is None
    assert "setting" in alone.messages[0].id or "batch" in alone.messages[0].id


def test_an_edit_takes_flags_out_that_say_the_same():
    case = case_of(NAME, devices=8)
    auto = GOOD | {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    flags = {"--per_device_train_batch_size": 2, "--gradient_accumulation_steps": 4, "--learning_rate": 1e-5}
    reading = read(NAME, json_file(auto), script(flags))
    edited = edit(framework(NAME), reading, case, replace(reading.layout, microbatch_sequences=1, num_microbatches=8))
    files = {file.path: file.text for file in edited.files}
    assert json.loads(files["ds_config.json"]) == GOOD | {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8}
    assert "--learning_rate 1e-05" in files["train.sh"]
    assert "--per_device_train_batch_size" not in files["train.sh"]


def test_three_batch_keys_say_the_replicas():
    reading = read(NAME, json_file(GOOD))
    assert reading.layout is not None
    assert (reading.layout.data_parallel, reading.said.devices, reading.said.global_batch_sequences) == (8, 8, 64)
    without = read(NAME, json_file({key: value for key, value in GOOD.items() if key != "train_batch_size"}))
    assert [message.id for message in without.messages][:1] == ["import.devices"]


@pytest.mark.parametrize(
    ("keys", "batch"),
    [
        ({"train_batch_size": 64}, (64, 8, 1)), ({"train_micro_batch_size_per_gpu": 2}, (16, 2, 1)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 2}, (64, 4, 2)),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}, (48, 2, 3)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, (64, 2, 4)),
    ],
)
def test_missing_batch_keys_are_completed_as_deepspeed_does(keys, batch):
    reading = read(NAME, json_file({**keys, "zero_optimization": {"stage": 1}}), devices=8)
    layout = reading.layout
    assert layout is not None
    assert (reading.said.global_batch_sequences, layout.microbatch_sequences, layout.num_microbatches) == batch


def test_partial_shard_groups_of_old_and_new_releases():
    case = case_of(NAME)
    hpz = layout_of(case, zero=3, parameter_shards=8)
    assert framework(NAME).decide(case, hpz, "0.19")["zero_optimization.zero_hpz_partition_size"] == 8
    mics = layout_of(case, optimizer_shards=8, gradient_shards=8, parameter_shards=8)
    old = framework("deepspeed@0.18")
    assert not old.check(case, mics)
    assert "deepspeed.shards" in broken(NAME, case, mics)
    files = old.write(case, mics)
    assert json.loads(files[0].text)["zero_optimization"]["mics_shard_size"] == 8
    back = old.read([file for file in files if file.path != "README.md"], version="0.18")
    assert back.layout == old.normal(case, mics)


def test_full_sharding_over_context_ranks_too_is_no_partial_group():
    case = case_of(NAME)
    full = layout_of(case, zero=3, context_parallel=2, context_kind="ulysses")
    assert full.data_parallel * 2 == full.parameter_shards
    key = "zero_optimization.mics_shard_size"
    assert key not in framework(NAME).decide(case, full, "0.18")
    part = full.data_parallel
    some = replace(full, optimizer_shards=part, gradient_shards=part, parameter_shards=part)
    assert framework(NAME).decide(case, some, "0.18")[key] == part


# Limits: each fires on a minimal change of a layout that breaks none.
LIMITS = {
    "precision": ({"recipe": "fp8-cs"}, {}), "optimizer": ({"optimizer": "adafactor"}, {}), "pipeline": ({},
                                                                                                         {"pipeline_parallel": 2}),
    "knobs": ({}, {"recompute": Selective()}), "expert-tensor": ({"model": MOE}, {"expert_parallel": 2,
                                                                                  "expert_tensor_parallel": 2}),
    "expert-preset": ({"model": "gpt-oss-120b"}, {"expert_parallel": 8}),
    "tensor-and-sequence": ({}, {"tensor_parallel": 2, "context_parallel": 2}),
    "context-mixers": ({"model": "nemotron-h-8b"}, {"context_parallel": 2, "zero": 3, "context_kind": "ulysses"}),
    "experts-stage-3": ({"model": MOE}, {"expert_parallel": 2, "context_parallel": 2, "zero": 3}),
    "experts-hpz": ({"model": MOE}, {"expert_parallel": 2, "zero": 3, "parameter_shards": 8}),
    "offload": ({}, {"offload": ("optimizer",)}), "offload-optimizer": ({"optimizer": "sgd"}, {"zero": 1,
                                                                                               "offload": ("optimizer",)}),
    "shards": ({}, {"optimizer_shards": 8}), "device": ({"device": "v100-32g"}, {}), "positions": ({}, {}),
    "position-table": ({"model": "gpt3-175b", "sequence": 4096}, {}), "heads": ({"devices": 48, "batch": 96},
                                                                                {"tensor_parallel": 3}),
    "key-value-heads": ({"devices": 48, "batch": 96}, {"tensor_parallel": 3}), "width": ({"devices": 48, "batch": 96},
                                                                                         {"tensor_parallel": 3}),
    "sequence": ({"sequence": 2050}, {"context_parallel": 2}), "context-kind": ({}, {"context_parallel": 2,
                                                                                     "context_kind": "ring"}),
    "context-heads": ({}, {"context_parallel": 16}), "experts": ({"model": MOE, "devices": 48, "batch": 96},
                                                                 {"expert_parallel": 3}),
    "expert-grid": ({"model": MOE}, {"expert_parallel": 32}), "expert-sequence": ({"model": MOE}, {"tensor_parallel": 2}),
    "stages": ({}, {"pipeline_parallel": 16, "data_parallel": 1, "tensor_parallel": 1}), "schedule": ({}, {"virtual_stages": 2}),
    "batch": ({}, {"num_microbatches": 3}), "zero-stage": ({}, {}),
}
UNREACHED = {"positions", "zero-stage", "stages"}
"""Every position and stage is DeepSpeed's; stages are refused as pipelines first."""


@pytest.mark.parametrize("rule", sorted(set(LIMITS) - UNREACHED))
def test_each_limit_fires_and_only_where_it_should(rule):
    given, knobs = LIMITS[rule]
    case = case_of(NAME, **given)
    assert f"deepspeed.{rule}" in broken(NAME, case, layout_of(case, **knobs))
    plain = case_of(NAME, given.get("model", DENSE) if rule != "expert-preset" else MOE)
    allowed = broken(NAME, plain, layout_of(plain, zero=1))
    assert f"deepspeed.{rule}" not in allowed


def test_every_limit_has_a_test():
    assert {limit.id.removeprefix("deepspeed.") for limit in framework(NAME).limits} == set(LIMITS)


@pytest.mark.parametrize(
    ("release", "rule", "knobs", "given"),
    [
        ("0.18", "tensor-stage-3", {"tensor_parallel": 2, "zero": 3}, {}), ("0.15", "no-tensor", {"tensor_parallel": 2}, {}),
        ("0.16", "no-ulysses", {"context_parallel": 2}, {}), ("0.18", "no-autoep", {"expert_parallel": 2}, {"model": MOE}),
        ("0.18", "mics-experts", {"optimizer_shards": 8, "gradient_shards": 8, "parameter_shards": 8}, {"model": MOE}),
    ],
)
def test_old_releases_refuse_what_they_lack(release, rule, knobs, given):
    case = case_of(NAME, **given)
    layout = layout_of(case, **knobs)
    assert f"deepspeed.{rule}" in broken(f"deepspeed@{release}", case, layout)
    assert f"deepspeed.{rule}" not in broken(NAME, case, layout)


# Checks: each fires on a minimal mutation of a file that has none.
MUTATIONS = {
    "batch-arithmetic": {"train_batch_size": 60}, "batch-missing": {"train_batch_size": None,
                                                                    "train_micro_batch_size_per_gpu": None},
    "both-precisions": {"fp16": {"enabled": True}}, "removed": {"zero_optimization": {"stage": 3, "mics_shard_size": 4}},
    "legacy-offload": {"zero_optimization": {"stage": 2, "cpu_offload": True}},
    "deprecated": {"bf16": None, "bfloat16": {"enabled": True}},
    "offload-param": {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
    "offload-stage": {"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}},
    "offload-ratio": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}},
    "stage-3-keys": {"zero_optimization": {"stage": 2, "zero_hpz_partition_size": 8}}, "zero-section": {"zero_optimization": None},
    "max-grad-norm": {"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}},
    "bf16-states": {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}, "zero_optimization": {"stage": 0}},
    "gradient-mix": {"zero_optimization": {"stage": 0}, "data_types": {"grad_accum_dtype": "fp32"}},
    "duplicate-batch": {"micro_batch_size": 2}, "auto": {"gradient_clipping": "auto"},
}


def mutated(changes):
    return {key: value for key, value in (GOOD | changes).items() if value is not None}


def test_a_good_file_has_no_findings():
    assert not ids(GOOD)


@pytest.mark.parametrize("rule", MUTATIONS)
def test_each_check_fires_on_its_mutation(rule):
    assert rule in ids(mutated(MUTATIONS[rule]))


def test_every_check_has_a_mutation():
    assert {check.id.removeprefix("deepspeed.") for check in framework(NAME).checks} == {*MUTATIONS, "comment"}


def test_the_arithmetic_names_both_sides_and_a_world_of_one():
    found = findings(
        NAME,
        json_file(GOOD | {"train_batch_size": 256, "gradient_accumulation_steps": 8, "train_micro_batch_size_per_gpu": 4}),
        devices=1,
    )
    finding = found["deepspeed.batch-arithmetic"]
    assert "256 != 4 * 8 * 1" in str(finding.message)
    assert "torchrun or deepspeed" in str(finding.message)
    assert (finding.value, finding.expected) == (256, 32)


def test_comments_are_taken_by_deepspeed_and_refused_by_others():
    text = json.dumps(GOOD, indent=1).replace('"train_batch_size"', '// batch\n"train_batch_size"', 1)
    found = findings(NAME, File(path="ds.json", text=text), devices=8)
    assert found["deepspeed.comment"].severity == "warning"
    assert [remark.id for remark in read(NAME, File(path="ds.json", text=text), devices=8).source.remarks] == ["deepspeed.hjson"]
    swallowing = json.dumps(GOOD).replace('"train_micro', '// batch "train_micro', 1)
    assert [remark.id for remark in read(NAME, File(path="ds.json", text=swallowing), devices=8).source.remarks] == ["json.comment"]


@pytest.mark.parametrize(
    ("key", "severity"),
    [("zero_optimisation", "warning"), ("zero_optimization.overlap_com", "error"), ("fp16.enable", "error"),
     ("optimizer.params.lr", None),
     ("--learning_rate", None), ("data_efficiency.enabled", None)],
)
def test_unknown_keys(key, severity):
    found = framework(NAME).unknown_keys(key)
    assert (found[0] if found else None) == severity
    if key == "zero_optimisation":
        assert "zero_optimization" in found[1]


def test_hostile_values_never_raise():
    odd = {
        "train_batch_size": "many",
        "train_micro_batch_size_per_gpu": -1,
        "zero_optimization": {"stage": 9},
        "sequence_parallel_size": 0,
    }
    reading = read(NAME, json_file(odd), devices=8)
    assert reading.layout is None
    assert reading.messages
    assert {
        message.id for message in read(NAME, json_file(GOOD | {"tensor_parallel": {"autotp_size": 3}}), devices=8).messages
    } == {"deepspeed.world"}


def test_a_layout_that_cannot_be_written_says_why():
    case = case_of(NAME)
    with pytest.raises(InputError, match="PipelineModule"):
        framework(NAME).write(case, layout_of(case, pipeline_parallel=2))


def test_gradients_of_stage_0_have_the_type_of_the_weights():
    case = case_of(NAME)
    for zero in (0, 1, 2, 3):
        document = json.loads(framework(NAME).write(case, layout_of(case, zero=zero))[0].text)
        assert document.get("data_types") == ({"grad_accum_dtype": "fp32"} if zero else None)


def test_what_is_not_said_is_in_the_readme():
    case = case_of(NAME)
    layout = layout_of(case, zero=3, recompute=Full(), offload=("optimizer",), overlap=Overlap())
    files = {file.path: file.text for file in framework(NAME).write(case, layout, options=Options(label="the plan"))}
    assert "gradient_checkpointing_enable" in files["README.md"]
    assert "DeepSpeedCPUAdam" in files["README.md"]
    assert "cpu_offload" not in files["ds_config.json"]
    assert "--gradient_checkpointing" in files["launch.sh"]


# The parser itself.


@pytest.mark.oracle
@pytest.mark.slow
@needs("deepspeed-0.19.8")
def test_deepspeed_accepts_what_is_written():
    plans = plans_for_oracles(NAME)
    verdicts = judge("deepspeed-0.19.8", [judged(framework(NAME).write(case, layout), layout) for case, layout in plans])
    assert not [verdict["why"] for verdict in verdicts if not verdict["accepted"]]
    for (_case, layout), verdict in zip(plans, verdicts, strict=True):
        parsed = verdict["config"]
        assert parsed["train_micro_batch_size_per_gpu"] == layout.microbatch_sequences
        assert parsed["gradient_accumulation_steps"] == layout.num_microbatches
        assert parsed["zero_optimization"]["stage"] == layout.zero_stage


@pytest.mark.oracle
@pytest.mark.slow
@needs("deepspeed-0.19.8")
def test_limits_refuse_at_parse_only_what_deepspeed_refuses():
    there = framework(NAME)
    plans = list(any_plans(NAME, draws(100), seed=seed(5)))
    verdicts = judge(
        "deepspeed-0.19.8", [judged(there.writer(case, layout, there.version, Options()), layout) for case, layout in plans]
    )
    wrong = [
        message.id for (case, layout), verdict in zip(plans, verdicts, strict=True) if verdict["accepted"]
        for limit in there.limits if limit.noticed == "parse" and (message := limit.check(case, layout))
    ]
    assert sum(verdict["accepted"] for verdict in verdicts) > draws(30)
    assert len(wrong) <= 0.05 * len(plans), wrong
    batch = [limit for limit in there.limits if limit.id == "deepspeed.batch"]
    for (case, layout), verdict in zip(plans, verdicts, strict=True):
        refused = replace(layout, num_microbatches=layout.num_microbatches + 1)
        assert batch[0].check(case, refused) or not verdict["accepted"]


@pytest.mark.oracle
@pytest.mark.slow
@needs("deepspeed-0.19.8")
def test_what_checks_call_errors_deepspeed_refuses_and_what_they_call_warnings_it_takes():
    errors = ("batch-arithmetic", "batch-missing", "both-precisions", "removed", "offload-ratio", "bf16-states")
    warnings = (
        "offload-param",
        "offload-stage",
        "stage-3-keys",
        "zero-section",
        "duplicate-batch",
        "deprecated",
        "max-grad-norm",
        "legacy-offload",
    )

    def case(text):
        return {"files": {"ds.json": text}, "world": 8, "argv": [], "env": {}, "checks": {}}

    verdicts = judge("deepspeed-0.19.8", [case(json.dumps(mutated(MUTATIONS[rule]))) for rule in (*errors, *warnings)])
    assert {rule: verdict["accepted"] for rule, verdict in zip((*errors, *warnings), verdicts, strict=True)} == {
        **dict.fromkeys(errors, False), **dict.fromkeys(warnings, True),
    }
    commented, unknown, strict = judge(
        "deepspeed-0.19.8",
        [case(json.dumps(GOOD, indent=1).replace('"train_batch_size"', '// batch\n"train_batch_size"', 1)),
         case(json.dumps(GOOD | {"zero_optimisation": {"stage": 3}})),
         case(json.dumps(GOOD | {"zero_optimization": {"overlap_com": True}}))],
    )
    assert commented["accepted"]
    assert unknown["accepted"]
    assert "Extra inputs are not permitted" in strict["why"]


@pytest.mark.parametrize(("model", "cuts"), [
    ("minimax-m3", True), ("qwen3.5-397b-a17b", True), ("deepseek-v4-flash", False), ("gpt-oss-120b", False),
])
def test_experts_are_cut_where_autoep_finds_them(model: str, cuts: bool) -> None:
    """A search among layouts that every architecture without a preset refuses found none of those that it runs."""
    assert framework(NAME).for_case(case_of(NAME, model)).features.expert_parallel is cuts
