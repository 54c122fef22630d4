from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from deepspeed_family import broken, case_of, findings, json_file, judged, judged_flags, layout_of, plans_for_oracles, read, script
from oracles_run import judge, needs
from tests.draws import draws, seed

import meshwright as mw
from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.base import Options
from meshwright.frameworks.editing import edit
from meshwright.judging.neighbours import neighbours
from meshwright.testing import any_plans

NAME = "megatron-deepspeed"
DENSE, MOE = "llama3-8b", "mixtral-8x7b"
FLAGS = {
    "--deepspeed": True, "--deepspeed_config": "ds.json", "--tensor-model-parallel-size": 2, "--pipeline-model-parallel-size": 2,
    "--micro-batch-size": 2, "--global-batch-size": 64, "--num-layers": 24, "--hidden-size": 2048, "--num-attention-heads": 16,
    "--seq-length": 2048, "--max-position-embeddings": 2048, "--bf16": True, "--zero-stage": 1,
}
JSON = {
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1},
    "gradient_clipping": 1.0,
}


def without(flags, *names):
    return {key: value for key, value in flags.items() if key not in names}


def ids(flags, values=None, before="", case=None):
    run = script(flags, before=before, program="pretrain_gpt.py")
    return {id.removeprefix(f"{NAME}.") for id in findings(NAME, run, json_file(values or JSON), case=case)}


