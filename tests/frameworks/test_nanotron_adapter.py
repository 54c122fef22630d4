"""nanotron: what is written is what its dataclasses take, and what they take is read as it is meant."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from megatron_cases import case_of, layout_of
from oracles_run import judge, needs

from meshwright.domain.layout import Full, Mixed, Overlap, Selective
from meshwright.estimate.split import cost_split
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.nanotron.limits import blocks_by_stage
from meshwright.frameworks.settings import Given
from meshwright.testing import any_plans, legal_plans, offered

NANOTRON = framework("nanotron")


def case(model="llama3-8b", **more):
    return case_of(model, implementation_name="nanotron", **more)


def config(case, layout):
    """The YAML that is written."""
    return next(file for file in NANOTRON.write(case, layout) if file.path == "config.yaml")


def read(text, name="config.yaml", **given):
    return NANOTRON.read([File(path=name, text=text)], given=Given(**given))


def written(settings):
    """A file from dotted keys."""
    document = {}
    for key, value in settings.items():
        *sections, name = key.split(".")
        section = document
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = value
    return yaml.safe_dump(document)


@pytest.mark.slow
@needs("nanotron")
def test_nanotron_takes_what_is_written():
    plans = list(legal_plans("nanotron", 200))
    for feature in offered(NANOTRON.features):
        plans += legal_plans("nanotron", 20, feature=feature)
    verdicts = judge("nanotron", [{"files": {"config.yaml": config(*plan).text}, "world": plan[1].world} for plan in plans])
    assert [verdict["why"] for verdict in verdicts if not verdict["accepted"]] == []


@pytest.mark.slow
@needs("nanotron")
def test_what_nanotron_takes_the_limits_take(monkeypatch):
    """Random layouts, legal or not: of those whose file nanotron takes, the limits refuse only what it does silently wrong."""
    silent = {"nanotron.knobs", "nanotron.parameters", "nanotron.blocks", "nanotron.context-without-ddp", "nanotron.width",
    "nanotron.async",
              "nanotron.experts", "nanotron.expert-parallel", "nanotron.sequence-parallel", "nanotron.layers"}
    plans = [
        plan for plan in any_plans("nanotron", 200)
        if plan[1].schedule in {"1f1b", "gpipe"} and plan[1].zero_stage < 2 and not isinstance(plan[1].recompute, Mixed)
    ]
    bare = replace(NANOTRON, limits=())
    texts = [next(file.text for file in bare.write(*plan) if file.path == "config.yaml") for plan in plans]
    verdicts = judge("nanotron", [
        {"files": {"config.yaml": text}, "world": layout.world} for text, (_, layout) in zip(texts, plans, strict=True)
    ])
    accepted = [plan for plan, verdict in zip(plans, verdicts, strict=True) if verdict["accepted"]]
    odd = [ids for plan in accepted if (ids := {message.id for message in NANOTRON.check(*plan)}) and not ids <= silent]
    assert len(accepted) > 20
    assert len(odd) <= 0.05 * len(accepted), odd


REAL = {
    "examples/config_tiny_llama.yaml": (
        {"parallelism.dp": 4, "parallelism.pp": 1, "parallelism.tp": 2, "parallelism.pp_engine": "1f1b",
         "parallelism.tp_mode": "REDUCE_SCATTER",
         "parallelism.tp_linear_async_communication": True, "parallelism.expert_parallel_size": 1, "optimizer.zero_stage": 0,
         "tokens.micro_batch_size": 3, "tokens.batch_accumulation_per_replica": 1, "tokens.sequence_length": 4096},
        {"tensor_parallel": 2, "data_parallel": 4, "sequence_parallel": True, "microbatch_sequences": 3,
         "num_microbatches": 1}, 12),
    "examples/mup/configs/mup_350m_llama_config.yaml": (
        {"parallelism.dp": 4, "parallelism.pp": 1, "parallelism.tp": 2, "parallelism.tp_mode": "REDUCE_SCATTER",
         "optimizer.zero_stage": 0,
         "tokens.micro_batch_size": 32, "tokens.batch_accumulation_per_replica": 8, "tokens.sequence_length": 1024},
        {"tensor_parallel": 2, "data_parallel": 4, "microbatch_sequences": 32, "num_microbatches": 8, "schedule": "1f1b"}, 1024),
    "examples/mamba/config_mamba.yaml": (
        {"parallelism.dp": 2, "parallelism.pp": 2, "parallelism.tp": 2, "parallelism.pp_engine": "1f1b",
         "parallelism.tp_mode": "ALL_REDUCE",
         "optimizer.zero_stage": 0, "tokens.micro_batch_size": 2, "tokens.batch_accumulation_per_replica": 1,
         "tokens.sequence_length": 2048},
        {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2, "sequence_parallel": False}, 4),
    "examples/config_resume_training.yaml": (
        {"parallelism.dp": 2, "parallelism.pp": 1, "parallelism.tp": 1, "parallelism.tp_mode": "REDUCE_SCATTER",
         "optimizer.zero_stage": 0,
         "tokens.micro_batch_size": 2, "tokens.batch_accumulation_per_replica": 1, "tokens.sequence_length": 256},
        {"data_parallel": 2, "sequence_parallel": False, "microbatch_sequences": 2}, 4),
    "examples/moe/config_llamoe.yaml": (
        {"parallelism.dp": 1, "parallelism.pp": 1, "parallelism.tp": 2, "parallelism.expert_parallel_size": 2,
         "optimizer.zero_stage": 0,
         "tokens.micro_batch_size": 256, "tokens.batch_accumulation_per_replica": 2, "tokens.sequence_length": 256},
        {"tensor_parallel": 2, "expert_parallel": 2, "num_microbatches": 2}, 512),
}
"""Facts of files of huggingface/nanotron: keys, the layout that they mean, sequences of the global batch."""


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_read(name):
    settings, expected, batch = REAL[name]
    reading = read(written(settings))
    assert reading.messages == ()
    assert {field: getattr(reading.layout, field) for field in expected} == expected
    assert reading.said.global_batch_sequences == batch
    assert reading.said.sequence_tokens == settings["tokens.sequence_length"]


def test_the_engine_is_afab_where_none_is_named():
    reading = read(written({"parallelism.dp": 1, "parallelism.tp": 1, "parallelism.pp": 2, "tokens.micro_batch_size": 1,
                            "tokens.batch_accumulation_per_replica": 4}))
    assert reading.layout.schedule == "gpipe"
    assert "nanotron.engine" in found(reading)


@pytest.mark.parametrize("key", ["parallelism.tp", "tokens.micro_batch_size"])
def test_without_a_degree_there_is_no_layout(key):
    settings = {name: value for name, value in REAL["examples/config_tiny_llama.yaml"][0].items() if name != key}
    reading = read(written(settings))
    assert reading.layout is None
    assert any(key in str(message) for message in reading.messages)


def test_the_world_must_be_the_product():
    settings = REAL["examples/config_tiny_llama.yaml"][0]
    assert read(written(settings), num_devices=8).layout is not None
    assert "TP*CP*DP*PP=2*1*4*1=8 != WORLD_SIZE=16" in str(read(written(settings), num_devices=16).messages[0])


@pytest.mark.parametrize("value", ["8", 2.5, True, [1], -1, 0])
def test_an_odd_value_is_a_message(value):
    reading = read(written(REAL["examples/config_tiny_llama.yaml"][0] | {"parallelism.dp": value}))
    assert reading.layout is None
    assert "parallelism.dp" in " ".join(map(str, reading.messages))


# --- limits --------------------------------------------------------------------------------------------------------
WIDE = {"devices": 64, "batch": 256}
BROKEN = {
    "nanotron.model": (case("qwen3-8b"), {}),
    "nanotron.precision": (case(precision_name="fp8-cs"), {}),
    "nanotron.optimizer": (case(optimizer_name="sgd"), {}),
    "nanotron.knobs": (case(), {"recompute": Selective()}),
    "nanotron.heads": (case("llama2-7b", devices=48), {"tensor_parallel": 3}),
    "nanotron.key-value-heads": (case(), {"tensor_parallel": 16}),
    "nanotron.key-value-heads-divide": (case(devices=48), {"tensor_parallel": 3}),
    "nanotron.async": (case("qwen2.5-7b"), {"tensor_parallel": 2, "overlap": Overlap(tensor=True)}),
    "nanotron.sequence": (case(sequence=2050), {"context_parallel": 4}),
    "nanotron.context-without-ddp": (case(), {"context_parallel": 2, "tensor_parallel": 8, "pipeline_parallel": 4, "zero": 1}),
    "nanotron.microbatches": (case(batch=8), {"pipeline_parallel": 32, "zero": 0}),
    "nanotron.blocks": (case("llama3.2-1b"), {"pipeline_parallel": 16, "zero": 0}),
    "nanotron.parameters": (case("llama3.2-1b"), {"pipeline_parallel": 8, "zero": 0}),
    "nanotron.width": (case("llama3-8b", devices=48), {"tensor_parallel": 3}),
    "nanotron.expert-parallel": (case("mixtral-8x7b"), {"expert_parallel": 2}),
    "nanotron.experts": (case("mixtral-8x7b"), {"tensor_parallel": 2, "sequence_parallel": True}),
    "nanotron.sequence-parallel": (case(sequence=2049), {"tensor_parallel": 2, "sequence_parallel": True}),
    "nanotron.layers": (case("llama3.2-1b"), {"pipeline_parallel": 32, "zero": 0}),
}


@pytest.mark.parametrize("limit", BROKEN)
def test_a_limit_fires(limit):
    where, knobs = BROKEN[limit]
    assert limit in {message.id for message in NANOTRON.check(where, layout_of(where, **knobs))}


def test_limits_are_silent_on_a_plain_layout():
    for model in ("llama3-8b", "qwen2.5-7b", "mixtral-8x7b"):
        assert NANOTRON.check(case(model), layout_of(case(model), recompute=Full())) == ()


def test_every_limit_is_tested():
    assert {limit.id for limit in NANOTRON.limits} - set(BROKEN) == {"nanotron.task"}


def test_blocks_stand_where_the_cost_model_puts_layers():
    """Layers by stage of the cost model are those of all blocks without embedding, norm, output layer and loss."""
    for model in ("llama3-8b", "llama3.2-1b", "qwen2.5-7b"):
        for stages in (2, 4, 8):
            there = case(model)
            (layers,) = cost_split(there.model, stages)
            blocks = [able for _, able in blocks_by_stage(there, layout_of(there, pipeline_parallel=stages))]
            assert sum(blocks) == there.model.num_layers + 3
            assert blocks[0] == layers[0] + 1, "the embedding stands before the first layer"


# --- checks --------------------------------------------------------------------------------------------------------
def found(reading, case=None):
    return {finding.message.id for check in NANOTRON.checks for finding in check.findings(reading, case)}


RIGHT = {
    "general.project": "x", "model.init_method.std": 0.02, "model.model_config.is_llama_config": True,
    "model.model_config.max_position_embeddings": 4096, "parallelism.dp": 4, "parallelism.pp": 2, "parallelism.tp": 2,
    "parallelism.pp_engine": "1f1b", "parallelism.tp_mode": "REDUCE_SCATTER", "tokens.sequence_length": 4096,
    "tokens.micro_batch_size": 1, "tokens.batch_accumulation_per_replica": 4, "tokens.train_steps": 10,
}
WRONG = {
    "nanotron.zero-stage": {"optimizer.zero_stage": 3},
    "nanotron.expert-parallel-size": {"parallelism.expert_parallel_size": 2},
    "nanotron.context-attention": {"parallelism.context_parallel_size": 2},
    "nanotron.context-init": {"parallelism.context_parallel_size": 2},
    "nanotron.reduce-scatter": {"parallelism.tp": 1},
    "nanotron.async-all-reduce": {
        "parallelism.tp_mode": "ALL_REDUCE", "parallelism.tp_linear_async_communication": True,
        "model.model_config.is_llama_config": False,
    },
    "nanotron.engine": {"parallelism.pp_engine": None},
    "nanotron.tied-count": {"model.model_config.tie_word_embeddings": True},
    "nanotron.demanded": {"tokens.train_steps": ...},
    "nanotron.positions": {"tokens.sequence_length": 8192},
}


@pytest.mark.parametrize("check", WRONG)
def test_a_check_fires(check):
    assert check not in found(read(written(RIGHT)))
    changed = {key: value for key, value in (RIGHT | WRONG[check]).items() if value is not ...}
    assert check in found(read(written(changed)))


def test_tensor_parallelism_needs_one_connection():
    layout = layout_of(case(), tensor_parallel=2)
    files = [file for file in NANOTRON.write(case(), layout) if not file.path.endswith(".md")]
    assert "nanotron.connections" not in found(NANOTRON.read(files))
    bare = [replace(file, text=file.text.replace("CUDA_DEVICE_MAX_CONNECTIONS=1", "OTHER=1")) for file in files]
    assert "nanotron.connections" in found(NANOTRON.read(bare))


def test_every_check_is_tested():
    assert {check.id for check in NANOTRON.checks} - set(WRONG) == {"nanotron.connections"}


def test_an_unknown_key_is_refused_in_its_words():
    severity, words = NANOTRON.unknown_keys("parallelism.sp")
    assert severity == "error" and words.format(key="sp") == 'can not match "sp" to any data class field'


# --- editing -------------------------------------------------------------------------------------------------------
def test_an_edit_is_one_line_of_diff():
    text = "# mine\n" + written(RIGHT).replace("micro_batch_size: 1\n", "micro_batch_size: 1   # small\n")
    there = case(devices=16, batch=16)
    reading = read(text)
    assert edit(NANOTRON, reading, there, reading.layout).files == ()
    other = replace(reading.layout, recompute=Full())
    edited = edit(NANOTRON, reading, there, other)
    assert [(each.key, each.after) for each in edited.edits] == [("parallelism.recompute_layer", True)]
    assert read(edited.files[0].text).layout == other
    assert sum(line.startswith(("+", "-")) and not line.startswith(("+++", "---")) for line in edited.diff.splitlines()) == 1


def test_the_readme_names_what_is_blank():
    layout = layout_of(case(), context_parallel=2, context_kind="all-gather", zero=0)
    files = {file.path: file.text for file in NANOTRON.write(case(), layout)}
    assert yaml.safe_load(files["config.yaml"])["checkpoints"]["resume_checkpoint_path"] == "INITIAL_CHECKPOINT"
    assert "checkpoints.resume_checkpoint_path" in files["README.md"]
    assert json.dumps(yaml.safe_load(files["config.yaml"]))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_type_of_gradients_is_written_and_read_back(dtype):
    own = case(gradient_dtype=dtype)
    text = config(own, layout_of(own)).text
    assert yaml.safe_load(text)["optimizer"]["accumulate_grad_in_fp32"] == (dtype == "fp32")
    assert read(text).said.gradient_dtype == dtype
