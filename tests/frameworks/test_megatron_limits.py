from __future__ import annotations

from dataclasses import replace

import pytest
from megatron_cases import case_of, layout_of

from meshwright.catalog import load_model
from meshwright.domain.launch import parse_launch
from meshwright.domain.launching import launched
from meshwright.domain.layout import Full, Overlap, Selective
from meshwright.domain.model import NO_BLOCK
from meshwright.domain.training import Lora, Optimizer
from meshwright.errors import InputError
from meshwright.frameworks import framework
from meshwright.frameworks.megatron.version_limits import OLD as OLD_RULES

MEGATRON = framework("megatron")
DENSE, MOE, OSS, MLA = "llama3-8b", "qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3"
HYBRID, NANO = "nemotron-h-8b", "nemotron-3-nano-30b-a3b"
SP = {"sequence_parallel": True}

BROKEN = {
    "model": (DENSE, {}, {"model": "bloom-176b"}),
    "task": (DENSE, {}, {"lora": True}),
    "device": (DENSE, {}, {"device": "ascend-910b"}),
    "precision": (DENSE, {}, {"precision": "mystery"}),
    "optimizer": (DENSE, {}, {"optimizer": "adafactor"}),
    "schedule": (DENSE, {"pipeline_parallel": 2, "schedule": "zb1p"}, {}),
    "shards": (DENSE, {"zero": 3, "gradient_shards": 8}, {}),
    "microbatches": (DENSE, {"num_microbatches": 3}, {}),
    "experts": (DENSE, {"expert_parallel": 2}, {}),
    "expert-count": (MOE, {"expert_parallel": 3}, {"devices": 48, "batch": 240}),
    "expert-grid": (MOE, {"expert_parallel": 64, "pipeline_parallel": 2}, {}),
    "heads": (DENSE, {"tensor_parallel": 3, **SP}, {"devices": 48, "batch": 240, "sequence": 3072}),
    "query-groups": (DENSE, {"tensor_parallel": 3, **SP}, {"devices": 48, "batch": 240, "sequence": 3072}),
    "delta-context": ("qwen3-next-80b-a3b", {"context_parallel": 2}, {}),
    "delta-heads": ("qwen3-next-80b-a3b", {"tensor_parallel": 3, **SP}, {"devices": 48, "batch": 240, "sequence": 3072}),
    "width": (DENSE, {"tensor_parallel": 3, **SP}, {"devices": 48, "batch": 240, "sequence": 3072}),
    "expert-bias": (OSS, {"tensor_parallel": 2, "expert_tensor_parallel": 2, **SP}, {}),
    "batch": (DENSE, {"microbatch_sequences": 8}, {"batch": 128}),
    "sequence": (DENSE, {"context_parallel": 2}, {"sequence": 2050}),
    "sequence-parallel": (DENSE, {"tensor_parallel": 4, **SP}, {"sequence": 2050}),
    "positions": ("gpt3-175b", {}, {"sequence": 4096}),
    "moe-sequence-parallel": (MOE, {"tensor_parallel": 2}, {}),
    "grouped-gemm": (MOE, {}, {"device": "v100-32g"}),
    "context-kind": (DENSE, {"context_parallel": 2, "context_kind": "star"}, {}),
    "context-heads": (DENSE, {"context_parallel": 16, "context_kind": "ulysses"}, {}),
    "context-hybrid": (DENSE, {"context_parallel": 2, "context_kind": "hybrid"}, {}),
    "context-window": (OSS, {"context_parallel": 2}, {}),
    "mamba-heads": (NANO, {"context_parallel": 3}, {"devices": 48, "batch": 240, "sequence": 3072}),
    "mamba-groups": ("granite4-h-tiny", {"tensor_parallel": 2, **SP}, {}),
    "mamba-context": ("nemotron-nano-12b-v2", {"tensor_parallel": 2, "context_parallel": 6, **SP},
                      {"devices": 48, "batch": 240, "sequence": 3072}),
    "mamba-fp8": (NANO, {}, {"precision_name": "fp8-cs", "mamba_heads": 24}),
    "hybrid-block": ("granite4-h-tiny", {"recompute": Full(layers=3)}, {"mixer_alone": True}),
    "hybrid-expert-overlap": (NANO, {"expert_parallel": 8, "overlap": Overlap(expert=True)}, {}),
    "stage-layers": (DENSE, {"pipeline_parallel": 2, "stage_layers": ((16, 15),)}, {}),
    "interleaved": (DENSE, {"virtual_stages": 2}, {}),
    "interleaved-p2p": (DENSE, {"pipeline_parallel": 2, "virtual_stages": 2, "overlap": Overlap(point_to_point=False)}, {}),
    "interleaved-batch": (DENSE, {"pipeline_parallel": 8, "virtual_stages": 2}, {"batch": 96}),
    "recompute-modules": (DENSE, {"recompute": Selective(modules=("attention",))}, {}),
    "recompute-mla": (DENSE, {"recompute": Selective(modules=("mla_up_proj",))}, {}),
    "recompute-experts": (DENSE, {"recompute": Selective(modules=("moe_act",))}, {}),
    "recompute-delayed": (DENSE, {"recompute": Selective(modules=("layernorm",))}, {"precision_name": "fp8-delayed"}),
    "fsdp-pipeline": (DENSE, {"zero": 2, "pipeline_parallel": 2}, {}),
    "expert-shards": (MOE, {"expert_parallel": 32, "optimizer_shards": 16}, {}),
    "parameter-overlap": (DENSE, {"overlap": Overlap(gradient_reduce=False)}, {}),
    "tensor-overlap": (DENSE, {"tensor_parallel": 2, "overlap": Overlap(tensor=True)}, {}),
    "expert-overlap-recompute": (MOE, {"expert_parallel": 8, "overlap": Overlap(expert=True), "recompute": Full()}, {}),
    "expert-overlap-moe": (
        MOE, {"expert_parallel": 8, "overlap": Overlap(expert=True), "recompute": Selective(modules=("moe",))}, {},
    ),
    "expert-overlap-pipeline": (MOE, {"expert_parallel": 8, "pipeline_parallel": 2, "overlap": Overlap(expert=True)}, {}),
    "expert-overlap-mtp": (MLA, {"expert_parallel": 8, "overlap": Overlap(expert=True)}, {"mtp": 2}),
    "precision-aware": (DENSE, {"zero": 0, "offload": ("optimizer",)}, {}),
    "offload-adam": (DENSE, {"offload": ("optimizer",)}, {"optimizer_name": "sgd"}),
    "offload-layers": (DENSE, {}, {"launch": "offload_layers=200"}),
    "cpu-offloading-pipeline": (DENSE, {"pipeline_parallel": 2}, {"launch": "offload_layers=2"}),
    "offload-recompute": (DENSE, {"recompute": Full()}, {"launch": "offload_layers=2"}),
    "graphs-recompute": (DENSE, {"recompute": Full()}, {"launch": "graphs=partial"}),
    "graphs-offload": (DENSE, {}, {"launch": "graphs=step offload_layers=2"}),
    "deterministic-overlap": (DENSE, {"tensor_parallel": 2, "overlap": Overlap(tensor=True), **SP}, {"launch": "deterministic"}),
    "fsdp-optimizer": (DENSE, {"zero": 3}, {"optimizer_name": "muon"}),
    "recompute": (DENSE, {"pipeline_parallel": 2, "recompute": Full(layers=((3, 0),))}, {}),
}
SPARSE = {"sparse-context", "sparse-stage"}
"""Rules of what no release before 0.19 builds: test_megatron_sparse.py."""
VERSIONED = {
    "flag": ("0.12", OSS, {"expert_parallel": 8}),
    "split": ("0.12", "llama3-70b", {"pipeline_parallel": 4, "stage_layers": ((19, 22, 20, 19),)}),
}
"""Rules about what a version has: version and example."""
OLD = {
    "fp8-blockwise": (DENSE, {}, {"precision_name": "fp8-blockwise"}),
    "bf16-moments": (DENSE, {}, {"optimizer_name": "adamw-bf16-moments"}),
    "hybrid-experts": (NANO, {}, {}),
    "hybrid-mtp": ("nemotron-3-super-120b-a12b", {}, {}),
    "hybrid-virtual": (HYBRID, {"pipeline_parallel": 2, "virtual_stages": 2}, {}),
    "hybrid-split": (HYBRID, {"pipeline_parallel": 4, "stage_layers": ((12, 14, 13, 13),)}, {}),
    "hybrid-recompute": (HYBRID, {"recompute": Full()}, {}),
    "mtp-context": (MLA, {"context_parallel": 2}, {}),
    "mtp-shared": (MLA, {}, {"passes": 2}),
    "mtp-layout": (MLA, {"pipeline_parallel": 2}, {}),
    "recompute-shared": (MLA, {"recompute": Selective(modules=("shared_experts",))}, {}),
    "recompute-fp8": (DENSE, {"recompute": Selective(modules=("layernorm",))}, {"precision_name": "fp8-cs"}),
    "copied-query-groups": (DENSE, {"tensor_parallel": 16, **SP}, {}),
    "muon-version": (DENSE, {"zero": 0, "overlap": Overlap(gradient_reduce=False)}, {"optimizer_name": "muon"}),
    "grouped-gemm-dtype": (MOE, {"recompute": Selective(modules=("moe_act",))}, {"precision_name": "fp16"}),
    "expert-fp16": (MOE, {"expert_parallel": 8}, {"precision_name": "fp16"}),
    "expert-overlap-mtp-pipeline": (MLA, {"expert_parallel": 8, "overlap": Overlap(expert=True)}, {}),
    "muon": (DENSE, {}, {"optimizer_name": "muon"}),
    "packed-delta": ("qwen3-next-80b-a3b", {}, {"task": "sft"}),
}


