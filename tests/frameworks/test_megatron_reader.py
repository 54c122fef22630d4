"""Launch scripts of Megatron-LM as users write them: every spelling of a thing, defaults, and what cannot be known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from megatron_cases import case_of
from megatron_scripts import MEGATRON, MODEL, findings, read, script
from tests.draws import examples

from meshwright.catalog import load_model
from meshwright.domain.label import label
from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.megatron.pipeline import layout_string
from meshwright.frameworks.megatron.stages import unrolled
from meshwright.frameworks.settings import Given
from meshwright.testing import legal_plans, offered
from meshwright.testing.promises import _own_files_are_clean, _reads_what_it_writes

RELEASES = ("0.11", "0.12", "0.13", "0.16", "main")
PP4 = "--pipeline-model-parallel-size 4"


@pytest.mark.parametrize("release", RELEASES)
def test_every_feature_of_a_release_is_written_and_read_back(release):
    name = f"megatron@{release}"
    there = framework(name)
    for feature in (None, *offered(there.features)):
        for case, layout in legal_plans(name, 1, seed=len(feature or ""), feature=feature):
            for promise in (_reads_what_it_writes, _own_files_are_clean):  # the others hold for any plan: test_conformance.py
                promise(there, case, layout)


@pytest.mark.parametrize(("flags", "launch"), [
    ("", None), ("--deterministic-mode --manual-gc", "deterministic=on host=bound"), ("--attention-backend auto", None),
    ("--cuda-graph-impl none", "graphs=none"), ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn", "graphs=partial"),
    ("--moe-router-force-load-balancing --moe-token-dispatcher-type flex", "routing=balanced dispatcher=flex"),
])
def test_how_a_script_launches_is_read(flags, launch):
    assert read(script(PP4, flags)).said.launch == launch


@pytest.mark.parametrize(("flags", "virtual", "split"), [
    ("", 1, None),
    ("--num-layers-per-virtual-pipeline-stage 5", 4, None),
    ("--num-virtual-stages-per-pipeline-rank 4", 4, None),
    ("--pipeline-model-parallel-layout 'Et*19|t*21|t*21|t*19L'", 1, ((19, 21, 21, 19),)),
    ("--pipeline-model-parallel-layout Et*19|(t*21|)*2t*19L", 1, ((19, 21, 21, 19),)),
    ("--pipeline-model-parallel-layout 'Et*20|t*20|(t*20|)*1t*20L'", 1, None),
    ("--pipeline-model-parallel-layout 'Et*9|(t*10|)*6t*10,t,L'", 2, ((9, 10, 10, 10), (10, 10, 10, 11))),
    ("--decoder-first-pipeline-num-layers 19 --decoder-last-pipeline-num-layers 19", 1, ((19, 21, 21, 19),)),
    ("--decoder-first-pipeline-num-layers 17", 1, ((17, 21, 21, 21),)),
    ("--decoder-last-pipeline-num-layers 17", 1, ((21, 21, 21, 17),)),
    ("--decoder-first-pipeline-num-layers 18 --decoder-last-pipeline-num-layers 18 --num-virtual-stages-per-pipeline-rank 2", 2,
     ((9, 11, 11, 9), (9, 11, 11, 9))),
])
def test_layers_are_placed_in_every_spelling(flags, virtual, split):
    flags = flags.replace("Et*19|(", "'Et*19|(").replace("*2t*19L", "*2t*19L'") if "'" not in flags else flags
    layout = read(script(PP4, flags)).layout
    assert layout is not None
    assert (layout.virtual_stages, layout.stage_layers) == (virtual, split)
    assert layout.schedule == ("interleaved" if virtual > 1 else "1f1b")


@pytest.mark.parametrize(("layers", "flags", "virtual", "split"), [
    (79, "--account-for-embedding-in-pipeline-split", 1, ((19, 20, 20, 20),)),
    (78, "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split", 1, ((19, 20, 20, 19),)),
    (79, "--account-for-loss-in-pipeline-split --num-layers-per-virtual-pipeline-stage 10", 2, ((10, 10, 10, 10), (10, 10, 10, 9))),
    (78, "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
         "--num-virtual-stages-per-pipeline-rank 2", 2,
     ((9, 10, 10, 10), (10, 10, 10, 9))),
])
def test_embedding_and_loss_can_count_as_layers(layers, flags, virtual, split):
    layout = read(script(PP4, flags, model=MODEL.replace("80", str(layers)))).layout
    assert layout is not None
    assert (layout.virtual_stages, layout.stage_layers) == (virtual, split)


@pytest.mark.parametrize(("flags", "id"), [
    ("--num-layers-per-virtual-pipeline-stage 5 --num-virtual-stages-per-pipeline-rank 4", "virtual-twice"),
    ("--num-layers-per-virtual-pipeline-stage 3", "virtual-size"),
    ("--num-virtual-stages-per-pipeline-rank 3", "virtual-counts"),
    ("--num-layers-per-virtual-pipeline-stage 5 --decoder-first-pipeline-num-layers 17", "virtual-uneven"),
    ("--decoder-first-pipeline-num-layers 19 --decoder-last-pipeline-num-layers 20", "middle"),
    ("--decoder-first-pipeline-num-layers 17 --account-for-loss-in-pipeline-split", "account-uneven"),
    ("--account-for-loss-in-pipeline-split", "division"),
    ("--pipeline-model-parallel-layout 'Et*40|t*40|L'", "layout-length"),
    ("--pipeline-model-parallel-layout 'Et*19|t*21|t*21|t*20L'", "layout-layers"),
    ("--pipeline-model-parallel-layout 'Et*19|x*21|t*21|t*20L'", "layout-letters"),
    ("--pipeline-model-parallel-layout '((t*9999)*9999)*9999'", "layout-long"),
    ("--cp-comm-type star --context-parallel-size 2", "context-type"),
    ("--recompute-granularity full", "recompute-method"),
    ("--num-distributed-optimizer-instances 5", "instances"),
])
def test_what_determines_no_layout_is_said(flags, id):
    reading = read(script(PP4, flags))
    assert reading.layout is None
    assert f"megatron.{id}" in [message.id for message in reading.messages]
    assert all(str(message) for message in reading.messages)


splits = st.integers(2, 5).flatmap(
    lambda stages: st.lists(st.lists(st.integers(0, 30), min_size=stages, max_size=stages).map(tuple), min_size=1, max_size=4)
)


@drawn(splits.map(tuple), st.integers(0, 2))
@examples(200)
def test_a_layout_string_is_unrolled_to_what_it_was_written_for(split, extra):
    cells = unrolled(layout_string(split, extra))
    assert [cell.count("t") for cell in cells] == [count for chunk in split for count in chunk]
    assert cells[0].startswith("E") and cells[-1].endswith("m" * extra + "L")


@drawn(st.text(alphabet="EtmL|()*,0123456789x", max_size=40))
@examples(200)
def test_any_text_is_a_layout_of_stages_or_refused(text):
    try:
        cells = unrolled(text)
    except InputError:
        return
    assert set("".join(cells)) <= set("EtmL")


@pytest.mark.parametrize(("flags", "wanted"), [
    ("", NoRecompute()),
    ("--recompute-activations", Selective()),
    ("--recompute-activations --recompute-granularity full --recompute-method uniform", Selective()),
    ("--recompute-granularity selective", Selective()),
    ("--recompute-granularity selective --recompute-modules mlp moe_act", Selective(modules=("mlp", "moe_act"))),
    ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", Full()),
    ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 4", Full()),
    ("--recompute-granularity full --recompute-method block --recompute-num-layers 7", Full(layers=7)),
    ("--recompute-granularity full --recompute-method block --recompute-num-layers 99", Full()),
])
def test_recomputation_in_every_spelling(flags, wanted):
    assert read(script(PP4, flags)).layout.recompute == wanted


@pytest.mark.parametrize(("flags", "version", "shards"), [
    ("", None, (1, 1, 1)),
    ("--use-distributed-optimizer", None, (32, 1, 1)),
    ("--use-distributed-optimizer --num-distributed-optimizer-instances 4", None, (8, 1, 1)),
    ("--use-megatron-fsdp", None, (1, 1, 1)),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim", None, (32, 1, 1)),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", None, (32, 32, 1)),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", None, (32, 32, 32)),
    ("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads_params", "0.13", (32, 32, 32)),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --num-distributed-optimizer-instances 4 "
     "--outer-dp-sharding-strategy optim", None, (32, 8, 8)),
    ("--use-torch-fsdp2", None, (32, 32, 32)),
    ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", None, (32, 32, 1)),
])
def test_sharding_in_every_spelling(flags, version, shards):
    layout = read(script("--tensor-model-parallel-size 2", flags), version=version).layout
    assert (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards) == shards


@pytest.mark.parametrize(("words", "kind"), [
    ("p2p", "ring"), ("a2a", "ulysses"), ("all_gather", "all-gather"), ("allgather", "all-gather"),
    ("a2a+p2p --hierarchical-context-parallel-sizes 2 2", "hybrid"), ("p2p p2p p2p", "ring"),
])
def test_kinds_of_context_parallelism(words, kind):
    assert read(script("--context-parallel-size 4", f"--cp-comm-type {words}")).layout.context_kind == kind


def test_defaults_are_the_parsers():
    moe = read(script("--tensor-model-parallel-size 4 --num-experts 8 --expert-model-parallel-size 2 --sequence-parallel")).layout
    assert (moe.expert_parallel, moe.expert_tensor_parallel) == (2, 4)
    plain = read(script("--sequence-parallel --overlap-param-gather --tp-comm-overlap")).layout
    assert not (plain.sequence_parallel or plain.overlap.parameter_gather or plain.overlap.tensor)
    without = script("").replace("--global-batch-size 256", "")
    assert (
        read(without).layout.num_microbatches,
        read(without, given=Given(global_batch_sequences=512)).layout.num_microbatches,
    ) == (1, 8)


@pytest.mark.parametrize(("flags", "precision", "gradient"), [
    ("", "bf16", "fp32"), ("--grad-reduce-in-bf16", "bf16", "bf16"), ("--fp8-format hybrid", "fp8-delayed", "fp32"),
    ("--fp8-format hybrid --fp8-recipe tensorwise", "fp8-cs", "fp32"), ("--fp8-format e4m3 --fp8-recipe mxfp8", "fp8-mx", "fp32"),
    ("--fp8-format e4m3 --fp8-recipe blockwise", "fp8-blockwise", "fp32"), ("--fp4-format e2m1", "nvfp4", "fp32"),
])
def test_the_case_is_said(flags, precision, gradient):
    said = read(script(flags)).said
    assert (said.precision, said.gradient_dtype, said.devices, said.global_batch_sequences, said.sequence_tokens) == (
        precision, gradient, 64, 256, 4096,
    )
    assert said.figures == {
        "layers": 80, "hidden": 8192, "heads": 64, "ffn": 32768, "key_value_heads": 64, "head_dim": 128, "tied_embeddings": True,
        "gated": False, "latent_attention": False, "windowed": False, "experts": 0,
    }


def test_optimizer_task_and_grouped_heads_are_said():
    said = read(script("--sft --optimizer adam --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 "
                       "--group-query-attention --num-query-groups 8 --swiglu "
                       "--untie-embeddings-and-output-weights")).said
    assert (said.optimizer, said.task, said.figures["key_value_heads"]) == ("adamw-bf16-moments", "sft", 8)
    assert (said.figures["ffn"], said.figures["tied_embeddings"]) == (21824, False)
    assert read(script("--num-query-groups 8"), version="main").said.figures["key_value_heads"] == 8
    assert read(script("--num-query-groups 8"), version="0.16").said.figures["key_value_heads"] == 64


@pytest.mark.parametrize(("flags", "release"), [
    ("", "0.16"), ("--use-custom-fsdp", "0.13"), ("--no-such-flag", "0.16"), ("--moe-extended-tp", "0.16"),
    ("--use-custom-fsdp --pipeline-model-parallel-layout E", "0.13"), ("--megatron-fsdp-version 2", "main"),
    ("--encoder-tensor-model-parallel-size 2", "0.13"), ("--fake-process-group", "0.16"),
])
def test_the_release_is_the_newest_that_knows_the_flags_and_the_default_where_it_does(flags, release):
    assert read(script(flags)).version == release


def test_what_follows_a_value_may_be_unknown():
    reading = read(script('--tensor-model-parallel-size 4 $MORE --sequence-parallel ${OTHERS} --context-parallel-size "$CP"'))
    assert reading.layout is None
    assert reading.source.settings["--tensor-model-parallel-size"].value == "4"
    assert reading.source.settings["--sequence-parallel"].value is True
    assert [message.id for message in reading.messages if message.id.startswith("setting")] == ["setting.unknown"]


def test_a_fault_of_the_case_takes_no_layout_away():
    reading = read(script("--optimizer lamb --hidden-dropout much"))
    assert reading.layout is not None
    assert [message.id for message in reading.messages] == ["setting.choice"]


def test_devices_may_be_given():
    text = f"torchrun pretrain_gpt.py {MODEL} --micro-batch-size 1 --bf16"
    nowhere = MEGATRON.read([File(path="t.sh", text=text.replace("torchrun", "srun python"))])
    assert "import.devices" in [message.id for message in nowhere.messages]
    assert MEGATRON.read([File(path="t.sh", text=text)], given=Given(num_devices=32)).layout.data_parallel == 32


# What real scripts come to: the flags of their layout, the devices, and the label.

REAL = {
    "Megatron-LM llama/train_llama3_8b_h100_fp8": (
        "0.16", 8, "--num-layers 32 --num-attention-heads 32 --hidden-size 4096 --seq-length 8192 --micro-batch-size 1 "
        "--global-batch-size 128 --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --fp8-format "
        "hybrid "
        "--tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel --ckpt-format torch_dist",
        "tp1 pp1 dp8 mb1 zero1", 16),
    "Megatron-LM megatron_fsdp/train_llama3_8b_fsdp_h100_fp8": (
        "0.16", 8, "--num-layers 32 --num-attention-heads 32 --hidden-size 4096 --seq-length 8192 --micro-batch-size 1 "
        "--global-batch-size 128 --bf16 --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
        "--no-gradient-accumulation-fusion --init-model-with-meta-device --ckpt-format fsdp_dtensor --use-distributed-optimizer "
        "--overlap-grad-reduce --overlap-param-gather --fp8-format hybrid --tensor-model-parallel-size 1 --sequence-parallel",
        "tp1 pp1 dp8 mb1 zero3", 16),
    "Megatron-LM mixtral/train_mixtral_8x7b_distributed": (
        "0.16", 64, "--seq-length 4096 --num-layers 32 --num-experts 8 --hidden-size 4096 --num-attention-heads 32 "
        "--overlap-param-gather --overlap-grad-reduce --micro-batch-size 1 --global-batch-size 256 --bf16 "
        "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 "
        "--use-distributed-optimizer "
        "--sequence-parallel", "tp1 pp4 ep8 dp16 mb1 zero1", 16),
    "Megatron-LM gpt3/train_gpt3_175b_distributed": (
        "main", 128, "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --micro-batch-size 1 "
        "--global-batch-size 1536 --fp16 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16",
        "tp8 pp16 dp1 mb1 zero0 overlap=p2p", 1536),
    "Megatron-LM mamba/train": (
        "0.16", 8, "--hidden-size 1024 --num-attention-heads 16 --tensor-model-parallel-size 1 --sequence-parallel "
        "--pipeline-model-parallel-size 1 --use-distributed-optimizer --overlap-param-gather --overlap-grad-reduce "
        "--seq-length 4096 "
        "--micro-batch-size 4 --global-batch-size 32 --bf16", "tp1 pp1 dp8 mb4 zero1", 1),
    "Megatron-LM multimodal/nvlm/pretrain_qwen20_72b_internvit_6b": (
        "0.16", 256, "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --num-layers 80 --use-distributed-optimizer "
        "--seq-length 256 --micro-batch-size 1 --global-batch-size 2048 --bf16 --ckpt-format torch",
        "tp8 pp1 dp32 mb1 zero1 overlap=none", 64),
    "Megatron-LM multimodal/nvlm/sft_34b_internvit": (
        "0.16", 64, "--use-distributed-optimizer --num-layers 60 --seq-length 261 --tensor-model-parallel-size 8 "
        "--micro-batch-size 1 --global-batch-size 128 --bf16 --ckpt-format torch", "tp8 pp1 dp8 mb1 zero1 overlap=none", 16),
    "Megatron-LM multimodal/pretrain_mistral_clip": (
        "0.16", 64, "--use-distributed-optimizer --tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 --num-layers 32 "
        "--seq-length 576 --micro-batch-size 1 --global-batch-size 256 --bf16 --ckpt-format torch",
        "tp4 pp1 dp16 mb1 zero1 overlap=none", 16),
    "Megatron-LM mimo/scripts/run_vlm_train": (
        "0.16", 2, "--context-parallel-size 2 --tensor-model-parallel-size 1 --num-layers 32 --seq-length 4096 "
                   "--micro-batch-size 4 "
        "--global-batch-size 128 --bf16", "tp1 cp2 pp1 dp1 mb4 zero0 overlap=none", 32),
    "Pai-Megatron-Patch deepseek_v3/run_mcore_deepseek_lite": (
        "0.16", 256, "--num-layers 61 --seq-length 4096 --num-experts 256 --micro-batch-size 1 --global-batch-size 8192 --bf16 "
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 8 --expert-model-parallel-size 16 --context-parallel-size 1 "
        "--expert-tensor-parallel-size 1 --use-distributed-optimizer --sequence-parallel --recompute-granularity selective "
        "--recompute-modules mla_up_proj --pipeline-model-parallel-layout 'Et|(tt|)*30L' --fp8-format hybrid --fp8-recipe "
        "blockwise",
        "tp2 pp8 vp4 ep16 dp16 mb1 sp zero1 recompute=selective:mla_up_proj "
        "layers=[1,2,2,2,2,2,2,2;2,2,2,2,2,2,2,2;2,2,2,2,2,2,2,2;2,2,2,2,2,2,2,0] overlap=p2p", 512),
    "Pai-Megatron-Patch qwen3_vl/run_mcore_qwen3_vl_lite": (
        "0.16", 64, "--num-layers 48 --seq-length 4096 --num-experts 128 --micro-batch-size 1 --global-batch-size 32 --bf16 "
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --expert-model-parallel-size 4 --context-parallel-size 1 "
        "--expert-tensor-parallel-size 1 --use-distributed-optimizer --sequence-parallel --recompute-granularity selective "
        "--overlap-grad-reduce --overlap-param-gather", "tp4 pp4 ep4 dp4 mb1 sp zero1 recompute=selective:core_attn", 8),
    "Pai-Megatron-Patch qwen3_next/run_mcore_qwen3_lite": (
        "0.16", 64, "--num-layers 96 --seq-length 2048 --num-experts 512 --micro-batch-size 1 --global-batch-size 16 --bf16 "
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --context-parallel-size 1 "
        "--expert-tensor-parallel-size 1 --use-distributed-optimizer --sequence-parallel",
        "tp2 pp4 ep8 dp8 mb1 sp zero1 overlap=p2p", 2),
    "Pai-Megatron-Patch qwen3_vl/run_mcore_qwen with dsw 8B 1 8 ... 4 2": (
        "0.16", 8, "--num-layers 36 --seq-length 4096 --micro-batch-size 1 --global-batch-size 8 --bf16 "
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2", "tp4 pp2 dp1 mb1 zero0 overlap=p2p", 8),
    "Megatron-LM megatron_fsdp/sbatch_mfsdp_deepseek_v3": (
        "main", 64, "--num-layers 61 --seq-length 4096 --num-experts 256 --micro-batch-size 4 --global-batch-size 2048 --bf16 "
        "--tensor-model-parallel-size 1 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 "
        "--use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
        "--overlap-grad-reduce --overlap-param-gather --recompute-granularity selective "
        "--recompute-modules mlp moe mla_up_proj layernorm",
        "tp1 pp1 ep8 dp64 mb4 zero3 recompute=selective:mlp,moe,mla_up_proj,layernorm", 8),
    "Pai-Megatron-Patch llama2/run_mcore_llama2_70b": (
        "0.16", 64, "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --seq-length 4096 --micro-batch-size 1 "
        "--global-batch-size 32 --bf16 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --sequence-parallel "
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap",
        "tp8 pp4 dp2 mb1 sp zero1 overlap=grad,param,tp,p2p", 16),
}


@pytest.mark.parametrize("name", REAL)
def test_scripts_of_others_come_to_their_layout(name):
    version, devices, flags, wanted, microbatches = REAL[name]
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {flags}\n"
    layout = read(text, version=version, given=Given(num_devices=devices)).layout
    assert layout is not None
    assert (label(layout), layout.num_microbatches, layout.world) == (wanted, microbatches, devices)


def test_a_model_that_is_given_fills_what_the_script_leaves_open():
    text = script(PP4, "--num-virtual-stages-per-pipeline-rank 3", model="")
    assert read(text, given=Given(model=load_model("llama3-70b"))).layout is None
    assert read(text).layout.virtual_stages == 3


# Odd files, and edits of a user's own.

ODD = st.sampled_from(
    ["", "0", "-1", "1", "2", "3", "8", "true", "1e3", "99999999999", "a b", "auto", "full", "block", "$X", "É", "1,2"]
)
FLAGS = st.sampled_from(
    [*sorted(MEGATRON.surface().knobs()), "--num-layers", "--num-experts", "--global-batch-size", "--seq-length"]
)


@drawn(st.dictionaries(FLAGS, st.lists(ODD, max_size=3), max_size=9), st.sampled_from(["0.11", "0.16", "main"]))
@examples(200)
def test_odd_values_are_said_and_never_raise(flags, release):
    words = " ".join(f"{flag} {' '.join(values)}" for flag, values in flags.items())
    reading = read(f"torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 {words}\n", version=release)
    assert reading.layout is not None or reading.messages
    assert all(str(message) for message in reading.messages)
    assert all(str(finding.message) for finding in findings(reading).values())
    if reading.layout is not None:
        case = case_of("llama3-8b")
        assert all(str(message) for message in MEGATRON.at(release).check(case, reading.layout))


OWN = """#!/bin/bash
# The team's own run; do not touch the data.
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=2          # within a node
LAYERS="--num-layers 32 --hidden-size 4096 --num-attention-heads 32"
OPTIONS="
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 4
    --sequence-parallel
    --micro-batch-size 1 --global-batch-size 256 --seq-length 2048 --max-position-embeddings 8192
    --use-distributed-optimizer --overlap-grad-reduce --bf16 --lr 1e-4