# Reading: facts of public scripts (Megatron-DeepSpeed's examples, BigScience's runs), not their text.
HEREDOC = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 0},
    "bf16": {"enabled": True},
}
PUBLIC = {
    "rebase/gpt_13B": (
        {"--tensor-model-parallel-size": 4, "--pipeline-model-parallel-size": 8, "--micro-batch-size": 2,
         "--global-batch-size": 1024,
         "--num-layers": 40, "--zero-stage": 1, "--fp16": True, "--checkpoint-activations": True}, None, 64,
        {"data_parallel": 2, "tensor_parallel": 4, "pipeline_parallel": 8, "num_microbatches": 256, "zero_stage": 1,
         "recompute": Full()},
    ),
    "rebase/gpt_125M": (
        {"--tensor-model-parallel-size": 2, "--pipeline-model-parallel-size": 2, "--micro-batch-size": 2,
         "--global-batch-size": 256,
         "--zero-stage": 1}, None, 64, {"data_parallel": 16, "num_microbatches": 8, "recompute": NoRecompute()},
    ),
    "MoE/1.3B_MoE128": (
        {"--micro-batch-size": 8, "--global-batch-size": 512, "--num-experts": 128, "--moe-expert-parallel-size": 64,
         "--no-pipeline-parallel": True, "--checkpoint-activations": True}, None, 64,
        {"expert_parallel": 64, "data_parallel": 64, "microbatch_sequences": 8, "zero_stage": 0},
    ),
    "MoE/350M_PR-MoE32or64": (
        {"--micro-batch-size": 4, "--global-batch-size": 256, "--num-experts": "32 32 64 64", "--moe-expert-parallel-size": 32,
         "--no-pipeline-parallel": True}, None, 64, {"expert_parallel": 32},
    ),
    "MoE/6.7B_dense": (
        {"--tensor-model-parallel-size": 8, "--micro-batch-size": 4, "--global-batch-size": 1024,
         "--checkpoint-activations": True}, None, 64,
        {"tensor_parallel": 8, "data_parallel": 8, "num_microbatches": 32},
    ),
    "sequence_parallel/6.7B_fpdt": (
        {"--ds-sequence-parallel-size": 4, "--micro-batch-size": 2, "--global-batch-size": 1024, "--zero-stage": 3,
         "--no-pipeline-parallel": True},
        None, 64, {"context_parallel": 4, "context_kind": "ulysses", "data_parallel": 16, "zero_stage": 3, "parameter_shards": 64},
    ),
    "llama2_distributed, JSON in the script": (
        {"--tensor-model-parallel-size": 2, "--pipeline-model-parallel-size": 2, "--micro-batch-size": 1, "--global-batch-size": 64,
         "--num-key-value-heads": 4, "--zero-stage": 0, "--bf16": True}, HEREDOC, 16,
        {"data_parallel": 4, "num_microbatches": 16, "zero_stage": 0},
    ),
    "bigscience/tr1-13B": (
        {"--tensor-model-parallel-size": 2, "--pipeline-model-parallel-size": 4, "--micro-batch-size": 1,
         "--global-batch-size": 1024,
         "--num-layers": 40, "--checkpoint-activations": True, "--fp16": True}, HEREDOC | {"train_batch_size": 1024,
                                                                                           "zero_optimization": {"stage": 1}},
        512, {"data_parallel": 64, "num_microbatches": 16, "zero_stage": 1, "recompute": Full()},
    ),
    "bigscience/tr11-176B": (
        {"--tensor-model-parallel-size": 4, "--pipeline-model-parallel-size": 12, "--micro-batch-size": 2,
         "--global-batch-size": 2048,
         "--num-layers": 70, "--checkpoint-activations": True, "--bf16": True},
        HEREDOC | {"train_batch_size": 2048, "train_micro_batch_size_per_gpu": 2}, 384,
        {"data_parallel": 8, "pipeline_parallel": 12, "num_microbatches": 128, "zero_stage": 0},
    ),
    "selective recomputation": (
        {"--micro-batch-size": 1, "--global-batch-size": 64, "--recompute-activations": True}, None, 8, {"recompute": Selective()},
    ),
    "block recomputation under the pipeline engine": (
        {"--micro-batch-size": 1, "--global-batch-size": 64, "--recompute-granularity": "full", "--recompute-method": "block"},
        None, 8,
        {"recompute": NoRecompute()},
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_scripts_are_read(name):
    flags, embedded, devices, expected = PUBLIC[name]
    heredoc = f"CONFIG=ds.json\ncat <<EOT > $CONFIG\n{json.dumps(embedded, indent=1)}\nEOT" if embedded else ""
    run = script({"--deepspeed": True, "--deepspeed_config": "$CONFIG"} | flags, program="pretrain_gpt.py", before=heredoc)
    reading = read(NAME, run, devices=devices)
    assert reading.layout is not None, reading.messages
    assert {key: getattr(reading.layout, key) for key in expected} == expected
    if embedded:
        line = reading.source.settings["train_batch_size"].line
        assert "train_batch_size" in run.text.splitlines()[line - 1]


def test_the_json_wins_over_the_flags():
    flags = script(FLAGS | {"--micro-batch-size": 1, "--zero-stage": 2, "--global-batch-size": 32}, program="pretrain_gpt.py")
    reading = read(NAME, flags, json_file(JSON))
    assert reading.layout is not None, reading.messages
    assert (reading.layout.microbatch_sequences, reading.layout.num_microbatches, reading.layout.zero_stage) == (2, 16, 1)
    assert reading.said.figures["layers"] == 24


def test_a_json_within_a_script_is_not_edited():
    heredoc = f"cat <<EOT > ds.json\n{json.dumps(HEREDOC)}\nEOT"
    flags = without(FLAGS, "--micro-batch-size", "--zero-stage") | {"--micro-batch-size": 1, "--zero-stage": 0}
    case = case_of(NAME, devices=8)
    reading = read(NAME, script(flags, program="pretrain_gpt.py", before=heredoc))
    assert reading.layout is not None
    with pytest.raises(InputError, match="the script itself writes"):
        edit(framework(NAME), reading, case, replace(reading.layout, microbatch_sequences=2, num_microbatches=16))


def test_broken_json_in_a_script_is_remarked():
    run = script(FLAGS, program="pretrain_gpt.py", before='cat <<EOT > ds.json\n{ "a": \nEOT')
    assert "import.embedded" in {remark.id for remark in read(NAME, run).source.remarks}


# Limits.
LIMITS = {
    "model": ({"model": "deepseek-v3"}, {}), "precision": ({"recipe": "fp8-cs"}, {}), "optimizer": ({"optimizer": "muon"}, {}),
    "key-value-heads": ({"devices": 64}, {"tensor_parallel": 16}), "zero-pipeline": ({}, {"pipeline_parallel": 2, "zero": 2}),
    "two-sequence-parallels": ({}, {"tensor_parallel": 2, "context_parallel": 2, "sequence_parallel": True}),
    "sequence-grid": ({}, {"pipeline_parallel": 2, "context_parallel": 2}),
    "expert-pipeline": ({"model": MOE}, {"pipeline_parallel": 2, "tensor_parallel": 2}),
    "expert-data": ({"model": MOE}, {"tensor_parallel": 4, "expert_parallel": 8}),
    "expert-tensor": ({"model": MOE}, {"tensor_parallel": 4, "expert_parallel": 2, "expert_tensor_parallel": 2}),
    "expert-stage-3": ({"model": MOE}, {"zero": 3}), "recompute": ({}, {"recompute": Full(layers=2)}),
    "knobs": ({}, {"stage_layers": ((32,),)}), "offload": ({}, {"offload": ("optimizer",)}),
    "offload-optimizer": ({"optimizer": "sgd"}, {"zero": 1, "offload": ("optimizer",)}), "device": ({"device": "v100-32g"}, {}),
    "task": ({"task": "sft"}, {}), "positions": ({"model": "bloom-176b"}, {}), "position-table": ({"model": "gpt3-175b",
                                                                                                   "sequence": 4096}, {}),
    "heads": ({"devices": 48, "batch": 96}, {"tensor_parallel": 3}), "width": ({"devices": 48, "batch": 96},
                                                                               {"tensor_parallel": 3}),
    "sequence": ({"sequence": 2050}, {"context_parallel": 2}), "context-kind": ({}, {"context_parallel": 2,
                                                                                     "context_kind": "ring"}),
    "context-heads": ({}, {"context_parallel": 16}), "experts": ({"model": MOE, "devices": 48, "batch": 96},
                                                                 {"expert_parallel": 3}),
    "expert-grid": ({"model": MOE}, {"expert_parallel": 32}), "expert-sequence": ({"model": MOE}, {"tensor_parallel": 2}),
    "stages": ({"devices": 64}, {"pipeline_parallel": 64}), "schedule": ({}, {"pipeline_parallel": 2, "virtual_stages": 2}),
    "batch": ({}, {"num_microbatches": 3}), "shards": ({}, {"optimizer_shards": 8}), "zero-stage": ({}, {}),
}


@pytest.mark.parametrize("rule", sorted(set(LIMITS) - {"zero-stage"}))
def test_each_limit_fires_and_only_where_it_should(rule):
    given, knobs = LIMITS[rule]
    case = case_of(NAME, **given)
    assert f"{NAME}.{rule}" in broken(NAME, case, layout_of(case, **knobs))
    plain = case_of(NAME, MOE if given.get("model") == MOE else DENSE)
    assert not broken(NAME, plain, layout_of(plain, zero=1))


@pytest.mark.parametrize("changes", [{"embedding_norm": True}, {"norm": "centred"}, {"embedding_width": 64}])
def test_what_it_lacks_reads_as_english(changes):
    """"It has no a norm of embeddings"."""
    case = case_of(NAME)
    found = framework(NAME).check(replace(case, model=replace(case.model, **changes)), layout_of(case))
    (words,) = (str(each) for each in found if each.id == f"{NAME}.model")
    assert "it has no " in words and not re.search(r"\bno an?\b", words)


def test_every_limit_has_a_test():
    assert {limit.id.removeprefix(f"{NAME}.") for limit in framework(NAME).limits} == set(LIMITS)


# Checks: flags, JSON, environment.
MUTATIONS = {
    "switch": (without(FLAGS, "--deepspeed"), JSON), "no-config": (without(FLAGS, "--deepspeed_config"), JSON),
    "disagree": (FLAGS | {"--global-batch-size": 128}, JSON),
    "zero-engine": (FLAGS | {"--zero-stage": 2}, JSON | {"zero_optimization": {"stage": 2}}),
    "no-pipeline": (FLAGS | {"--no-pipeline-parallel": True}, JSON), "world": (FLAGS | {"--tensor-model-parallel-size": 3}, JSON),
    "two-sequence-parallels": (FLAGS | {"--sequence-parallel": True, "--ds-sequence-parallel-size": 2}, JSON),
    "sequence-grid": (FLAGS | {"--ds-sequence-parallel-size": 2}, JSON),
    "sequence-parallel": (FLAGS | {"--sequence-parallel": True, "--tensor-model-parallel-size": 1}, JSON),
    "connections": (FLAGS | {"--sequence-parallel": True}, JSON),
    "selective-method": (FLAGS | {"--recompute-granularity": "selective", "--recompute-method": "uniform"}, JSON),
    "block-recompute": (FLAGS | {"--recompute-granularity": "full", "--recompute-method": "block"}, JSON),
    "checkpointing-json": (FLAGS, JSON | {"activation_checkpointing": {"partition_activations": True}}),
    "interleaved": (FLAGS | {"--num-layers-per-virtual-pipeline-stage": 2}, JSON),
    "distributed-optimizer": (FLAGS | {"--use-distributed-optimizer": True}, JSON),
    "expert-partition": (FLAGS | {"--num-experts": 8}, JSON),
    "zero-bubble": (FLAGS | {"--enable-zbh1-pipeline": True, "--sequence-parallel": True}, JSON),
    "batch-arithmetic": (FLAGS, JSON | {"gradient_accumulation_steps": 8}),
    "batch-missing": (FLAGS, {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}),
}


def test_good_files_have_no_findings():
    assert not ids(FLAGS)


@pytest.mark.parametrize("rule", MUTATIONS)
def test_each_check_fires_on_its_mutation(rule):
    assert rule in ids(*MUTATIONS[rule])


def test_every_own_check_has_a_mutation():
    own = {check.id.removeprefix(f"{NAME}.") for check in framework(NAME).checks if "Megatron-DeepSpeed" in check.source}
    assert own <= {*MUTATIONS, "comment", "no-json"}


@pytest.mark.parametrize("absent", ["gradient_accumulation_steps", "train_micro_batch_size_per_gpu"])
def test_fewer_devices_than_a_replica_has_leave_the_batch_open(absent):
    values = without(JSON | {"gradient_accumulation_steps": 4}, absent)
    found = findings(NAME, script(FLAGS | {"--tensor-model-parallel-size": 8}), json_file(values), devices=2)
    assert f"{NAME}.batch-arithmetic" not in found


def test_a_missing_json_is_said():
    assert f"{NAME}.no-json" in findings(NAME, script(FLAGS))
    assert f"{NAME}.no-json" not in findings(NAME, script(FLAGS), json_file(JSON))


def test_the_environment_silences_its_rule():
    flags = FLAGS | {"--sequence-parallel": True}
    assert "connections" not in ids(flags, before="export CUDA_DEVICE_MAX_CONNECTIONS=1")
    assert "connections" in ids(flags, before="export CUDA_DEVICE_MAX_CONNECTIONS=8")


def test_a_comment_is_an_error_here():
    text = json.dumps(JSON, indent=1).replace('"train_batch_size"', '// batch\n"train_batch_size"', 1)
    found = findings(NAME, script(FLAGS), File(path="ds.json", text=text))
    assert found[f"{NAME}.comment"].severity == "error"


def test_disagreements_name_both_values():
    found = findings(NAME, script(FLAGS | {"--micro-batch-size": 4}), json_file(JSON))[f"{NAME}.disagree"]
    assert (found.value, found.expected) == (4, 2)
    assert "the JSON wins" in str(found.message)


@pytest.mark.parametrize(
    ("key", "severity"),
    [("--overlap-grad-reduce", "error"), ("--context-parallel-size", "error"), ("zero_optimisation", "warning"),
     ("zero_optimization.overlap_com", "error"), ("optimizer.params.lr", None)],
)
def test_unknown_keys(key, severity):
    found = framework(NAME).unknown_keys(key)
    assert (found[0] if found else None) == severity
    assert framework(NAME).surface().find(key, "4efb479d") is None


def test_flags_and_json_say_the_same():
    case = case_of(NAME)
    files = {file.path: file.text for file in framework(NAME).write(case, layout_of(case, zero=3, microbatch_sequences=2))}
    document = json.loads(files["ds_config.json"])
    assert (document["train_batch_size"], document["train_micro_batch_size_per_gpu"], document["zero_optimization"]["stage"]) == (
        64,
        2,
        3,
    )
    for words in ("--zero-stage 3", "--micro-batch-size 2", "--global-batch-size 64", "--no-pipeline-parallel"):
        assert words in files["train.sh"]


# The parsers themselves.


@pytest.mark.oracle
@pytest.mark.slow
@needs("deepspeed-0.19.8")
def test_deepspeed_accepts_the_json():
    plans = plans_for_oracles(NAME, 30, 3, without=("sequence parallel",))
    verdicts = judge("deepspeed-0.19.8", [judged(framework(NAME).write(case, layout), layout) for case, layout in plans])
    assert not [verdict["why"] for verdict in verdicts if not verdict["accepted"]]


@pytest.mark.oracle
@pytest.mark.slow
@needs("megatron-deepspeed")
def test_megatron_deepspeed_accepts_the_flags():
    plans = plans_for_oracles(NAME, without=("sequence parallel",))
    case = case_of(NAME, devices=64)
    plans += [
        (case, layout_of(case, tensor_parallel=tp, pipeline_parallel=pp, sequence_parallel=True, zero=zero))
        for tp in (2, 4, 8) for pp in (1, 2, 4) for zero in (0, 1) for _ in range(2)
    ]
    verdicts = judge(NAME, [judged_flags(framework(NAME).write(case, layout), layout) for case, layout in plans])
    assert not [verdict["why"] for verdict in verdicts if not verdict["accepted"]]
    for (case, layout), verdict in zip(plans, verdicts, strict=True):
        parsed = verdict["config"]
        assert parsed["data_parallel_size"] == layout.data_parallel
        assert parsed["num_layers"] == case.model.num_layers
        assert parsed["num_key_value_heads"] == case.model.attention.num_key_value_heads
        assert parsed["global_batch_size"] == case.batch.global_batch_sequences


@pytest.mark.oracle
@pytest.mark.slow
@needs("megatron-deepspeed")
def test_limits_agree_with_megatron_deepspeed():
    there = framework(NAME)
    plans = list(any_plans(NAME, draws(100), seed=seed(5)))
    verdicts = judge(NAME, [judged_flags(there.writer(case, layout, there.version, Options()), layout) for case, layout in plans])
    for (case, layout), verdict in zip(plans, verdicts, strict=True):
        found = [limit for limit in there.limits if limit.check(case, layout)]
        assert verdict["accepted"] or found, verdict["why"]
        assert not (verdict["accepted"] and [limit for limit in found if limit.noticed == "parse"])
    assert sum(verdict["accepted"] for verdict in verdicts) > draws(30)


def test_sequence_parallelism_is_judged_and_only_on_where_it_is_asked_for(tmp_path):
    """Memory and speed of files with it are said beside what the engine does not do; no search or advice switches it on."""
    case = {"model": "llama2-13b", "device": "a100-80g-sxm", "nodes": 2, "global_batch": 64, "sequence": 4096}
    asked = {**case, "framework": NAME}
    pins = ["tp=4", "pp=2", "mb=2", "recompute=selective"]
    free = mw.plan(mw.PlanRequest(**asked, pin=pins)).to_json()["plans"][0]
    pinned = mw.plan(mw.PlanRequest(**asked, pin=[*pins, "sp=on"], save=str(tmp_path / "files"))).to_json()["plans"][0]
    assert (free["layout"]["sequence_parallel"], pinned["layout"]["sequence_parallel"]) == (False, True)
    assert pinned["estimate"]["memory_reserved_bytes"] < free["estimate"]["memory_reserved_bytes"]
    files = [str(tmp_path / "files" / name) for name in ("train.sh", "ds_config.json")]
    found = mw.check(mw.CheckRequest(files=files, from_=NAME, model="llama2-13b", device="a100-80g-sxm", nodes=2)).to_json()
    (said,) = (each for each in found["findings"] if each["id"] == "guide.megatron.sequence-parallel")
    assert re.search(r"takes this layout from [\d.]+ GiB to [\d.]+ GiB and is .*, but DeepSpeed's engine bypasses", said["message"])
    assert "layout.refused" not in {each["id"] for each in found["findings"]}
    plain = layout_of(case_of(NAME, devices=16), tensor_parallel=2)
    assert "sp" not in {each.knob for each in neighbours(case_of(NAME, devices=16), framework(NAME).features, plain)}