_ODD = ("launch", "model", "lora", "precision", "optimizer", "mtp", "passes", "mamba_heads", "mixer_alone", "task")
"""What an example changes of its case afterwards."""


def broken(model, knobs, changes):
    changes = dict(changes)
    odd = {key: changes.pop(key) for key in _ODD if key in changes}
    case = case_of(model, **changes)
    layout = layout_of(case, **knobs)
    training = case.training
    if "launch" in odd:
        case = launched(case, parse_launch(odd["launch"]))
    if "model" in odd:
        case = replace(case, model=load_model(odd["model"]))
    if "mtp" in odd:
        case = replace(case, model=replace(case.model, num_mtp_layers=odd["mtp"]))
    if "passes" in odd:
        case = replace(case, model=replace(case.model, num_mtp_passes=odd["passes"]))
    if "mamba_heads" in odd:
        case = replace(case, model=replace(case.model, kinds=tuple(
            replace(kind, mixer=replace(kind.mixer, num_heads=odd["mamba_heads"])) if kind.mixer else kind
            for kind in case.model.kinds)))
    if "mixer_alone" in odd:
        alone = replace(case.model.kinds[0], feed_forward=NO_BLOCK, norms=1)
        case = replace(case, model=replace(case.model, kinds=(*case.model.kinds, alone),
                                           pattern=(*case.model.pattern[:-1], len(case.model.kinds))))
    if "task" in odd:
        case = replace(case, training=replace(training, task=odd["task"]))
    if "lora" in odd:
        case = replace(case, training=replace(training, task="lora", lora=Lora()))
    if "precision" in odd:
        case = replace(case, training=replace(training, precision=replace(training.precision, name=odd["precision"])))
    if "optimizer" in odd:
        case = replace(case, training=replace(training, optimizer=Optimizer(name=odd["optimizer"], state_bytes=4)))
    return case, layout


