"""MindSpeed-Core-MS: YAML of r0.1.0, flags of br_master and of the later releases."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ascend_cases import case_of, class_arguments, flags_in, found, function_of, layout_of, read, refused, script, unread

import meshwright as mw
from meshwright.domain.label import label, recompute_word
from meshwright.domain.layout import Full, Mixed, NoRecompute, Overlap, Selective, ordered_parts
from meshwright.errors import InputError
from meshwright.frameworks import framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.mindspeed_core_ms import flags, surface
from meshwright.frameworks.mindspeed_core_ms.writing import own_split

pytestmark = pytest.mark.usefixtures("alone", "unrivalled")

NAME = "mindspeed-core-ms"
RELEASES = (NAME, f"{NAME}@br_master", f"{NAME}@r0.2.0")
GUIDE: dict[str, object] = {
    "parallel_config.tensor_model_parallel_size": 2, "parallel_config.pipeline_model_parallel_size": 2,
    "parallel_config.num_layer_list": [2, 2], "parallel_config.recompute_config.recompute": [1, 1],
    "parallel_config.recompute_config.select_recompute": [1, 1], "parallel_config.recompute_config.select_comm_recompute": [1, 1],
}
"""Facts of the example in the tuning guide (seed 002)."""
MODEL: dict[str, object] = {
    "model_config.num_layers": 18, "model_config.hidden_size": 4096, "model_config.vocab_size": 32000,
    "model_config.num_attention_heads": 32, "model_config.seq_length": 4096, "model_config.position_embedding_type": "rope",
    "model_config.use_flash_attention": True,
}
BASE: dict[str, object] = {
    **MODEL, "parallel_config.pipeline_model_parallel_size": 4, "parallel_config.num_layer_list": [4, 5, 5, 4],
    "training_config.wrap_with_ddp": True, "training_config.use_distributed_optimizer": True,
    "dataset_config.batch_size": 2, "dataset_config.micro_batch_num": 32,
}


@pytest.mark.parametrize("name", RELEASES)
def test_what_is_written_is_read_back(name):
    assert not unread(name)


def test_the_guides_example_is_read():
    reading = read(NAME, GUIDE, devices=8)
    assert reading.layout is not None and reading.version == "r0.1.0"
    said = label(reading.layout, overlap=reading.layout.overlap)
    assert said == "tp2 pp2 dp2 mb1 zero0 recompute=full:[1,1]+selective:comm,core_attn:[1,1]"
    assert not reading.messages


@pytest.mark.parametrize(
    ("flash", "act", "modules", "remark"),
    [
        (False, "swiglu", "comm,core_attn", None),
        (True, "gelu", "comm,mlp_act", None),
        (True, "fast_gelu", "comm,mlp_act", None),
        (True, "swiglu", "comm", "swiglu is no Cell"),
    ],
)
def test_select_is_mapped_by_what_it_recomputes(flash, act, modules, remark):
    settings = {**GUIDE, "model_config.use_flash_attention": flash, "model_config.hidden_act": act}
    reading = read(NAME, settings, devices=8)
    assert reading.layout is not None
    assert recompute_word(reading.layout.recompute) == f"full:[1,1]+selective:{modules}:[1,1]"
    assert [message for message in reading.messages if not remark or remark not in str(message)] == []
    assert len(reading.messages) == bool(remark)


@pytest.mark.parametrize(
    ("full", "select", "comm", "word"),
    [
        ([2, 1, 0, 0], [1, 2, 3, 0], [1, 3, 1, 0],
         "full:[2,1,0,0]+selective:comm,mlp_act:[1,2,1,0]+selective:comm:[0,1,0,0]+selective:mlp_act:[0,0,2,0]"),
        (False, [4, 5, 5, 4], False, "selective:mlp_act"),
        (False, False, [4, 5, 5, 4], "selective:comm"),
        (False, [4, 5, 5, 4], [4, 5, 5, 4], "selective:comm,mlp_act"),
        (False, [0, 0, 0, 0], [0, 0, 0, 0], "none"),
    ],
)
def test_lists_stand_behind_the_full_layers(full, select, comm, word):
    lists = {"recompute": full, "select_recompute": select, "select_comm_recompute": comm}
    settings = {f"parallel_config.recompute_config.{name}": value for name, value in lists.items()}
    reading = read(NAME, {**BASE, "model_config.hidden_act": "gelu", **settings}, devices=64)
    assert reading.layout is not None and recompute_word(reading.layout.recompute) == word


@pytest.mark.parametrize(
    ("settings", "layers", "recompute"),
    [
        ({"parallel_config.num_layer_list": [4, 5, 5, 4]}, None, "none"),  # as even as possible
        ({"parallel_config.num_layer_list": "[4, 5, 4, 5]"}, ((4, 5, 4, 5),), "none"),
        ({"parallel_config.num_layer_list": None}, ((4, 5, 5, 4),), "own"),
        ({"parallel_config.recompute_config.recompute": [4, 5, 5, 4]}, None, "full"),
        ({"parallel_config.recompute_config.recompute": [2, 2, 2, 2]}, None, "full:2"),
        ({"parallel_config.recompute_config.recompute": [3, 2, 1, 0]}, None, "full:[3,2,1,0]"),
        ({"parallel_config.recompute": "[3, 2, 1, 0]"}, None, "full:[3,2,1,0]"),
        ({"train_config.recompute_config.recompute": "[3, 2, 1, 0]"}, None, "full:[3,2,1,0]"),
        (
            {
                "model_config.recompute_granularity": "full",
                "model_config.recompute_method": "block",
                "model_config.recompute_num_layers": 2,
            },
            None,
            "full:2",
        ),
        (
            {
                "parallel_config.virtual_pipeline_model_parallel_size": 2,
                "parallel_config.num_layer_list": [[2, 2, 2, 2], [2, 3, 3, 2]],
                "parallel_config.recompute_config.recompute": [[1, 1, 1, 1], [0, 0, 0, 0]],
            },
            ((2, 2, 2, 2), (2, 3, 3, 2)),
            "full:[1,1,1,1;0,0,0,0]",
        ),
    ],
)
def test_lists_by_stage(settings, layers, recompute):
    reading = read(NAME, {**BASE, **settings}, devices=64)
    assert reading.layout is not None, [str(message) for message in reading.messages]
    if recompute == "own":  # 18 on 4 stages: the remainder goes backwards from the last but one
        assert own_split(18, 4, 1) == ((4, 5, 5, 4),)
        return
    assert reading.layout.stage_layers == layers
    assert recompute_word(reading.layout.recompute) == recompute


BR_YAML: dict[str, object] = {
    "model_parallel.pipeline_model_parallel_size": 4, "model_parallel.virtual_pipeline_model_parallel_size": 2,
    "language_model.num_layers": 16, "language_model.use_flash_attn": True, "micro_batch_size": 1, "global_batch_size": 64,
}


@pytest.mark.parametrize(
    ("settings", "word", "remarks"),
    [
        ({"recompute": [[1, 0], [0, 0], [0, 0], [0, 2]], "select_comm_recompute": [[1, 2], [0, 0], [0, 0], [0, 0]]},
         "full:[1,0,0,0;0,0,0,2]+selective:comm:[1,0,0,0;2,0,0,0]", 0),
        ({"select_recompute": [[2, 2], [2, 2], [2, 2], [2, 2]]}, "selective:mlp_act", 0),
        ({"recompute": [[1, 1], [1, 1], [0, 0], [0, 0]]}, "full:[1,1,0,0;1,1,0,0]", 0),
    ],
)
def test_lists_of_br_master_are_by_stage_and_chunk(settings, word, remarks):
    lists = {f"language_model.recompute_config.{name}": value for name, value in settings.items()}
    reading = read(f"{NAME}@br_master", {**BR_YAML, **lists}, devices=64)
    assert reading.layout is not None, [str(message) for message in reading.messages]
    assert recompute_word(reading.layout.recompute) == word
    assert len([message for message in reading.messages if message.id == "import.select"]) == remarks


@pytest.mark.parametrize(
    ("flags", "word", "remarks"),
    [
        ("--recompute-granularity selective", "selective:core_attn", 0),
        ("--recompute-activations", "selective:core_attn", 0),
        ("--recompute-granularity selective --use-flash-attn", "selective:mlp_act", 0),
        ("--recompute-granularity selective --use-flash-attn --swiglu", "none", 1),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full", 0),
    ],
)
def test_granularity_of_br_master_is_mapped_by_what_it_recomputes(flags, word, remarks):
    text = f"--num-layers 16 --hidden-size 512 --tensor-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 8 {flags}"
    reading = read(f"{NAME}@br_master", script(text))
    assert reading.layout is not None and recompute_word(reading.layout.recompute) == word
    assert len([message for message in reading.messages if message.id == "import.select"]) == remarks


def test_the_wrapper_of_the_guides_model_is_read():
    """``pretrain_gpt.md``: lists of the wrapper are [stage][virtual stage]."""
    prefix = "accelerate_config.parallelization"
    reading = read(NAME, {
        f"{prefix}.tensor_parallel": 8, f"{prefix}.pipeline.num_stages": 4, f"{prefix}.pipeline.micro_batch_size": 2,
        f"{prefix}.pipeline.virtual_pipeline_model_parallel_size": 4, f"{prefix}.use_sequence_parallel": True,
        f"{prefix}.use_distributed_optimizer": True, "train_config.ms_training_config.wrap_with_ddp": True,
        f"{prefix}.pipeline.layer_list": "[[4,4,4,4],[4,4,4,4],[4,4,4,4],[4,4,4,2]]", "dataset_config.micro_batch_num": 32,
    }, devices=128)
    layout = reading.layout
    assert layout is not None
    assert (layout.tensor_parallel, layout.pipeline_parallel, layout.virtual_stages, layout.data_parallel) == (8, 4, 4, 4)
    assert layout.stage_layers == ((4, 4, 4, 4), (4, 4, 4, 4), (4, 4, 4, 4), (4, 4, 4, 2))
    assert layout.zero_stage == 1 and layout.sequence_parallel and reading.said.global_batch_sequences == 256


@pytest.mark.parametrize(
    ("settings", "stage"),
    [
        ({}, 1), ({"training_config.use_distributed_optimizer": False}, 0), ({"training_config.wrap_with_ddp": False}, 0),
        ({"training_config.wrap_with_ddp": False, "parallel_config.zero_level": "z2"}, 2),
        ({"parallel_config.zero_level": "z3"}, 3),
    ],
)
def test_zero_follows_the_wrapper(settings, stage):
    reading = read(NAME, {**BASE, **settings}, devices=64)
    assert reading.layout is not None and reading.layout.zero_stage == stage


def test_zero_shard_size_is_an_error_where_nothing_reads_it():
    reading = read(NAME, {**BASE, "parallel_config.zero_shard_size": 4}, devices=64)
    assert reading.layout is not None and reading.layout.optimizer_shards == 16
    assert f"{NAME}.dead-key" in found(NAME, reading)
    assert f"{NAME}.dead-key" not in found(NAME, read(NAME, BASE, devices=64))


BR = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--micro-batch-size 1 --global-batch-size 64 --bf16 --distributed-backend hccl "
    "--use-distributed-optimizer "
)


@pytest.mark.parametrize(("size", "shards", "wrong"), [(8, 8, False), (4, 4, False), (3, 16, True), (32, 16, True), (1, 16, True)])
def test_zero_shard_size_of_br_master(size, shards, wrong):
    reading = read(NAME, script(BR + f"--tensor-model-parallel-size 4 --zero_shard_size {size}", nodes=8), devices=64)
    assert reading.version == "br_master"
    assert reading.layout is not None and reading.layout.optimizer_shards == shards
    assert (f"{NAME}.shard-size" in found(NAME, reading)) == wrong


def test_lists_turn_between_the_branches():
    reading = read(
        NAME,
        script(BR + "--pipeline-model-parallel-size 2 --virtual-pipeline-model-parallel-size 2 --num-layer-list '[[7,8],[8,9]]'"),
    )
    assert reading.layout is not None and reading.layout.stage_layers == ((7, 8), (8, 9))
    square = read(NAME, {**MODEL, "model_config.num_layers": 32, "parallel_config.pipeline_model_parallel_size": 2,
                         "parallel_config.virtual_pipeline_model_parallel_size": 2, "dataset_config.micro_batch_num": 8,
                         "parallel_config.num_layer_list": [[7, 8], [8, 9]]}, devices=8)
    assert square.layout is not None and square.layout.stage_layers == ((7, 8), (8, 9))
    transposed = read(NAME, {**MODEL, "model_config.num_layers": 32, "parallel_config.pipeline_model_parallel_size": 2,
                             "parallel_config.virtual_pipeline_model_parallel_size": 2, "dataset_config.micro_batch_num": 8,
                             "parallel_config.num_layer_list": [[7, 9], [8, 8]]}, devices=8)
    assert f"{NAME}.square-list" in found(NAME, transposed) and f"{NAME}.square-list" not in found(NAME, square)


GOOD = {"tensor_parallel": 2, "pipeline_parallel": 4, "zero": 1}


def mixture(**counts: list[int]) -> Mixed:
    """Layers of four stages by the module that they recompute, or in full."""
    parts = [(Full() if name == "full" else Selective(modules=(name,)), (tuple(each),)) for name, each in counts.items()]
    return Mixed(parts=ordered_parts(parts))


@pytest.mark.parametrize(
    ("rule", "knobs", "model"),
    [
        ("knobs", {"expert_tensor_parallel": 2}, None),
        ("knobs", {"recompute": Selective(modules=("moe",))}, None),
        ("select", {"recompute": Selective()}, None),
        ("select", {"recompute": Selective(modules=("mlp_act",))}, None),
        ("recompute-shape", {"recompute": mixture(comm=[1, 1], full=[1, 1])}, None),
        ("recompute-sum", {"recompute": mixture(comm=[7, 0, 0, 0], full=[2, 0, 0, 0])}, None),
        ("recompute-lists", {"recompute": mixture(comm=[1, 0, 0, 0], core_attn=[1, 0, 0, 0])}, None),
        ("knobs", {"offload": ("optimizer",)}, None),
        ("knobs", {"optimizer_shards": 2}, None),
        ("stage-sum", {"stage_layers": ((9, 9, 9, 8),)}, None),
        ("stage-shape", {"stage_layers": ((18, 18),)}, None),
        ("stage-empty", {"stage_layers": ((0, 18, 9, 9),)}, None),
        ("recompute-shape", {"recompute": Full(layers=((1, 1),))}, None),
        ("recompute-sum", {"recompute": Full(layers=((10, 1, 1, 1),))}, None),
        ("recompute-negative", {"recompute": Full(layers=((-1, 1, 1, 1),))}, None),
        ("zero-parallel", {"gradient_shards": 8}, None),
        ("zero3-pipeline", {"gradient_shards": 8, "parameter_shards": 8}, None),
        ("sequence-without-tensor", {"tensor_parallel": 1, "sequence_parallel": True}, None),
        ("interleaved", {"virtual_stages": 2, "schedule": "interleaved", "num_microbatches": 30}, None),
        ("heads", {"tensor_parallel": 3}, None),
        ("batch", {"num_microbatches": 7}, None),
        ("world", {"data_parallel": 4}, None),
        ("model", {}, "deepseek-v3"),
        ("expert-data", {"expert_parallel": 16}, "mixtral-8x7b"),
        ("expert-context", {"expert_parallel": 2, "context_parallel": 2}, "mixtral-8x7b"),
        ("schedule", {"pipeline_parallel": 1, "virtual_stages": 2}, None),
    ],
)
def test_each_limit_fires_on_its_mutation(rule, knobs, model):
    good = case_of(NAME, "llama3-8b" if model is None else model)
    base = case_of(NAME, "llama3-8b")
    assert not refused(NAME, base, layout_of(base, **GOOD))
    kept = {key: value for key, value in GOOD.items() if key not in knobs}
    assert f"{NAME}.{rule}" in refused(NAME, good, replace(layout_of(good, **kept), **knobs))


def test_partial_sharding_is_for_br_master_only():
    case = case_of(NAME, "llama3-8b")
    layout = replace(layout_of(case, **GOOD), optimizer_shards=4)
    assert refused(NAME, case, layout) and not refused(f"{NAME}@br_master", case, layout)
    assert f"{NAME}.shard-context" in refused(
        f"{NAME}@br_master", case, replace(layout_of(case, context_parallel=2, zero=1), optimizer_shards=4)
    )


def test_the_wording_is_the_frameworks():
    case = case_of(NAME, "llama3-8b")
    layout = replace(layout_of(case, **GOOD), recompute=Full(layers=((10, 1, 1, 1),)))
    (message,) = framework(NAME).check(case, layout)
    assert str(message) == (
        "layout: Recompute layers must less or equal num layers, but got select_comm_recompute_layers 0 + full_recompute_layers 10 "
        "> num_layers 8."
    )
    with pytest.raises(InputError, match="full_recompute_layers 10"):
        framework(NAME).write(case, layout)
    several = replace(layout, recompute=mixture(comm=[7, 0, 0, 0], full=[2, 0, 0, 0]))
    (message,) = framework(NAME).check(case, several)
    assert "got select_comm_recompute_layers 7 + full_recompute_layers 2 > num_layers 8." in str(message)


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        ("dead-key", {"parallel_config.num_layers_per_virtual_pipeline_stage": 2}),
        ("prose-list", {"parallel_config.full_recompute_list": [1, 1, 1, 1]}),
        ("prose-list", {"parallel_config.recompute_config.full_recompute_list": [1, 1, 1, 1]}),
        ("list-text", {"parallel_config.recompute": [1, 1, 1, 1]}),
        ("list-kind", {"parallel_config.recompute_config.recompute": True}),
        ("list-shape", {"parallel_config.recompute_config.recompute": [1, 1]}),
        (
            "list-sum",
            {
                "parallel_config.recompute_config.recompute": [3, 3, 3, 3],
                "parallel_config.recompute_config.select_recompute": [2, 2, 2, 2],
            },
        ),
        (
            "list-sum",
            {
                "parallel_config.recompute_config.recompute": [3, 3, 3, 3],
                "parallel_config.recompute_config.select_comm_recompute": [2, 2, 2, 2],
            },
        ),
        ("layer-sum", {"parallel_config.num_layer_list": [4, 5, 5, 3]}),
        ("unwrapped-optimizer", {"training_config.wrap_with_ddp": False}),
        ("bucket", {"training_config.wrap_with_ddp": False, "training_config.bucket_size": 100}),
        ("parallel-overlap", {"parallel_config.overlap_grad_reduce": True}),
        ("positions", {"model_config.position_embedding_type": "absolute"}),
        ("residual", {"model_config.fp32_residual_connection": True}),
        ("deterministic", {"parallel_config.deterministic_mode": True}),
        ("whole-states", {"training_config.use_distributed_optimizer": False}),
        ("select-mlp", {"parallel_config.recompute_config.select_recompute": [1, 1, 1, 1]}),
    ],
)
def test_each_check_fires_on_its_mutation(check, bad):
    assert f"{NAME}.{check}" not in found(NAME, read(NAME, BASE, devices=64))
    assert f"{NAME}.{check}" in found(NAME, read(NAME, {**BASE, **bad}, devices=64))


def test_select_and_communication_may_overlap():
    both = {
        "parallel_config.recompute_config.select_recompute": [4, 5, 5, 4],
        "parallel_config.recompute_config.select_comm_recompute": [4, 5, 5, 4],
    }
    assert f"{NAME}.list-sum" not in found(NAME, read(NAME, {**BASE, **both}, devices=64))


GOOD_SHELL = (
    "export MS_ALLOC_CONF=enable_vmm:True\nexport HCCL_CONNECT_TIMEOUT=7200\nmsrun --worker_num 64 "
    "--local_worker_num 8 train.py --config_path c.yaml\n"
)


@pytest.mark.parametrize(
    ("check", "line"),
    [
        ("alloc-twice", "export MS_ALLOC_CONF=memory_tracker:False"),
        ("slow-variable", "export HCCL_DETERMINISTIC=true"),
        ("slow-variable", "export MS_ALLOC_CONF=enable_vmm:True,memory_tracker:True"),
        ("simulation", "export MS_SIMULATION_LEVEL=1"),
        ("connect-timeout", "export HCCL_CONNECT_TIMEOUT=120"),
        ("foreign-variable", "export NCCL_DEBUG=INFO"),
        ("vmm", "export MS_ALLOC_CONF=memory_pool:True"),
    ],
)
def test_the_environment_is_checked(check, line):
    assert not {f"{NAME}.{check}"} & found(NAME, read(NAME, BASE, devices=64, shell=GOOD_SHELL))
    shell = GOOD_SHELL.replace("msrun", f"{line}\nmsrun")
    assert f"{NAME}.{check}" in found(NAME, read(NAME, BASE, devices=64, shell=shell))


def test_one_export_that_keeps_the_first_value_is_no_fault():
    shell = GOOD_SHELL.replace("msrun", "export MS_ALLOC_CONF=$MS_ALLOC_CONF,memory_recycle:False\nmsrun")
    assert f"{NAME}.alloc-twice" not in found(NAME, read(NAME, BASE, devices=64, shell=shell))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [  # examples of br_master: legacy/llama2 7b and 13b, legacy/qwen15 1.8b and 14b, mcore/qwen2 7b
        (
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --sequence-parallel "
            "--num-layers 32 --micro-batch-size 1 --global-batch-size 256 --use-distributed-optimizer "
            "--overlap-grad-reduce",
            "tp1 pp2 dp4 mb1 zero1 overlap=grad,p2p",
        ),
        (
            "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --sequence-parallel "
            "--num-layers 40 --micro-batch-size 4 --global-batch-size 512",
            "tp8 pp1 dp1 mb4 sp zero0 overlap=none",
        ),
        (
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-layers 24 "
            "--micro-batch-size 1 --global-batch-size 64 --use-distributed-optimizer --overlap-grad-reduce",
            "tp1 pp1 dp8 mb1 zero1 overlap=grad",
        ),
        (
            "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel "
            "--num-layers 40 --micro-batch-size 1 --global-batch-size 256",
            "tp4 pp2 dp1 mb1 sp zero0 overlap=p2p",
        ),
        (
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --num-layers 28 "
            "--micro-batch-size 1 --global-batch-size 256 --use-distributed-optimizer --overlap-grad-reduce",
            "tp1 pp2 dp4 mb1 zero1 overlap=grad,p2p",
        ),
    ],
)
def test_public_examples_are_read(facts, expected):
    reading = read(
        NAME, f"msrun --worker_num 8 --local_worker_num 8 pretrain_gpt.py {facts} --hidden-size 4096 --use-flash-attn "
        "--distributed-backend hccl\n"
    )
    assert reading.version == "br_master" and reading.layout is not None
    assert label(reading.layout) == expected


@pytest.mark.parametrize(
    ("version", "release"),
    [("r0.1.0", "r0.1.0"), ("r0.2.0", "r0.2.0"), ("r0.4.0", "r0.2.0"), ("master", "r0.2.0"), ("br_master", "br_master")],
)
def test_versions(version, release):
    assert framework(f"{NAME}@{version}").version == release


def test_an_edit_drops_lists_of_another_pipeline():
    """The select list is of four stages: with two it would be refused."""
    settings = {**BASE, "model_config.num_layers": 32, "parallel_config.num_layer_list": None,
                "parallel_config.recompute_config.select_recompute": [1, 1, 1, 1]}
    case = case_of(NAME, "llama3-8b", devices=64, batch=1024)
    reading = read(NAME, settings, devices=64)
    assert reading.layout is not None and reading.layout.data_parallel == 16
    other = replace(
        reading.layout, pipeline_parallel=2, data_parallel=32, num_microbatches=16, optimizer_shards=32, recompute=NoRecompute()
    )
    edited = edit(framework(NAME), reading, case, other)
    assert {change.key for change in edited.edits} == {
        "parallel_config.pipeline_model_parallel_size", "dataset_config.micro_batch_num", "parallel_config.num_layer_list",
        "parallel_config.recompute_config.select_recompute",
    } - ({"parallel_config.num_layer_list"} if own_split(32, 2, 1) == ((16, 16),) else set())
    assert edited.meaning.resume == "convert"


def test_overlap_needs_the_wrapper():
    case = case_of(NAME, "llama3-8b")
    layout = replace(layout_of(case, zero=2), overlap=Overlap(tensor=False, expert=False))
    assert not framework(NAME).normal(case, layout).overlap.gradient_reduce


SOURCE = os.environ.get("MESHWRIGHT_MINDSPEED_CORE_MS_SOURCE", "")
"""A checkout of r0.1.0; ``MESHWRIGHT_MINDSPEED_CORE_MS_BR_SOURCE``: one of br_master."""
BR_SOURCE = os.environ.get("MESHWRIGHT_MINDSPEED_CORE_MS_BR_SOURCE", "")
SECTIONS = {
    "ModelParallelConfig": "parallel_config",
    "DatasetConfig": "dataset_config",
    "LoraConfig": "lora_config",
    "MoEConfig": "moe_config",
    "TrainingConfig": "training_config",
    "TransformerConfig": "model_config",
    "OptimizerConfig": "optimizer_config",
}


@pytest.mark.skipif(not SOURCE, reason="MESHWRIGHT_MINDSPEED_CORE_MS_SOURCE names no checkout")
def test_the_surface_is_that_of_the_source():
    keys = surface().at("r0.1.0")
    for name, section in SECTIONS.items():
        wanted = class_arguments(Path(SOURCE, "mindspeed_ms/core/config.py"), name)
        for argument in wanted - {"parallel_config", "dataset_config", "lora_config", "training_config", "moe_config"}:
            assert f"{section}.{argument}" in keys


@pytest.mark.skipif(not SOURCE, reason="MESHWRIGHT_MINDSPEED_CORE_MS_SOURCE names no checkout")
def test_the_split_is_that_of_the_source():
    divide = function_of(Path(SOURCE, "mindspeed_ms/legacy/model/transformer.py"), "divide_layers", {})
    for layers in range(4, 40):
        for stages in (2, 3, 4):
            for chunks in (1, 2):
                if layers < stages * chunks:
                    continue
                rows = [divide(layers, chunks, chunk)[0] for chunk in range(chunks)]
                assert own_split(layers, stages, chunks) == tuple(
                    tuple(divide(row, stages, at)[0] for at in range(stages)) for row in rows
                )


@pytest.mark.skipif(not SOURCE, reason="MESHWRIGHT_MINDSPEED_CORE_MS_SOURCE names no checkout")
def test_quoted_texts_stand_in_the_source():
    text = "".join(path.read_text(encoding="utf-8") for path in Path(SOURCE, "mindspeed_ms").rglob("*.py"))
    for fragment in (
        "is not supported in recompute_config.",
        "should be list in recompute_config.",
        "recompute_num_array has element < 0",
        "must equal to ",
        "Recompute layers must less or equal num layers, but got ",
        "All elements of num_layer_list should be larger than 0, ",
        "For zero3 with DDP, use_distributed_optimizer must be on. Please check the configuration.",
        "DDP ZeRO3 is not compatible with pipeline parallel. ",
        "combination of expert model prallellism and context parallelism is not supported",
        "bucket_size can only be set when `wrap_with_ddp=True`.",
        "pipeline-model-parallel size should be greater than 1 with interleaved schedule",
        "is not used in initialize_model_parallel.",
    ):
        assert fragment in text, fragment


@pytest.mark.skipif(not BR_SOURCE, reason="MESHWRIGHT_MINDSPEED_CORE_MS_BR_SOURCE names no checkout")
def test_the_flags_are_those_of_br_master():
    own = {key for key in surface().at("br_master") if key.startswith("--")}
    assert own == flags_in(Path(BR_SOURCE, "mindspeed_ms/training/arguments.py"))
    assert flags.own_split(30, 4, 1) == ((8, 8, 8, 6),)


def checked(tmp_path, **changes):
    """What ``check`` says of the YAML with other keys, for Llama 2 13B cut to its layers on four nodes."""
    nested: dict[str, dict[str, object]] = {}
    for key, value in {**BASE, **changes}.items():
        section, _, name = key.partition(".")
        inner, dot, last = name.partition(".")
        nested.setdefault(section, {})
        if dot:
            nested[section].setdefault(inner, {})[last] = value
        else:
            nested[section][name] = value
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(nested))
    request = mw.CheckRequest(
        files=[str(path)], from_=NAME, model="llama2-13b", layers=18, device="ascend-910b", nodes=4, global_batch=512, sequence=4096
    )
    return {each["id"]: each for each in mw.check(request).to_json()["findings"]}


SELECT = {"parallel_config.recompute_config.select_recompute": [4, 5, 5, 4]}
COMM = {"parallel_config.recompute_config.select_comm_recompute": [4, 5, 5, 4]}


@pytest.mark.parametrize("flash", [False, True])
def test_select_without_flash_attention_recomputes_attention_and_is_no_error(tmp_path, flash):
    """Files that switch flash attention off are judged as they run: a score matrix, which select_recompute drops."""
    found = checked(tmp_path, **SELECT, **{"model_config.use_flash_attention": flash, "model_config.hidden_act": "swiglu"})
    assert not {id for id, each in found.items() if "select" in id and each["severity"] == "error"}
    assert ("import.select" in found) == flash


@pytest.mark.parametrize(("changes", "idle"), [
    ({}, True), ({"parallel_config.sequence_parallel": False, "parallel_config.tensor_model_parallel_size": 2}, True),
    ({"parallel_config.sequence_parallel": True}, True),
    ({"parallel_config.sequence_parallel": True, "parallel_config.tensor_model_parallel_size": 2}, False),
])
def test_communication_that_nothing_gathers_is_not_recomputed(tmp_path, changes, idle):
    found = checked(tmp_path, **COMM, **changes)
    assert (f"{NAME}.select-comm" in found) == idle
    assert not idle or found[f"{NAME}.select-comm"]["severity"] == "warning"
