"""What is found in a user's files before Megatron-LM finds it, or although it never does; the guide of seed 003, varied."""

from __future__ import annotations

import json

import pytest
from megatron_cases import case_of
from megatron_scripts import MEGATRON, MODEL, findings, read, script

from meshwright.frameworks.megatron.mistakes import CHECKS, unknown_key

ONE = "CUDA_DEVICE_MAX_CONNECTIONS=1"
CLEAN = script(
    "--tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
    "--log-throughput", environment=f"{ONE} PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)
MOE = "--num-experts 8 --moe-ffn-hidden-size 1024"
TP, PP = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"

FIRES: dict[str, tuple[str, str | None, object]] = {
    # rule: flags, release (None: as the flags show), the value that is expected instead
    "two-precisions": ("--fp16", None, "one of --fp16 and --bf16"),
    "fp8-and-fp4": ("--fp8-format hybrid --fp4-format e2m1", None, "one of --fp4-format and --fp8-format"),
    "sequence-parallel-alone": ("--sequence-parallel", None, "no --sequence-parallel, or tensor parallelism"),
    "moe-without-sequence-parallel": (f"{MOE} {TP} 2 --expert-model-parallel-size 2", None, "--sequence-parallel"),
    "expert-tensor-default": (f"{MOE} {TP} 2 --sequence-parallel", None, "--expert-tensor-parallel-size 1"),
    "only-some-layers": ("--decoder-last-pipeline-num-layers 8", None, "no --decoder-last-pipeline-num-layers"),
    "query-groups-alone": ("--num-query-groups 8", None, "--group-query-attention"),
    "latent-groups": ("--multi-latent-attention --group-query-attention", None, "no --group-query-attention"),
    "positions-short": ("--seq-length 8192", None, 8192),
    "flash-attention": ("--use-flash-attn", None, "--attention-backend flash"),
    "no-effect": ("--use-mcore-models", None, "no --use-mcore-models"),
    "checkpoint-activations": ("--checkpoint-activations", None, "--recompute-granularity"),
    "recompute-activations": ("--recompute-activations", None, "--recompute-granularity selective"),
    "selective-method": ("--recompute-granularity selective --recompute-method uniform", None, "no --recompute-method"),
    "selective-count": ("--recompute-granularity selective --recompute-num-layers 1", None, "no --recompute-num-layers"),
    "full-count": ("--recompute-granularity full --recompute-method uniform", None, "--recompute-num-layers 1"),
    "recompute-off": ("--recompute-method uniform", None, "--recompute-granularity"),
    "context-allgather": ("--context-parallel-size 2 --cp-comm-type allgather", None, "all_gather"),
    "context-sizes": ("--context-parallel-size 4 --cp-comm-type a2a+p2p", None, "--hierarchical-context-parallel-sizes"),
    "context-product": ("--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4", None, 4),
    "tensor-overlap-alone": ("--tp-comm-overlap", None, "no --tp-comm-overlap"),
    "expert-overlap-alone": (f"{MOE} --overlap-moe-expert-parallel-comm", None, "no --overlap-moe-expert-parallel-comm"),
    "expert-overlap-dispatcher": (f"{MOE} --expert-model-parallel-size 4 --overlap-moe-expert-parallel-comm", None,
                                  "--moe-token-dispatcher-type alltoall"),
    "expert-overlap-shared": (f"{MOE} --overlap-moe-expert-parallel-comm --moe-shared-expert-overlap", None,
                              "no --moe-shared-expert-overlap"),
    "allgather-dispatcher": (f"{MOE} --expert-model-parallel-size 4", None, "--moe-token-dispatcher-type alltoall"),
    "fsdp-checkpoint": ("--use-megatron-fsdp --data-parallel-sharding-strategy optim", None, "--ckpt-format fsdp_dtensor"),
    "fsdp-nothing": ("--use-megatron-fsdp --ckpt-format fsdp_dtensor", None, "--data-parallel-sharding-strategy "
                                                                             "optim_grads_params"),
    "strategy-alone": ("--data-parallel-sharding-strategy optim", "0.13", "--use-custom-fsdp"),
    "fsdp-fusion": ("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", None, "--no-gradient-accumulation-fusion"),
    "torch-fsdp2": ("--use-torch-fsdp2 --no-gradient-accumulation-fusion", None, "--untie-embeddings-and-output-weights"),
    "parameter-gather-alone": ("--overlap-param-gather --overlap-grad-reduce", None, "--use-distributed-optimizer"),
    "parameter-gather-gradients": ("--overlap-param-gather", None, "--overlap-grad-reduce"),
    "optimizer-overlap": ("--overlap-param-gather-with-optimizer-step --use-distributed-optimizer --overlap-param-gather "
                          "--overlap-grad-reduce", None, "--num-virtual-stages-per-pipeline-rank"),
    "offload-precision-aware": ("--optimizer-cpu-offload --use-distributed-optimizer", None, "--use-precision-aware-optimizer"),
    "precision-aware-alone": ("--use-precision-aware-optimizer", None, "--use-distributed-optimizer"),
    "cpu-offloading-pipeline": (f"--cpu-offloading-num-layers 2 {PP} 2", None, "no --cpu-offloading-num-layers"),
    "group-size": (f"{PP} 4 --num-virtual-stages-per-pipeline-rank 2 "
                   "--microbatch-group-size-per-virtual-pipeline-stage 2", None, 4),
    "data-parallel": ("--data-parallel-size 16", None, 64),
    "accumulation": ("--gradient-accumulation-steps 8", None, 4),
    "instead": ("--use-torch-compile", None, "small functions are compiled by themselves since PyTorch 2.2"),
    "dynamic-loader": ("--dataloader-type dynamic", None, "single, cyclic or external"),
    "deepspeed-switch": ("--deepspeed_config ds_config.json", None, "--deepspeed"),
    "profile-nsys": ("--profile --profile-step-start 5 --profile-step-end 7", None, "--use-pytorch-profiler, or nsys around the "
                                                                                    "command"),
    "profile-off": ("--profile-step-start 5", None, "--profile"),
    "profile-directory": ("--profile --use-pytorch-profiler", None, "--tensorboard-dir"),
    "profile-steps": ("--profile --profile-step-start 20", None, "--profile-step-end 22"),
}
ENVIRONMENT: dict[str, tuple[str, str]] = {
    # rule: variables, flags
    "connections-unless-blackwell": ("", f"{TP} 2"),
    "connections-fsdp": (ONE, "--use-megatron-fsdp --ckpt-format fsdp_dtensor --data-parallel-sharding-strategy optim_grads"),
    "connections-experts": (ONE, f"{MOE} --overlap-moe-expert-parallel-comm"),
    "nccl-debug": ("NCCL_DEBUG=INFO", ""),
    "nccl-off": ("NCCL_IB_DISABLE=1", ""),
    "blocking": ("CUDA_LAUNCH_BLOCKING=1", ""),
    "segments": ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512", ""),
    "allocator-split": ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512", ""),
    "set-twice": ("NCCL_DEBUG=WARN NCCL_DEBUG=VERSION", ""),
}
OTHERS = {"missing", "fp32", "batch-default", "connections", "launcher", "log-throughput", "two-frameworks", "zero-pipeline",
          "deepspeed-batch", "deepspeed-checkpointing"}
"""Rules with tests of their own."""


def test_every_rule_has_a_test():
    ids = [check.id.removeprefix("megatron.") for check in CHECKS]
    assert len(ids) == len(set(ids))
    assert set(ids) == {*FIRES, *ENVIRONMENT, *OTHERS}


def test_a_good_script_has_no_findings():
    assert findings(read(CLEAN)) == {}


@pytest.mark.parametrize("rule", FIRES)
def test_a_rule_fires_and_says_what_would_be_right(rule):
    flags, version, expected = FIRES[rule]
    reading = read(script(flags), version=version)
    finding = findings(reading)[rule]
    assert finding.expected == expected
    assert "{" not in str(finding.message).replace("{uniform,block}", "")
    assert finding.value is None or "train.sh:" in finding.message.path
    assert rule not in findings(read(CLEAN))


@pytest.mark.parametrize("rule", ENVIRONMENT)
def test_a_rule_about_the_environment_fires(rule):
    variables, flags = ENVIRONMENT[rule]
    assert rule in findings(read(script(flags, environment=variables)))
    assert rule not in findings(read(CLEAN))


def test_what_the_parser_needs_and_is_not_there():
    bare = read("torchrun --nproc_per_node 8 pretrain_gpt.py --seq-length 4096\n")
    found = findings(bare)
    assert found["missing"].expected == (
        "--num-layers --hidden-size --num-attention-heads --max-position-embeddings --micro-batch-size"
    )
    assert "fp32" in found and "log-throughput" in found
    unknown = findings(read("torchrun --nproc_per_node 8 pretrain_gpt.py --seq-length 4096 $MORE\n"))
    assert not {"missing", "fp32", "log-throughput"} & set(unknown)
    assert "batch-default" in findings(read(CLEAN.replace("--global-batch-size 256", "")))


@pytest.mark.parametrize(("flags", "device", "version", "fires"), [
    (f"{TP} 2", "h100-sxm", None, True), (f"{TP} 2", "b200", None, False), (f"{TP} 2", "b200", "0.12", True),
    ("--context-parallel-size 2", "h100-sxm", None, True), ("", "h100-sxm", None, False), ("", "b200", "0.11", True),
    (f"{TP} 2 --use-megatron-fsdp", "h100-sxm", None, False), (f"{TP} 2", "mi300x", None, False),
])
def test_one_connection_is_demanded_where_the_parser_demands_it(flags, device, version, fires):
    case = case_of("llama3-8b", device=device)
    found = findings(read(script(flags), version=version), case)
    assert ("connections" in found) == fires
    assert "connections-unless-blackwell" not in found
    assert "connections" not in findings(read(script(flags, environment=ONE), version=version), case)


def test_a_variable_that_only_the_run_knows_is_not_judged():
    text = "export CUDA_DEVICE_MAX_CONNECTIONS=$N\nexport NCCL_DEBUG=$LEVEL\n" + script(f"{TP} 2")
    assert not {"connections-unless-blackwell", "nccl-debug"} & set(findings(read(text)))


def test_flags_change_their_meaning_with_the_release():
    assert "until" not in str(findings(read(script("--use-flash-attn"), version="main"))["flash-attention"].message)
    assert "nothing reads it" in str(findings(read(script("--use-flash-attn"), version="main"))["flash-attention"].message)
    assert "legacy" in str(findings(read(script("--use-flash-attn"), version="0.14"))["flash-attention"].message)
    assert "flash-attention" not in findings(read(script("--use-flash-attn --use-legacy-models"), version="0.14"))
    assert "query-groups-alone" not in findings(read(script("--num-query-groups 8"), version="main"))
    assert "fsdp-fusion" not in findings(read(script("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads")))


def test_unknown_flags_are_refused_and_other_files_are_their_own():
    assert unknown_key("--use-fused-kernels") == ("error", "unrecognized arguments: {key}")
    assert unknown_key("zero_optimization.stage") is None


# The guide: a template of 70B on 1024 devices, its DeepSpeed configuration, and variations of both.


def template(
    *, tp: int = 8, pp: int = 16, mb: int = 1, gbs: int = 2048, gas: int | None = 16, nodes: int = 128, extra: str = "",
    deepspeed: str = "--deepspeed_config ds_config.json", overlap: str = "--overlap-grad-reduce", launcher: str = "torchrun",
    flash: str = "--use-flash-attn", program: str = "pretrain_gpt.py",
) -> str:
    """A launch in the manner of the guide."""
    words = [
        f"{launcher} --nproc_per_node 8 --nnodes {nodes} {program}", f"{TP} {tp}", f"{PP} {pp}", f"--micro-batch-size {mb}",
        f"--global-batch-size {gbs}", "" if gas is None else f"--gradient-accumulation-steps {gas}", "--seq-length 4096",
        MODEL, flash, "--bf16", "--sequence-parallel", overlap, extra, deepspeed,
    ]
    return " \\\n    ".join(filter(None, words)) + "\n"


def configuration(stage: int | None = 3, **more: object) -> str:
    """A DeepSpeed configuration."""
    sections: dict[str, object] = {} if stage is None else {"zero_optimization": {"stage": stage, "overlap_comm": True}}
    return json.dumps(sections | more)


DEPRECATED = "python -m torch.distributed.launch"
ALWAYS = {"two-frameworks", "deepspeed-switch", "flash-attention", "accumulation", "deepspeed-batch", "zero-pipeline"}
NEEDED = "256 micro-batches are needed"
VARIED: list[tuple[dict[str, object], dict[str, object], set[str], set[str], str]] = [
    # template, configuration, what is found, what is not, words about accumulation
    ({}, {}, ALWAYS, {"launcher"}, "1 x 16 accumulation steps x data-parallel 8 = 128 is not the global batch 2048: 256"),
    ({"gas": 256}, {}, ALWAYS - {"accumulation"}, {"accumulation"}, ""),
    ({"gas": None}, {}, ALWAYS - {"accumulation"}, {"accumulation", "data-parallel"}, ""),
    ({"gbs": 1024, "gas": 8, "tp": 4}, {}, ALWAYS, set(), "1 x 8 accumulation steps x data-parallel 16 = 128 is not the global "
                                                          "batch 1024: 64"),
    ({"gbs": 1024, "gas": 64, "tp": 4}, {}, ALWAYS - {"accumulation"}, {"accumulation"}, ""),
    ({"mb": 2, "gas": 32, "gbs": 512}, {}, ALWAYS - {"accumulation"}, {"accumulation"}, ""),
    ({"mb": 4, "gas": 32, "gbs": 512}, {}, ALWAYS, set(), "4 x 32 accumulation steps x data-parallel 8 = 1024 is not the global "
                                                          "batch 512: 16"),
    ({"mb": 3}, {}, ALWAYS, set(), "24 does not divide it"),
    ({"pp": 1, "gas": 4}, {}, ALWAYS - {"zero-pipeline"}, {"zero-pipeline"}, "1 x 4 accumulation steps x data-parallel 128 = "
                                                                             "512 is not the global batch 2048: 16"),
    ({"pp": 8}, {"stage": 2}, ALWAYS, set(), "data-parallel 16 = 256"),
    ({"pp": 8}, {"stage": 1}, ALWAYS - {"zero-pipeline"}, {"zero-pipeline"}, "data-parallel 16 = 256"),
    ({}, {"stage": None}, ALWAYS - {"zero-pipeline"}, {"zero-pipeline"}, NEEDED),
    ({}, {"train_batch_size": 2048}, ALWAYS - {"deepspeed-batch"}, {"deepspeed-batch"}, NEEDED),
    ({}, {"train_micro_batch_size_per_gpu": 1}, ALWAYS - {"deepspeed-batch"}, {"deepspeed-batch"}, NEEDED),
    ({}, {"activation_checkpointing": {"partition_activations": True}}, {*ALWAYS, "deepspeed-checkpointing"}, set(), NEEDED),
    ({"overlap": ""}, {}, ALWAYS - {"two-frameworks"}, {"two-frameworks"}, NEEDED),
    ({"overlap": "--context-parallel-size 2", "nodes": 256}, {}, ALWAYS, set(), NEEDED),
    ({"deepspeed": "--deepspeed --deepspeed_config ds.json"}, {}, ALWAYS - {"deepspeed-switch"}, {"deepspeed-switch"}, NEEDED),
    ({"launcher": DEPRECATED}, {}, {*ALWAYS, "launcher"}, set(), NEEDED),
    ({"flash": "--attention-backend flash"}, {}, ALWAYS - {"flash-attention"}, {"flash-attention"}, NEEDED),
    ({"extra": "--recompute-activations"}, {}, {*ALWAYS, "recompute-activations"}, {"selective-method"}, NEEDED),
    ({"extra": "--recompute-granularity selective --recompute-method uniform"}, {}, {*ALWAYS, "selective-method"}, set(), NEEDED),
    ({"extra": "--data-parallel-size 16"}, {}, {*ALWAYS, "data-parallel"}, set(), NEEDED),
    ({"extra": "--data-parallel-size 8"}, {}, ALWAYS, {"data-parallel"}, NEEDED),
    ({"extra": "--dataloader-type=dynamic"}, {}, {*ALWAYS, "dynamic-loader"}, set(), NEEDED),
    ({"extra": "--profile-step-range 50,100 --profile-output-path ./profile"}, {}, {*ALWAYS, "instead"}, {"profile-off"}, NEEDED),
    ({"extra": "--no-async-tensor-model-parallel-allreduce"}, {}, {*ALWAYS, "no-effect"}, set(), NEEDED),
    ({"nodes": 16, "pp": 4, "gas": 512, "gbs": 2048}, {}, ALWAYS - {"accumulation"}, {"accumulation"}, ""),
]


@pytest.mark.parametrize("row", range(len(VARIED)))
def test_the_guides_template_however_it_is_varied(row):
    words, sections, there, absent, accumulation = VARIED[row]
    reading = read(template(**words), ds_config_json=configuration(**sections))  # type: ignore[arg-type]
    found = findings(reading)
    assert there <= set(found)
    assert not absent & set(found)
    assert accumulation in str(found["accumulation"].message if "accumulation" in found else "")
    assert "connections-unless-blackwell" in found
    assert ("log-throughput" in found) and reading.version == "0.16"
    unknown = {key for key in reading.source.settings if unknown_key(key) and MEGATRON.surface().find(key, "0.16") is None}
    assert ("--gradient-accumulation-steps" in unknown) == (words.get("gas", 16) is not None)


def test_a_configuration_that_is_none_of_deepspeed_is_left_alone():
    reading = read(template(deepspeed="", overlap=""), other_json='{"train": {"zero": 3}}')
    assert not {"deepspeed-batch", "zero-pipeline", "two-frameworks", "deepspeed-switch"} & set(findings(reading))


def test_comments_in_json_are_said():
    reading = read(template(), ds_config_json='{"zero_optimization": {"stage": 3} // the most aggressive\n}')
    assert "json.comment" in [message.id for message in reading.messages]
    assert "zero-pipeline" in findings(reading)