def test_every_rule_has_an_example_and_ids_are_unique():
    newest = [limit.id.removeprefix("megatron.") for limit in MEGATRON.at("main").limits]
    assert len(newest) == len(set(newest))
    assert set(newest) == {*BROKEN, *VERSIONED, *SPARSE}
    oldest = {limit.id.removeprefix("megatron.") for limit in MEGATRON.at("0.11").limits}
    assert oldest == {*BROKEN, *VERSIONED, *OLD, *SPARSE}
    assert {rule.name for rule in OLD_RULES} == set(OLD)


@pytest.mark.parametrize("id", BROKEN)
def test_a_rule_fires_on_its_example_and_writing_refuses_it(id):
    case, layout = broken(*BROKEN[id])
    messages = MEGATRON.check(case, layout)
    assert f"megatron.{id}" in [message.id for message in messages]
    assert all("{" not in str(message).replace("{'", "") for message in messages)
    with pytest.raises(InputError) as raised:
        MEGATRON.write(case, layout)
    assert raised.value.messages == messages


@pytest.mark.parametrize("id", OLD)
def test_a_rule_of_old_versions_refuses_there_and_not_later(id):
    case, layout = broken(*OLD[id])
    last = next(rule.releases for rule in OLD_RULES if rule.name == id)[-1]
    with pytest.raises(InputError) as raised:
        MEGATRON.write(case, layout, version=last)
    assert f"megatron.{id}" in [message.id for message in raised.value.messages]
    assert MEGATRON.at("main").check(case, layout) == ()
    assert MEGATRON.write(case, layout, version="main")


@pytest.mark.parametrize("id", VERSIONED)
def test_a_rule_about_what_a_version_lacks_refuses_there_and_not_on_main(id):
    version, model, knobs = VERSIONED[id]
    case = case_of(model)
    layout = layout_of(case, **knobs)
    assert f"megatron.{id}" in [message.id for message in MEGATRON.at(version).check(case, layout)]
    assert MEGATRON.at("main").check(case, layout) == ()


def test_shards_over_more_ranks_than_there_are_are_refused():
    case = case_of(MOE)
    ids = [message.id for message in MEGATRON.check(case, layout_of(case, expert_parallel=2, optimizer_shards=128))]
    assert "megatron.shards" in ids


def test_ordinary_layouts_break_nothing():
    for model, knobs in (
        (DENSE, {}), (DENSE, {"tensor_parallel": 8, **SP, "pipeline_parallel": 4, "virtual_stages": 2}),
        (MOE, {"expert_parallel": 32}), (MLA, {"expert_parallel": 32, "pipeline_parallel": 2}),
        (OSS, {"tensor_parallel": 2, "expert_parallel": 16, **SP}), (DENSE, {"zero": 3}),
    ):
        case = case_of(model)
        assert [str(message) for message in MEGATRON.check(case, layout_of(case, **knobs))] == []
