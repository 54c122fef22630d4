"""Mistakes about the distributed optimizer, Megatron-FSDP, torch's FSDP2 and offload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.megatron.asking import ARGUMENTS, FSDP, at, flags, grid_of, has, is_sharded, minor
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

VIRTUAL = ("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout")
_TORCH, _STEP, _STRATEGY = "--use-torch-fsdp2", "--overlap-param-gather-with-optimizer-step", "--data-parallel-sharding-strategy"
_FUSION, _DISTRIBUTED = "--no-gradient-accumulation-fusion", "--use-distributed-optimizer"


def _fsdp(reading: Reading) -> str | None:
    """The flag of Megatron-FSDP that is given."""
    return next((flag for flag in FSDP if has(reading, flag)), None)


def _fsdp_checkpoint(reading: Reading, case: Case | None) -> Iterator[Values]:
    flag = _fsdp(reading)
    if flag and minor(reading) >= 14 and flags(reading).text("--ckpt-format") != "fsdp_dtensor":
        key = "--ckpt-format" if has(reading, "--ckpt-format") else flag
        yield at(reading, key, expected="--ckpt-format fsdp_dtensor")


def _fsdp_nothing(reading: Reading, case: Case | None) -> Iterator[Values]:
    flag = _fsdp(reading)
    if flag and flags(reading).text(_STRATEGY, "no_shard") == "no_shard":
        yield at(reading, flag, flag=flag, expected=f"{_STRATEGY} optim_grads_params")


def _strategy_alone(reading: Reading) -> Values:
    flag = "--use-megatron-fsdp" if minor(reading) >= 14 else "--use-custom-fsdp"
    return {"flag": flag, "expected": flag}


def _fsdp_fusion(reading: Reading, case: Case | None) -> Iterator[Values]:
    torch = has(reading, _TORCH)
    flag = _TORCH if torch else _fsdp(reading) if minor(reading) < 14 else None
    if flag and not has(reading, _FUSION):
        if not torch and flags(reading).text(_STRATEGY) not in {"optim_grads", "optim_grads_params"}:
            return
        yield at(reading, flag, flag=flag, expected=_FUSION)


def _other_format(reading: Reading) -> Values | None:
    formats = ("torch_dist",) if minor(reading) < 12 else ("torch_dist", "torch_dcp")
    wrong = flags(reading).text("--ckpt-format", "torch_dist") not in formats
    return values_if(wrong, reason=f"requires --ckpt-format {' or '.join(formats)}")


def _has_experts(reading: Reading) -> bool:
    return flags(reading).degree("--expert-model-parallel-size") > 1


def _is_whole(reading: Reading) -> bool:
    """Whether neither the distributed optimizer nor an FSDP shards anything."""
    return not has(reading, _DISTRIBUTED) and not is_sharded(reading)


def _no_overlap_of_layout(reading: Reading) -> bool:
    """Whether the layout gathers nothing beside compute: where it does, a limit of the layout says the same."""
    return reading.layout is None or not reading.layout.overlap.parameter_gather


CHECKS = checks("megatron", (
    Mistake("fsdp-checkpoint", "Megatron FSDP only supports fsdp_dtensor checkpoint format", _fsdp_checkpoint),
    Mistake("fsdp-nothing", "{flag} shards nothing: --data-parallel-sharding-strategy is no_shard by default", _fsdp_nothing,
            "warning"),
    Mistake("strategy-alone", "--data-parallel-sharding-strategy does nothing without {flag}",
            At(_STRATEGY, without=FSDP, when=_strategy_alone), "warning"),
    Mistake("fsdp-fusion", "{flag} is not supported with gradient accumulation fusion: --no-gradient-accumulation-fusion is needed",
            _fsdp_fusion),
    Mistake("torch-fsdp2", "--use-torch-fsdp2 {reason}",
            (At(_TORCH, "--pipeline-model-parallel-size 1", when=lambda reading: grid_of(reading).pp > 1,
                values={"reason": "is not supported with pipeline parallelism"}),
             At(_TORCH, "--expert-model-parallel-size 1", when=_has_experts,
                values={"reason": "is not supported with expert parallelism"}),
             At(_TORCH, f"no {_DISTRIBUTED}", beside=(_DISTRIBUTED,),
                values={"reason": "is not supported with MCore's distributed optimizer"}),
             At(_TORCH, "--ckpt-format torch_dist", when=_other_format),
             At(_TORCH, "--untie-embeddings-and-output-weights", without=("--untie-embeddings-and-output-weights",),
                values={"reason": "requires --untie-embeddings-and-output-weights"}),
             At(_TORCH, "--bf16", beside=("--fp16",), values={"reason": "not supported with fp16 yet"}))),
    Mistake("parameter-gather-alone", "--overlap-param-gather only supported with distributed optimizer or megatron fsdp",
            At("--overlap-param-gather", _DISTRIBUTED, when=_is_whole)),
    Mistake("parameter-gather-gradients", "Must use --overlap-param-gather with --overlap-grad-reduce",
            At("--overlap-param-gather", "--overlap-grad-reduce", without=("--overlap-grad-reduce",), when=_no_overlap_of_layout)),
    Mistake("optimizer-overlap", "--overlap-param-gather-with-optimizer-step {reason}",
            (At(_STEP, _DISTRIBUTED, without=(_DISTRIBUTED,), values={"reason": "only supported with distributed optimizer"}),
             At(_STEP, "--overlap-param-gather", without=("--overlap-param-gather",),
                values={"reason": "must be used with --overlap-param-gather"}),
             At(_STEP, "--num-virtual-stages-per-pipeline-rank", without=VIRTUAL,
                values={"reason": "only supported with interleaved pipeline parallelism"}))),
    Mistake("offload-precision-aware", "The optimizer cpu offload must be used in conjunction with "
            "`--use-precision-aware-optimizer`, as the hybrid device optimizer reuses the code path of this flag.",
            At("--optimizer-cpu-offload", "--use-precision-aware-optimizer", without=("--use-precision-aware-optimizer",))),
    Mistake("precision-aware-alone", "--use-precision-aware-optimizer only supported with distributed optimizer",
            At("--use-precision-aware-optimizer", _DISTRIBUTED, when=_is_whole)),
    Mistake("cpu-offloading-pipeline", "Currently there is no support for Pipeline parallelism with CPU offloading",
            At("--cpu-offloading-num-layers", "no --cpu-offloading-num-layers",
               when=lambda reading: flags(reading).int("--cpu-offloading-num-layers", 0) and grid_of(reading).pp > 1)),
), given=has, source=ARGUMENTS)
