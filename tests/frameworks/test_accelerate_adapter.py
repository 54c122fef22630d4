from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from deepspeed_family import broken, case_of, findings, judged, layout_of, plans_for_oracles, read, script, yaml_file
from oracles_run import judge, needs
from tests.draws import draws, seed

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.frameworks import framework
from meshwright.frameworks.accelerate.writing import layer_class
from meshwright.frameworks.base import Options
from meshwright.frameworks.editing import edit
from meshwright.frameworks.settings import Given
from meshwright.testing import any_plans, legal_plans

NAME = "accelerate"
BATCH = script(
    {"--per_device_train_batch_size": 2, "--gradient_accumulation_steps": 4}, launcher="accelerate launch --config_file a.yaml"
)
MESH = {"dp_replicate_size": 1, "dp_shard_size": 8, "tp_size": 1, "cp_size": 1}


def fsdp(*, num_processes=8, mesh=None, top=None, **fsdp_config):
    """The YAML of FSDP2 on 8 devices, changed."""
    section = {
        "fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer", "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_offload_params": False, "fsdp_activation_checkpointing": False,
    } | {f"fsdp_{key}": value for key, value in fsdp_config.items()}
    values = {
        "distributed_type": "FSDP", "mixed_precision": "bf16", "num_machines": 1, "num_processes": num_processes,
        "fsdp_config": {key: value for key, value in section.items() if value is not None},
    }
    if mesh is not None:
        values["parallelism_config"] = {f"parallelism_config_{key}": value for key, value in mesh.items()}
    return {key: value for key, value in (values | (top or {})).items() if value is not None}


def ids(values, *files, case=None):
    return {id.removeprefix("accelerate.") for id in findings(NAME, yaml_file(values), *(files or (BATCH,)), case=case)}


# Reading: facts of accelerate's own templates and tests.
PUBLIC = {
    "torch_native_parallelism/tp_hsdp": (
        fsdp(mesh={"dp_replicate_size": 2, "dp_shard_size": 2, "tp_size": 2, "cp_size": 1}),
        {"tensor_parallel": 2, "data_parallel": 4, "optimizer_shards": 2, "parameter_shards": 2, "zero_stage": 3},
    ),
    "torch_native_parallelism/cp": (
        fsdp(activation_checkpointing=True, mesh={"dp_replicate_size": 1, "dp_shard_size": 1, "tp_size": 1, "cp_size": 8}),
        {"context_parallel": 8, "context_kind": "all-gather", "data_parallel": 1, "optimizer_shards": 8, "recompute": Full()},
    ),
    "config_yaml_templates/fsdp": (
        fsdp(num_processes=2, version=None, reshard_after_forward=None, sharding_strategy="FULL_SHARD",
             backward_prefetch="BACKWARD_PRE",
             cpu_ram_efficient_loading=True, sync_module_states=True, use_orig_params=True),
        {"data_parallel": 2, "zero_stage": 3, "optimizer_shards": 2},
    ),
    "test_configs/latest_fsdp": (
        fsdp(num_processes=1, version=None, sharding_strategy="FULL_SHARD", transformer_layer_cls_to_wrap="BertLayer"),
        {"data_parallel": 1, "zero_stage": 0},
    ),
    "tests/fsdp2_tp_preparation": (
        {"distributed_type": "FSDP", "mixed_precision": "no", "num_machines": 1, "num_processes": 4},
        {"data_parallel": 4, "zero_stage": 3},
    ),
    "config_yaml_templates/multi_gpu": (
        {"distributed_type": "MULTI_GPU", "num_machines": 1, "num_processes": 2, "mixed_precision": "bf16"},
        {"data_parallel": 2, "zero_stage": 0, "recompute": NoRecompute()},
    ),
    "config_yaml_templates/multi_node": (
        {"distributed_type": "MULTI_GPU", "num_machines": 2, "num_processes": 8, "main_process_ip": "1234",
         "main_process_port": 9999},
        {"data_parallel": 8, "zero_stage": 0},
    ),
    "FSDP1 hybrid on two nodes": (
        fsdp(num_processes=16, version=1, sharding_strategy="HYBRID_SHARD", reshard_after_forward=None, top={"num_machines": 2}),
        {"data_parallel": 16, "optimizer_shards": 8, "zero_stage": 3},
    ),
    "FSDP1 by number": (fsdp(version=1, sharding_strategy=2, reshard_after_forward=None), {"zero_stage": 2, "gradient_shards": 8}),
    "keys without their prefix": (
        {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"version": 2, "reshard_after_forward": "false",
                                                                         "offload_params": True}},
        {"zero_stage": 2, "offload": ("optimizer",)},
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_configurations_are_read(name):
    values, expected = PUBLIC[name]
    reading = read(NAME, yaml_file(values), BATCH)
    assert reading.layout is not None, reading.messages
    assert {key: getattr(reading.layout, key) for key in expected} == expected
    assert (reading.layout.microbatch_sequences, reading.layout.num_microbatches) == (2, 4)


@pytest.mark.parametrize("version", ["fsdp1", "1.9", "1.12"])
def test_every_surface_is_written_and_read_again(version):
    there = framework(f"{NAME}@{version}")
    for case, layout in legal_plans(f"{NAME}@{version}", draws(20), seed=seed(0)):
        files = [file for file in there.write(case, layout) if file.path != "README.md"]
        reading = framework(NAME).read(files, given=Given(num_devices=layout.world, devices_per_node=case.cluster.devices_per_node))
        assert reading.version == ("fsdp1" if version == "fsdp1" and layout.zero_stage else "1.14")
        assert reading.layout == there.normal(case, layout)


def test_a_file_of_fsdp1_is_edited_in_its_own_words():
    values = {
        "distributed_type": "FSDP",
        "num_processes": 8,
        "fsdp_config": {"sharding_strategy": "FULL_SHARD", "fsdp_auto_wrap_policy": "NO_WRAP"},
    }
    case, reading = case_of(NAME, devices=8), read(NAME, yaml_file(values), BATCH)
    assert reading.layout is not None, reading.messages
    edited = edit(framework(NAME), reading, case, replace(reading.layout, parameter_shards=1))
    changed = yaml.safe_load(edited.files[0].text)["fsdp_config"]
    assert changed == {"fsdp_auto_wrap_policy": "NO_WRAP", "fsdp_sharding_strategy": "SHARD_GRAD_OP"}


def test_what_is_missing_is_said():
    alone = read(NAME, yaml_file(fsdp()))
    assert [message.id for message in alone.messages] == ["accelerate.microbatch"]
    without = fsdp(num_processes=None)
    assert "import.devices" in {message.id for message in read(NAME, yaml_file(without)).messages}
    deepspeed = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "zero1.json"}, "num_processes": 2}
    assert "--from deepspeed" in str(read(NAME, yaml_file(deepspeed), BATCH).messages[0])
    options = script(
        {"--per_device_train_batch_size": 1}, launcher="accelerate launch --num_processes 8 --use_fsdp --fsdp_version 2"
    )
    assert "accelerate.options" in {message.id for message in read(NAME, yaml_file(fsdp()), options).messages}


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [("LlamaForCausalLM", "LlamaDecoderLayer"), ("BloomForCausalLM", "BloomBlock"), ("Qwen3MoeForCausalLM",
                                                                                     "Qwen3MoeDecoderLayer"), ("", None)],
)
def test_layers_are_wrapped_by_their_class(architecture, expected):
    model = replace(case_of(NAME).model, architecture=architecture)
    assert layer_class(model) == expected


