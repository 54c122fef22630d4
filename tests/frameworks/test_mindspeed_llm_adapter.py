"""MindSpeed-LLM: flags of Megatron-LM core 0.12.1, MindSpeed and MindSpeed-LLM."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from ascend_cases import case_of, flags_in, found, layout_of, read, refused, script, unread

from meshwright.domain.label import label, recompute_word
from meshwright.domain.layout import Full, Mixed, Overlap, Selective, ordered_parts
from meshwright.frameworks import framework
from meshwright.frameworks.ascend.recompute_lists import recompute_of_lists
from meshwright.frameworks.editing import edit
from meshwright.frameworks.mindspeed_llm import surface
from meshwright.frameworks.mindspeed_llm.layouts import (
    layout_text,
    padding,
    parse_counts,
    parse_layout_text,
    parse_rank_lists,
    without_noops,
)
from meshwright.testing.promises import read_back

NAME = "mindspeed-llm"


def test_what_is_written_is_read_back():
    assert not unread(NAME)


def flags(**facts):
    """Flags from a few facts: None is a switch."""
    return " ".join(f"--{key.replace('_', '-')}" + ("" if value is None else f" {value}") for key, value in facts.items())


BASE = {
    "num_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "seq_length": 4096,
    "micro_batch_size": 1,
    "global_batch_size": 128,
    "tensor_model_parallel_size": 8,
    "pipeline_model_parallel_size": 4,
    "sequence_parallel": None,
    "bf16": None,
    "use_distributed_optimizer": None,
    "untie_embeddings_and_output_weights": None,
}
ENV = (
    "export CUDA_DEVICE_MAX_CONNECTIONS=1\nexport PYTORCH_NPU_ALLOC_CONF=expandable_segments:True\nexport HCCL_CONNECT_TIMEOUT=1800"
)


def text(nodes: int = 16, environment: str = ENV, **facts: object) -> str:
    return script(
        flags(**{key: value for key, value in {**BASE, **facts}.items() if value is not False}),
        nodes=nodes,
        environment=environment,
    )


@pytest.mark.parametrize(
    ("facts", "nodes", "expected"),
    [  # examples/mcore: qwen25 72b (32k, 4k pack), deepseek3 671b, qwen3_moe 235b, glm45-air, gemma2 27b, llama2 13b pack, glm52
        (
            {
                "context_parallel_size": 4,
                "seq_length": 32768,
                "global_batch_size": 32,
                "num_layer_list": "17,20,22,21",
                "overlap_grad_reduce": None,
            },
            16,
            "tp8 cp4 pp4 dp1 mb1 sp zero1 layers=[17,20,22,21] overlap=grad,p2p",
        ),
        (
            {"num_layers_per_virtual_pipeline_stage": 4, "micro_batch_size": 2, "use_distributed_optimizer": False},
            4,
            "tp8 pp4 vp5 dp1 mb2 sp zero0 overlap=p2p",
        ),
        (
            {
                "num_layers": 64,
                "noop_layers": "61,62,63",
                "schedules_method": "dualpipev",
                "tensor_model_parallel_size": 4,
                "pipeline_model_parallel_size": 8,
                "expert_model_parallel_size": 32,
                "expert_tensor_parallel_size": 1,
                "num_experts": 256,
                "global_batch_size": 3840,
                "recompute_granularity": "full",
                "recompute_method": "uniform",
                "recompute_num_layers": 1,
                "swap_optimizer": None,
            },
            64,
            "tp4 pp8 vp2 ep32 dp16 mb1 sp zero1 recompute=full schedule=dualpipev "
            "layers=[4,4,4,4,4,4,4,4;1,4,4,4,4,4,4,4] offload=optimizer overlap=p2p",
        ),
        (
            {
                "num_layers": 96,
                "noop_layers": "94,95",
                "num_layers_per_virtual_pipeline_stage": 8,
                "tensor_model_parallel_size": 1,
                "sequence_parallel": False,
                "expert_model_parallel_size": 32,
                "num_experts": 128,
                "global_batch_size": 1024,
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 8,
            },
            32,
            "tp1 pp4 vp3 ep32 dp64 mb1 zero1 recompute=full layers=[8,8,8,8;8,8,8,8;8,8,8,6] overlap=p2p",
        ),
        (
            {
                "num_layers": 46,
                "num_layer_list": "11,12,12,11",
                "tensor_model_parallel_size": 1,
                "expert_model_parallel_size": 16,
                "num_experts": 128,
                "global_batch_size": 64,
                "sequence_parallel": False,
            },
            16,
            "tp1 pp4 ep16 dp32 mb1 zero1 overlap=p2p",
        ),
        (
            {
                "num_layers": 46,
                "num_layer_list": "20,26",
                "pipeline_model_parallel_size": 2,
                "global_batch_size": 64,
                "seq_length": 8192,
                "use_distributed_optimizer": False,
            },
            2,
            "tp8 pp2 dp1 mb1 sp zero0 layers=[20,26] overlap=p2p",
        ),
        (
            {
                "num_layers": 40,
                "tensor_model_parallel_size": 1,
                "sequence_parallel": False,
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 1,
            },
            1,
            "tp1 pp4 dp2 mb1 zero1 recompute=full:1 overlap=p2p",
        ),
        (
            {
                "num_layers": 78,
                "num_layer_list": "10,12,8,8,8,12,12,8",
                "tensor_model_parallel_size": 2,
                "pipeline_model_parallel_size": 8,
                "expert_model_parallel_size": 64,
                "expert_tensor_parallel_size": 1,
                "num_experts": 256,
                "global_batch_size": 2048,
            },
            64,
            "tp2 pp8 ep64 dp32 mb1 sp zero1 layers=[10,12,8,8,8,12,12,8] overlap=p2p",
        ),
        (
            {
                "num_layers": 64,
                "pipeline_model_parallel_size": 2,
                "num_layers_per_virtual_pipeline_stage": 8,
                "micro_batch_size": 2,
                "global_batch_size": 256,
                "overlap_grad_reduce": None,
                "overlap_param_gather": None,
                "no_overlap_p2p_communication": None,
            },
            2,
            "tp8 pp2 vp4 dp1 mb2 sp zero0 overlap=grad",
        ),
        (
            {
                "num_layers": 43,
                "tensor_model_parallel_size": 1,
                "sequence_parallel": False,
                "pipeline_model_parallel_size": 1,
                "context_parallel_size": 16,
                "context_parallel_algo": "kvallgather_cp_algo",
                "seq_length": 131072,
                "global_batch_size": 64,
            },
            32,
            "tp1 cp16 pp1 dp16 mb1 zero1 context=all-gather overlap=none",
        ),
    ],
)
def test_public_examples_are_read(facts, nodes, expected):
    reading = read(NAME, text(nodes=nodes, **facts))
    assert reading.layout is not None, [str(message) for message in reading.messages]
    assert label(reading.layout) == expected


@pytest.mark.parametrize(
    ("facts", "word", "remarks"),
    [
        ({"recompute_granularity": "selective"}, "selective:core_attn", 0),
        ({"recompute_activations": None}, "selective:core_attn", 0),
        ({"recompute_granularity": "selective", "recompute_modules": "mlp core_attn"}, "selective:core_attn,mlp", 0),
        ({"recompute_activation_function": None}, "selective:mlp_act", 0),
        ({"recompute_norm": None}, "selective:layernorm", 0),
        ({"recompute_norm": None, "recompute_granularity": "selective"}, "selective:core_attn,layernorm", 0),
        ({"recompute_norm": None, "recompute_norm_num_layers": 1, "recompute_granularity": "selective"}, "selective:core_attn", 1),
        ({"swap_attention": None}, "none", 1),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 2}, "full", 1),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 99}, "full", 0),
    ],
)
def test_recomputation_is_mapped_by_what_it_recomputes(facts, word, remarks):
    reading = read(NAME, text(**facts))
    assert reading.layout is not None and recompute_word(reading.layout.recompute) == word
    assert len(reading.messages) == remarks


@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-30b-a3b"])
@pytest.mark.parametrize(("full", "activation", "norm"), [(2, 3, 0), (0, 2, 1), (1, 0, 2), (2, 2, 2), (3, 1, 4)])
def test_numbers_of_layers_behind_the_full_ones_are_read_back(model, full, activation, norm):
    case = case_of(NAME, model)
    each = case.model.num_layers // 4
    act = ("mlp_act", "moe_act") if case.model.is_moe else ("mlp_act",)
    counts = {module: ((number,) * 4,) for modules, number in ((act, activation), (("layernorm",), norm)) for module in modules}
    recompute = recompute_of_lists(((full,) * 4,), counts, ((each,) * 4,), behind_full=True)
    layout = layout_of(case, tensor_parallel=2, pipeline_parallel=4, zero=1, recompute=recompute)
    assert isinstance(recompute, Mixed) and not framework(NAME).check(case, layout)
    flags = framework(NAME).decide(case, layout, framework(NAME).version)
    assert flags.get("--recompute-num-layers", 0) == full
    assert flags.get("--recompute-activation-function-num-layers", 0) == activation
    assert flags.get("--recompute-norm-num-layers", 0) == norm
    again = read_back(framework(NAME), case, framework(NAME).write(case, layout)).layout
    assert again is not None and again.recompute == recompute


@pytest.mark.parametrize(
    ("rule", "parts", "knobs"),
    [
        ("recompute-numbers", {"mlp_act": (2, 1, 2, 2)}, {}),
        ("recompute-numbers", {"mlp": (2, 2, 2, 2), "mlp_act": (1, 1, 1, 1)}, {}),
        ("recompute-numbers", {"full": (1, 0, 1, 1), "mlp_act": (1, 1, 1, 1)}, {}),
        ("recompute-uneven", {"mlp_act": (1, 1, 1, 1)}, {"stage_layers": ((7, 8, 8, 9),)}),
    ],
)
def test_what_no_numbers_say_is_refused(rule, parts, knobs):
    case = case_of(NAME, "llama3-8b")
    some = [(Full() if name == "full" else Selective(modules=(name,)), (counts,)) for name, counts in parts.items()]
    layout = layout_of(case, tensor_parallel=2, pipeline_parallel=4, recompute=Mixed(parts=ordered_parts(some)), **knobs)
    assert f"{NAME}.{rule}" in {message.id for message in framework(NAME).check(case, layout)}


def test_pipelines_as_texts():
    assert layout_text(((4, 5), (5, 4)), 1) == "Et*4|t*5|t*5|t*4mL"
    assert parse_layout_text("Et*4|t*5|t*5|t*4mL", 2) == ((4, 5), (5, 4))
    assert parse_layout_text("E|(t|)*3,m|m||L", 2) is not None and parse_layout_text("Et|x|tL", 3) is None
    assert parse_layout_text("(t|", 1) is None and parse_layout_text("t)*3", 1) is None and parse_layout_text("*3t", 1) is None
    assert parse_layout_text("(t*9999|)*9999", 1) is None
    assert parse_rank_lists("[[4,5],[5,4]]") == ((4, 5), (5, 4))
    assert parse_rank_lists("[[4,5]*2]") == ((4, 4), (5, 5)) and parse_rank_lists("[[2*3],[1,2,3]]") == ((2, 1), (2, 2), (2, 3))
    assert parse_rank_lists("[[2]*3,[1,2]]") is None and parse_rank_lists("[[1]*9999]*9999") is None
    assert parse_counts("4,5") == (4, 5) and parse_counts("4,x") is None


@pytest.mark.parametrize("folded", [False, True])
def test_padding_and_its_inverse(folded):
    split = ((4, 3, 4, 4), (4, 4, 2, 1))
    layers, noops = padding(split, folded=folded)
    assert layers == 32 and len(noops) == 32 - 26
    assert without_noops(((4,) * 4,) * 2, frozenset(noops), folded=folded) == split


GOOD = {"tensor_parallel": 2, "pipeline_parallel": 4, "zero": 1}


@pytest.mark.parametrize(
    ("knobs", "grad", "param"),
    [({}, True, True), ({"optimizer_shards": 1}, True, False), ({"schedule": "dualpipev", "virtual_stages": 2}, False, False)],
)
def test_overlap_is_said_where_the_framework_has_it(knobs, grad, param):
    """Unsharded states have nothing to gather, the folded pipeline overlaps no reduction: no default is refused."""
    case = case_of(NAME)
    layout = layout_of(case, **{key: value for key, value in GOOD.items() if key not in knobs})
    layout = replace(layout, **knobs)
    assert (layout.overlap.gradient_reduce, layout.overlap.parameter_gather) == (True, True)
    assert not refused(NAME, case, layout)
    said = framework(NAME).decide(case, layout, framework(NAME).version)
    assert ("--overlap-grad-reduce" in said, "--overlap-param-gather" in said) == (grad, param)
    overlap = framework(NAME).normal(case, layout).overlap
    assert (overlap.gradient_reduce, overlap.parameter_gather) == (grad, param)


@pytest.mark.parametrize(
    ("rule", "knobs", "model"),
    [
        ("knobs", {"gradient_shards": 8}, None),
        ("overlap-param", {"overlap": Overlap(gradient_reduce=False)}, None),
        ("overlap-tensor", {"tensor_parallel": 1, "sequence_parallel": False, "overlap": Overlap(tensor=True)}, None),
        ("sequence-without-tensor", {"tensor_parallel": 1, "sequence_parallel": True}, None),
        ("swap-optimizer", {"offload": ("optimizer",), "optimizer_shards": 1}, None),
        ("stage-empty", {"stage_layers": ((0, 18, 9, 9),)}, None),
        ("stage-sum", {"stage_layers": ((9, 9, 9, 8),)}, None),
        ("pipeline-interleaved", {"pipeline_parallel": 1, "virtual_stages": 2}, None),
        (
            "p2p",
            {"pipeline_parallel": 2, "virtual_stages": 2, "schedule": "interleaved", "overlap": Overlap(point_to_point=False)},
            None,
        ),
        ("dualpipev-context", {"schedule": "dualpipev", "virtual_stages": 2, "context_parallel": 2}, None),
        ("dualpipev-one-stage", {"schedule": "dualpipev", "virtual_stages": 2, "pipeline_parallel": 1}, None),
        ("dualpipev-few-layers", {"schedule": "dualpipev", "virtual_stages": 2, "pipeline_parallel": 32}, None),
        ("dualpipev-micro-batches", {"schedule": "dualpipev", "virtual_stages": 2, "num_microbatches": 4}, None),
        ("dualpipev-tied", {"schedule": "dualpipev", "virtual_stages": 2}, "qwen3-4b"),
        ("activation-function", {"recompute": Selective(modules=("mlp_act",))}, "qwen3-30b-a3b"),
        ("moe-act", {"recompute": Selective(modules=("moe_act",))}, None),
        ("mla-up-proj", {"recompute": Selective(modules=("mla_up_proj",))}, None),
        ("alibi-context", {"context_parallel": 2}, "bloom-176b"),
        ("model", {}, "gpt-oss-120b"),
    ],
)
def test_each_limit_fires_on_its_mutation(rule, knobs, model):
    base = case_of(NAME)
    assert not refused(NAME, base, layout_of(base, **GOOD))
    case = case_of(NAME, model, sequence=2048) if model else base
    layout = layout_of(case, **{key: value for key, value in GOOD.items() if key not in knobs})
    assert f"{NAME}.{rule}" in refused(NAME, case, replace(layout, **knobs))


@pytest.mark.parametrize(
    ("check", "facts"),
    [
        ("list-with-noops", {"num_layer_list": "20,20,20,20", "noop_layers": "79"}),
        ("list-length", {"num_layer_list": "40,40"}),
        ("list-pipeline", {"num_layer_list": "80", "pipeline_model_parallel_size": 1}),
        ("list-virtual", {"num_layer_list": "20,20,20,20", "num_layers_per_virtual_pipeline_stage": 5}),
        ("list-virtual", {"num_layer_list": "20,20,20,20", "schedules_method": "dualpipev"}),
        ("layer-sum", {"num_layer_list": "20,20,20,19"}),
        (
            "layer-sum",
            {"pipeline_num_transformer_layers": "[[10,10],[10,10],[10,10],[10,9]]", "num_virtual_stages_per_pipeline_rank": 2},
        ),
        ("list-exclusive", {"pipeline_num_transformer_layers": "[[20],[20],[20],[20]]", "noop_layers": "79"}),
        ("noop-range", {"noop_layers": "80"}),
        ("dualpipev", {"schedules_method": "dualpipev", "overlap_grad_reduce": None}),
        ("recompute-in-bubble", {"recompute_in_bubble": None}),
        ("recompute-in-advance", {"recompute_in_advance": None}),
        ("recompute-in-advance", {"recompute_in_advance": None, "num_layers_per_virtual_pipeline_stage": 5}),
        ("full-method", {"recompute_granularity": "full"}),
        ("selective-method", {"recompute_granularity": "selective", "recompute_method": "block"}),
        ("swap-optimizer", {"swap_optimizer": None, "use_distributed_optimizer": False}),
        ("overlap-optimizer", {"use_distributed_optimizer": False, "overlap_param_gather": None}),
        ("reuse-fp32", {"reuse_fp32_param": None, "swap_optimizer": None}),
        ("sequence-without-tensor", {"tensor_model_parallel_size": 1}),
        ("expert-tensor", {"num_experts": 8, "expert_model_parallel_size": 2}),
        ("whole-states", {"use_distributed_optimizer": False}),
    ],
)
def test_each_check_fires_on_its_mutation(check, facts):
    assert f"{NAME}.{check}" not in found(NAME, read(NAME, text()))
    assert f"{NAME}.{check}" in found(NAME, read(NAME, text(**facts)))


@pytest.mark.parametrize(
    ("check", "environment"),
    [
        ("connections", "export HCCL_CONNECT_TIMEOUT=1800"),
        ("connections", "export CUDA_DEVICE_MAX_CONNECTIONS=8"),
        ("vmm", "export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ("alloc-twice", ENV + "\nexport PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:512"),
        ("slow-variable", ENV + "\nexport ASCEND_LAUNCH_BLOCKING=1"),
        ("foreign-variable", ENV + "\nexport NCCL_DEBUG=INFO"),
        ("connect-timeout", ENV + "\nexport HCCL_CONNECT_TIMEOUT=120"),
    ],
)
def test_the_environment_is_checked(check, environment):
    assert f"{NAME}.{check}" not in found(NAME, read(NAME, text()))
    assert f"{NAME}.{check}" in found(NAME, read(NAME, text(environment=environment)))


def test_an_edit_turns_padding_into_a_list():
    """48 layers of which two do nothing: on another pipeline a list says the 46."""
    case = case_of(NAME, "llama3-70b", devices=128, batch=128)
    reading = read(NAME, text(num_layers=84, noop_layers="80,81,82,83", nodes=16, tensor_model_parallel_size=8))
    assert reading.layout is not None and reading.layout.stage_layers == ((21, 21, 21, 17),)
    other = replace(reading.layout, stage_layers=((19, 21, 21, 19),))
    edited = edit(framework(NAME), reading, case, other)
    assert {(change.key, change.after) for change in edited.edits} == {
        ("--num-layers", 80),
        ("--num-layer-list", "19,21,21,19"),
        ("--noop-layers", None),
    }
    (file,) = edited.files
    assert read(NAME, file.text).layout == framework(NAME).normal(case, other)
    assert "--noop-layers" not in file.text


LLM, MINDSPEED = os.environ.get("MESHWRIGHT_MINDSPEED_LLM_SOURCE", ""), os.environ.get("MESHWRIGHT_MINDSPEED_SOURCE", "")


@pytest.mark.skipif(not (LLM and MINDSPEED), reason="MESHWRIGHT_MINDSPEED_LLM_SOURCE and _MINDSPEED_SOURCE name no checkouts")
def test_the_flags_are_those_of_the_sources():
    wanted = set()
    for folder in (
        Path(MINDSPEED, "mindspeed/features_manager"),
        Path(LLM, "mindspeed_llm/features_manager"),
        Path(LLM, "mindspeed_llm/training"),
    ):
        for path in folder.rglob("*.py"):
            wanted |= flags_in(path)
    assert len(wanted) > 300 and not wanted - set(surface().keys)


@pytest.mark.skipif(not (LLM and MINDSPEED), reason="MESHWRIGHT_MINDSPEED_LLM_SOURCE and _MINDSPEED_SOURCE name no checkouts")
def test_quoted_texts_stand_in_the_sources():
    paths = [*Path(MINDSPEED, "mindspeed").rglob("*.py"), *Path(LLM, "mindspeed_llm").rglob("*.py")]
    whole = "".join(path.read_text(encoding="utf-8") for path in paths)
    for quoted in (
        "len(args.num_layer_list) != args.pipeline_model_parallel_size",
        "Dynamic pipeline model should work with pipeline parallel.",
        "num layer list would be disabled when noop-layer is activated.",
        "The dualpipev and overlap_grad_reduce are incompatible.",
        "The dualpipev requires untie_embeddings_and_output_weights.",
        "number of layers must be at least 2*pipeline_model_parallel_size in dualpipe",
        "num_micro_batch should more than pipeline_model_parallel_size * 2 - 1",
        "recompute_in_bubble only support pipelining with interleaving",
        "Swap-optimizer only support use_distributed_optimizer",
    ):
        assert quoted in whole, quoted
