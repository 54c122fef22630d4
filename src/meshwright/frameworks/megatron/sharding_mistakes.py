"""Mistakes about the distributed optimizer, Megatron-FSDP, torch's FSDP2 and offload."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.megatron.asking import FSDP, at, flags, grid_of, has, is_sharded, minor
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading

CHECKS: list[Check] = []
VIRTUAL = ("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout")
_rule = partial(file_rule, CHECKS, source="Megatron-LM megatron/training/arguments.py")


def _fsdp(reading: Reading) -> str | None:
    """The flag of Megatron-FSDP that is given."""
    return next((flag for flag in FSDP if has(reading, flag)), None)


@_rule("megatron.fsdp-checkpoint", "Megatron FSDP only supports fsdp_dtensor checkpoint format")
def _fsdp_checkpoint(reading: Reading, case: Case | None) -> Iterator[Values]:
    flag = _fsdp(reading)
    if flag and minor(reading) >= 14 and flags(reading).text("--ckpt-format") != "fsdp_dtensor":
        key = "--ckpt-format" if has(reading, "--ckpt-format") else flag
        yield at(reading, key, expected="--ckpt-format fsdp_dtensor")


@_rule("megatron.fsdp-nothing",
       "{flag} shards nothing: --data-parallel-sharding-strategy is no_shard by default", severity="warning")
def _fsdp_nothing(reading: Reading, case: Case | None) -> Iterator[Values]:
    flag = _fsdp(reading)
    if flag and flags(reading).text("--data-parallel-sharding-strategy", "no_shard") == "no_shard":
        yield at(reading, flag, flag=flag, expected="--data-parallel-sharding-strategy optim_grads_params")


@_rule("megatron.strategy-alone", "--data-parallel-sharding-strategy does nothing without {flag}", severity="warning")
def _strategy_alone(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--data-parallel-sharding-strategy") and not _fsdp(reading):
        flag = "--use-megatron-fsdp" if minor(reading) >= 14 else "--use-custom-fsdp"
        yield at(reading, "--data-parallel-sharding-strategy", flag=flag, expected=flag)


@_rule(
    "megatron.fsdp-fusion", "{flag} is not supported with gradient accumulation fusion: --no-gradient-accumulation-fusion is needed"
)
def _fsdp_fusion(reading: Reading, case: Case | None) -> Iterator[Values]:
    torch = has(reading, "--use-torch-fsdp2")
    flag = "--use-torch-fsdp2" if torch else _fsdp(reading) if minor(reading) < 14 else None
    if flag and not has(reading, "--no-gradient-accumulation-fusion"):
        if not torch and flags(reading).text("--data-parallel-sharding-strategy") not in {"optim_grads", "optim_grads_params"}:
            return
        yield at(reading, flag, flag=flag, expected="--no-gradient-accumulation-fusion")


@_rule("megatron.torch-fsdp2", "--use-torch-fsdp2 {reason}")
def _torch_fsdp2(reading: Reading, case: Case | None) -> Iterator[Values]:
    if not has(reading, "--use-torch-fsdp2"):
        return
    values = flags(reading)
    formats = {"torch_dist"} if minor(reading) < 12 else {"torch_dist", "torch_dcp"}
    wrong = [
        (grid_of(reading).pp > 1, "is not supported with pipeline parallelism", "--pipeline-model-parallel-size 1"),
        (values.degree("--expert-model-parallel-size") > 1, "is not supported with expert parallelism",
         "--expert-model-parallel-size 1"),
        (has(reading, "--use-distributed-optimizer"), "is not supported with MCore's distributed optimizer",
         "no --use-distributed-optimizer"),
        (values.text("--ckpt-format", "torch_dist") not in formats, f"requires --ckpt-format "
                                                                    f"{' or '.join(sorted(formats, reverse=True))}",
         "--ckpt-format torch_dist"),
        (not has(reading, "--untie-embeddings-and-output-weights"), "requires --untie-embeddings-and-output-weights",
         "--untie-embeddings-and-output-weights"),
        (has(reading, "--fp16"), "not supported with fp16 yet", "--bf16"),
    ]
    for broken, reason, expected in wrong:
        if broken:
            yield at(reading, "--use-torch-fsdp2", reason=reason, expected=expected)


@_rule("megatron.parameter-gather-alone", "--overlap-param-gather only supported with distributed optimizer or megatron fsdp")
def _parameter_gather_alone(reading: Reading, case: Case | None) -> Iterator[Values]:
    sharded = has(reading, "--use-distributed-optimizer") or is_sharded(reading)
    if has(reading, "--overlap-param-gather") and not sharded:
        yield at(reading, "--overlap-param-gather", expected="--use-distributed-optimizer")


@_rule("megatron.parameter-gather-gradients", "Must use --overlap-param-gather with --overlap-grad-reduce")
def _parameter_gather_gradients(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.layout is not None and reading.layout.overlap.parameter_gather:
        return  # a limit of the layout
    if has(reading, "--overlap-param-gather") and not has(reading, "--overlap-grad-reduce"):
        yield at(reading, "--overlap-param-gather", expected="--overlap-grad-reduce")


@_rule("megatron.optimizer-overlap", "--overlap-param-gather-with-optimizer-step {reason}")
def _optimizer_overlap(reading: Reading, case: Case | None) -> Iterator[Values]:
    flag = "--overlap-param-gather-with-optimizer-step"
    if not has(reading, flag):
        return
    virtual = any(has(reading, other) for other in VIRTUAL)
    wrong = [
        (
            not has(reading, "--use-distributed-optimizer"),
            "only supported with distributed optimizer",
            "--use-distributed-optimizer",
        ),
        (not has(reading, "--overlap-param-gather"), "must be used with --overlap-param-gather", "--overlap-param-gather"),
        (not virtual, "only supported with interleaved pipeline parallelism", "--num-virtual-stages-per-pipeline-rank"),
    ]
    for broken, reason, expected in wrong:
        if broken:
            yield at(reading, flag, reason=reason, expected=expected)


@_rule("megatron.offload-precision-aware",
       "The optimizer cpu offload must be used in conjunction with `--use-precision-aware-optimizer`, as the hybrid device "
       "optimizer reuses the code path of this flag.")
def _offload_precision_aware(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--optimizer-cpu-offload") and not has(reading, "--use-precision-aware-optimizer"):
        yield at(reading, "--optimizer-cpu-offload", expected="--use-precision-aware-optimizer")


@_rule("megatron.precision-aware-alone", "--use-precision-aware-optimizer only supported with distributed optimizer")
def _precision_aware_alone(reading: Reading, case: Case | None) -> Iterator[Values]:
    sharded = has(reading, "--use-distributed-optimizer") or is_sharded(reading)
    if has(reading, "--use-precision-aware-optimizer") and not sharded:
        yield at(reading, "--use-precision-aware-optimizer", expected="--use-distributed-optimizer")


@_rule("megatron.cpu-offloading-pipeline", "Currently there is no support for Pipeline parallelism with CPU offloading")
def _cpu_offloading_pipeline(reading: Reading, case: Case | None) -> Iterator[Values]:
    layers = flags(reading).int("--cpu-offloading-num-layers", 0)
    if layers and grid_of(reading).pp > 1:
        yield at(reading, "--cpu-offloading-num-layers", expected="no --cpu-offloading-num-layers")