# Limits.
LIMITS = {
    "precision": ({"recipe": "fp8-cs"}, {}), "pipeline": ({}, {"pipeline_parallel": 2}),
    "expert-parallel": ({"model": "qwen3-30b-a3b"}, {"expert_parallel": 2}), "knobs": ({}, {"recompute": Selective()}),
    "key-value-heads": ({"devices": 64, "batch": 64}, {"tensor_parallel": 16, "zero": 3}), "pure-data": ({},
                                                                                                         {"tensor_parallel": 2}),
    "context-shards": ({}, {"context_parallel": 2, "context_kind": "ring"}),
    "context-attention": ({"model": "gpt-oss-120b"}, {"context_parallel": 2, "zero": 3, "context_kind": "ring"}),
    "context-mixers": ({"model": "kimi-linear-48b-a3b"}, {"context_parallel": 2, "zero": 3, "context_kind": "ring"}),
    "mesh": ({}, {"context_parallel": 2, "optimizer_shards": 1, "gradient_shards": 16, "context_kind": "ring"}),
    "shards": ({}, {"optimizer_shards": 16}), "offload": ({}, {"offload": ("optimizer",)}), "device": ({"device": "v100-32g"}, {}),
    "position-table": ({"model": "gpt3-175b", "sequence": 4096}, {}), "heads": ({"devices": 48, "batch": 96},
                                                                                {"tensor_parallel": 3}),
    "width": ({"devices": 48, "batch": 96}, {"tensor_parallel": 3}), "sequence": ({"sequence": 2050}, {"context_parallel": 2,
                                                                                                       "zero": 3}),
    "context-kind": ({}, {"context_parallel": 2, "context_kind": "ulysses"}), "experts": ({"model": "qwen3-30b-a3b",
                                                                                           "devices": 48, "batch": 96},
                                                                                           {"expert_parallel": 3}),
    "expert-sequence": ({"model": "qwen3-30b-a3b"}, {"tensor_parallel": 2, "zero": 3}), "schedule": ({}, {"virtual_stages": 2}),
    "context-heads": ({}, {"context_parallel": 16}), "batch": ({}, {"num_microbatches": 3}), "zero-stage": ({}, {"zero": 1}),
}
UNREACHED = {"positions", "stages", "task"}
"""Every position and task is that of the program; stages are refused as pipelines."""