"
torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py $LAYERS $OPTIONS --data-path /data/ours --group-query-attention \\
    --num-query-groups 8 --ffn-hidden-size 14336 --swiglu
"""


def test_a_users_own_script_keeps_everything_but_the_layout():
    case, reading = case_of("llama3-8b"), read(OWN)
    assert label(reading.layout) == "tp2 pp4 vp2 dp8 mb1 sp zero1 overlap=grad,p2p"
    assert not edit(MEGATRON, reading, case, reading.layout).edits
    other = replace(
        reading.layout, tensor_parallel=4, pipeline_parallel=2, virtual_stages=1, schedule="1f1b", recompute=Full(),
        stage_layers=((17, 15),),
    )
    edited = edit(MEGATRON, reading, case, other)
    text = edited.files[0].text
    again = read(text)
    assert again.layout == MEGATRON.normal(case, other)
    assert "--num-layers-per-virtual-pipeline-stage" not in text
    assert "--data-path /data/ours" in text and "# The team's own run; do not touch the data." in text and "--lr 1e-4" in text
    assert {change.key for change in edited.edits} == {
        "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--pipeline-model-parallel-layout",
        "--num-layers-per-virtual-pipeline-stage", "--recompute-granularity", "--recompute-method", "--recompute-num-layers",
    }
    assert edited.meaning.resume == "reshard"


@pytest.mark.parametrize(("words", "task"), [("--sft --data-path d", "sft"), ("--data-path d", "pretrain"), ("--mock-data", None)])
def test_mock_data_train_for_no_task(words, task):
    """A script that is tried on mock data may be meant for any task: the exporter's own are until they are given data."""
    assert read(script(words)).said.task == task