@pytest.mark.parametrize("rule", LIMITS)
def test_each_limit_fires_and_only_where_it_should(rule):
    given, knobs = LIMITS[rule]
    case = case_of(NAME, **given)
    assert f"accelerate.{rule}" in broken(NAME, case, layout_of(case, **knobs))
    plain = case_of(NAME, given.get("model", "llama3-8b"))
    assert not broken(NAME, plain, layout_of(plain, zero=3))


def test_every_limit_has_a_test():
    assert {limit.id.removeprefix("accelerate.") for limit in framework(NAME).limits} == {*LIMITS, *UNREACHED}


def test_release_1_9_has_no_mesh():
    case = case_of(NAME)
    assert "accelerate.no-mesh" in broken("accelerate@1.9", case, layout_of(case, zero=3, tensor_parallel=2))
    assert "accelerate.no-hybrid" in broken("accelerate@1.9", case, layout_of(case, optimizer_shards=8, gradient_shards=8))
    files = {file.path: file.text for file in framework(NAME).write(case, layout_of(case, zero=3), version="1.9")}
    assert f"{NAME}.no-hybrid" not in broken("accelerate@fsdp1", case, layout_of(case, optimizer_shards=8, gradient_shards=8))
    assert f"{NAME}.no-hybrid" in broken("accelerate@fsdp1", case, layout_of(case, optimizer_shards=4, gradient_shards=4))
    assert "parallelism_config" not in files["accelerate_config.yaml"]
    assert framework(NAME).surface().find("parallelism_config.parallelism_config_tp_size", "1.9") is None


# Checks.
MUTATIONS = {
    "distributed-type": fsdp(top={"distributed_type": None}), "processes": fsdp(num_processes=None),
    "machines": fsdp(top={"num_machines": 3}), "wrapping": fsdp(auto_wrap_policy=None),
    "ignored": fsdp(backward_prefetch="BACKWARD_PRE"), "strategy": fsdp(sharding_strategy="FULL_SHARD"),
    "reshard": fsdp(reshard_after_forward="FULL_SHARD"), "reshard-fsdp1": fsdp(version=1), "fsdp1": fsdp(version=None),
    "state-dict": fsdp(state_dict_type="LOCAL_STATE_DICT"), "other-section": fsdp(top={"distributed_type": "MULTI_GPU"}),
    "total-size": fsdp(mesh=MESH | {"tp_size": 2}), "mesh-engine": fsdp(version=1, mesh=MESH),
    "mesh-exclusive": fsdp(mesh=MESH | {"cp_size": 2, "sp_size": 2}),
    "mesh-pure-data": fsdp(mesh=MESH | {"dp_replicate_size": 4, "dp_shard_size": 1, "tp_size": 2}),
}


def test_good_files_have_no_findings():
    assert not ids(fsdp())
    assert not ids(fsdp(mesh=MESH), case=case_of(NAME))


@pytest.mark.parametrize("rule", MUTATIONS)
def test_each_check_fires_on_its_mutation(rule):
    launch = script({"--per_device_train_batch_size": 2}, launcher="accelerate launch") if rule == "processes" else BATCH
    assert rule in ids(MUTATIONS[rule], launch)


def test_checks_that_need_more_than_the_yaml():
    twice = script({"--per_device_train_batch_size": 2, "--gradient_checkpointing": True}, launcher="accelerate launch")
    assert "twice-checkpointing" in ids(fsdp(activation_checkpointing=True), twice)
    assert "twice-checkpointing" not in ids(fsdp(), twice)
    case = case_of(NAME, "qwen3-30b-a3b")
    wrong = findings(NAME, yaml_file(fsdp()), BATCH, case=case)["accelerate.layer-class"]
    assert (wrong.value, wrong.expected) == ("LlamaDecoderLayer", "Qwen3MoeDecoderLayer")
    inline = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 8,
        "deepspeed_config": {"deepspeed_config_file": "ds.json", "zero_stage": 2},
    }
    assert "deepspeed-file" in ids(inline)
    assert "deepspeed-file" not in ids(inline | {"deepspeed_config": {"zero_stage": 2}})
    json_rules = {check.id for check in framework(NAME).checks if check.source.startswith("deepspeed/")}
    own = {check.id.removeprefix("accelerate.") for check in framework(NAME).checks if check.id not in json_rules}
    assert own == {*MUTATIONS, "twice-checkpointing", "layer-class", "deepspeed-file"}


@pytest.mark.parametrize(
    ("key", "severity"),
    [("use_parallelism_config", "error"), ("fsdp_config.fsdp_reshard", "warning"), ("fsdp_config.version", None),
     ("--learning_rate", None),
     ("zero_optimization.overlap_com", "error")],
)
def test_unknown_keys(key, severity):
    found = framework(NAME).unknown_keys(key)
    assert (found[0] if found else None) == severity


def test_hostile_values_never_raise():
    odd = fsdp(version="two", mesh={"tp_size": "many", "dp_shard_size": 0})
    reading = read(NAME, yaml_file(odd), BATCH)
    assert reading.layout is None
    assert reading.messages
    assert isinstance(ids(odd), set)


# The launcher and the plugins themselves.


@pytest.mark.oracle
@pytest.mark.slow
@needs("accelerate-1.14.0")
def test_accelerate_accepts_what_is_written():
    plans = plans_for_oracles(NAME)
    verdicts = judge("accelerate-1.14.0", [judged(framework(NAME).write(case, layout), layout) for case, layout in plans])
    assert not [verdict["why"] for verdict in verdicts if not verdict["accepted"]]
    for (_case, layout), verdict in zip(plans, verdicts, strict=True):
        parsed = verdict["config"]
        assert parsed["num_processes"] == layout.world
        if layout.zero_stage >= 2:
            assert parsed["fsdp"]["fsdp_version"] == 2
            assert parsed["fsdp"]["reshard_after_forward"] == (layout.zero_stage == 3)
            assert parsed["parallelism"]["tp"] == layout.tensor_parallel
            assert parsed["parallelism"]["dp_shard"] * layout.context_parallel == layout.optimizer_shards


@pytest.mark.oracle
@pytest.mark.slow
@needs("accelerate-1.14.0")
def test_limits_agree_with_accelerate():
    there = framework(NAME)
    plans = list(any_plans(NAME, draws(100), seed=seed(3)))
    verdicts = judge(
        "accelerate-1.14.0", [judged(there.writer(case, layout, there.version, Options()), layout) for case, layout in plans]
    )
    for (case, layout), verdict in zip(plans, verdicts, strict=True):
        noticed = [limit.id for limit in there.limits if limit.noticed in {"parse", "start"} and limit.check(case, layout)]
        assert verdict["accepted"] or noticed, verdict["why"]
        if [limit for limit in there.limits if limit.noticed == "parse" and limit.check(case, layout)]:
            assert not verdict["accepted"]
        if "accelerate.pure-data" in noticed and layout.zero_stage == 0 and layout.tensor_parallel > 1:
            assert "pure data parallelism" in verdict["why"]
    assert sum(verdict["accepted"] for verdict in verdicts) > draws(30)


@pytest.mark.oracle
@pytest.mark.slow
@needs("accelerate-1.14.0")
def test_what_checks_call_errors_accelerate_refuses_and_what_they_call_warnings_it_takes():
    errors = (
        "distributed-type",
        "processes",
        "reshard",
        "state-dict",
        "total-size",
        "mesh-engine",
        "mesh-exclusive",
        "mesh-pure-data",
    )
    warnings = ("wrapping", "ignored", "strategy", "reshard-fsdp1", "fsdp1", "other-section")
    cases = [judged([yaml_file(MUTATIONS[rule])], layout_of(case_of(NAME, devices=8))) for rule in (*errors, *warnings)]
    verdicts = judge("accelerate-1.14.0", cases)
    assert {rule: verdict["accepted"] for rule, verdict in zip((*errors, *warnings), verdicts, strict=True)} == {
        **dict.fromkeys(errors, False), **dict.fromkeys(warnings, True),
    }, [verdict["why"] for verdict in verdicts]
    unknown, ignored = judge(
        "accelerate-1.14.0",
        [judged([yaml_file(values)], layout_of(case_of(NAME, devices=8)))
         for values in (fsdp(top={"use_parallelism_config": True}), fsdp(reshard=True))],
    )
    assert "unknown keys" in unknown["why"]
    assert ignored["accepted"]


@pytest.mark.parametrize(("knobs", "refused"), [({}, False), ({"tensor_parallel": 2}, True)])
def test_replicas_alone_are_refused_beside_other_axes_only(knobs, refused):
    case = case_of(NAME)
    assert ("accelerate.pure-data" in broken(NAME, case, layout_of(case, zero=0, **knobs))) == refused
