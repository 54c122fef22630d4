"""What Megatron-DeepSpeed takes although it is wrong, and where its flags and its JSON disagree (commit 4efb479d)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, differs, equal, is_true, place_of, whole
from meshwright.frameworks.deepspeed.json_config import ZERO
from meshwright.frameworks.deepspeed.mistakes import json_checks
from meshwright.frameworks.deepspeed.mistakes import unknown_key as unknown_json_key
from meshwright.frameworks.rules import At, Mistake, checks, values_if
from meshwright.frameworks.tables import rows

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading, Severity

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_CHECKPOINTING = {
    "partition_activations": "--partition-activations", "cpu_checkpointing": "--checkpoint-in-cpu",
    "contiguous_memory_optimization": "--contigious-checkpointing",
}
"""Key of ``activation_checkpointing`` -> the flag that overrides it."""
_GRID = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--ds-sequence-parallel-size")


@cache
def forks() -> Mapping[str, str]:
    """Flag -> whose fork of Megatron-DeepSpeed has it (``forks.csv``)."""
    return {row["flag"]: row["fork"] for row in rows(__package__, "forks.csv")}


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """argparse stops at unknown flags; the JSON is DeepSpeed's."""
    if key.startswith("-"):
        return "error", "error: unrecognized arguments: {key}"
    return unknown_json_key(key)


def _on(reading: Reading, flag: str) -> bool:
    return flag in reading.source.settings


def _count(reading: Reading, key: str, default: int | None = None) -> int | None:
    number = whole(reading.source.value(key, default))
    return default if number is None else number


def _pipeline_engine(reading: Reading) -> bool:
    """Whether it runs, or was meant to: ``--deepspeed`` itself may have been forgotten."""
    return (_on(reading, "--deepspeed") or _on(reading, "--deepspeed_config")) and not _on(reading, "--no-pipeline-parallel")


def _stage(reading: Reading) -> int:
    return _count(reading, f"{ZERO}.stage") or (
        0 if f"{ZERO}.stage" in reading.source.settings else _count(reading, "--zero-stage", 0) or 0
    )


def _degrees(reading: Reading) -> tuple[int, int, int]:
    """Tensor, pipeline and sequence ranks."""
    tp, pp, sp = (_count(reading, flag, 1) or 1 for flag in _GRID)
    return tp, pp, sp


def _disagree(reading: Reading, case: Case | None) -> Iterator[Values]:
    pairs = (("--micro-batch-size", "train_micro_batch_size_per_gpu"), ("--global-batch-size", "train_batch_size"),
             ("--zero-stage", f"{ZERO}.stage"))
    for flag, key in pairs:
        one, other = _count(reading, flag), _count(reading, key)
        if one is not None and other is not None and one != other:
            yield {"flag": flag, "key": key, "value": one, "other": other, "expected": other, "path": place_of(reading, flag)}
    key = f"{ZERO}.stage"
    if _count(reading, key, 0) == 3 and not _on(reading, "--zero-stage"):
        yield {"flag": "--zero-stage", "key": key, "value": 0, "other": 3, "expected": 3, "path": place_of(reading, key)}
    for flag in ("bf16", "fp16"):
        enabled, on = reading.source.value(f"{flag}.enabled"), _on(reading, f"--{flag}")
        if isinstance(enabled, bool) and enabled != on and (enabled or on):
            yield {"flag": f"--{flag}", "key": f"{flag}.enabled", "value": on, "other": enabled, "expected": enabled,
                   "path": place_of(reading, f"{flag}.enabled")}


def _zero_engine(reading: Reading, case: Case | None) -> Iterator[Values]:
    _, stages, _ = _degrees(reading)
    if _stage(reading) >= 2 and _pipeline_engine(reading):
        even = " even with one stage" if stages == 1 else f" with {stages} stages"
        expected = "--no-pipeline-parallel" if stages == 1 else "stage 0 or 1, or one stage and --no-pipeline-parallel"
        yield {"value": _stage(reading), "even": even, "expected": expected, "path": place_of(reading, f"{ZERO}.stage")}


def _several_stages(reading: Reading) -> Values | None:
    _, stages, _ = _degrees(reading)
    return values_if(stages > 1, value=stages)


def _world(reading: Reading, case: Case | None) -> Iterator[Values]:
    world, (tp, pp, sp) = reading.said.devices, _degrees(reading)
    if world and world % (tp * pp * sp):
        yield {"world": world, "tp": tp, "pp": pp, "sp": sp, "value": world, "path": place_of(reading, _GRID[0])}


def _sequence_beside(reading: Reading) -> Values | None:
    tp, pp, sp = _degrees(reading)
    return values_if(sp > 1 and tp * pp > 1, value=sp)


def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.environment.get(CONNECTIONS)
    sequence = _on(reading, "--sequence-parallel") and _degrees(reading)[0] > 1
    plain = not _on(reading, "--deepspeed") and not _on(reading, "--no-async-tensor-model-parallel-allreduce")
    scripts = any(key.startswith("-") for key in reading.source.settings)
    if scripts and (sequence or plain) and differs(setting, "1"):
        yield at(setting, "1", what="sequence parallelism" if sequence else "async gradient all reduce")


def _is_selective(reading: Reading) -> bool:
    return reading.source.value("--recompute-granularity") == "selective" or _on(reading, "--recompute-activations")


def _experts(reading: Reading) -> Values | None:
    tp, pp, _ = _degrees(reading)
    experts = str(reading.source.value("--num-experts"))
    return values_if(experts not in {"1", "('1',)"} and tp > 1 and pp > 1 and _pipeline_engine(reading), value=experts)


def _comment(reading: Reading, case: Case | None) -> Iterator[Values]:
    for remark in reading.source.remarks:
        if remark.id == "json.comment":
            yield {"line": remark.values["line"], "value": "//", "path": remark.path}


_SEQUENCE, _ZERO_BUBBLE = "--sequence-parallel", "--enable-zbh1-pipeline"
_MISTAKES = (
    Mistake("switch", "--deepspeed_config without --deepspeed: pretrain_gpt.py stops at \"'Namespace' object has no attribute "
            "'deepspeed_config_dict'\"", At("--deepspeed_config", "--deepspeed", without=("--deepspeed",), values={"value": None})),
    Mistake("no-config", "--deepspeed without --deepspeed_config: DeepSpeed is given no configuration",
            At("--deepspeed", "--deepspeed_config", without=("--deepspeed_config",), values={"value": None})),
    Mistake("no-json", "the JSON of --deepspeed_config is not given: ZeRO and batch are read from the flags, though it decides "
            "them", At("--deepspeed_config", when=lambda reading: all(key.startswith("-") for key in reading.source.settings)),
            "advice"),
    Mistake("disagree", "{flag} is {value}, {key} in the JSON is {other}: the JSON wins", _disagree),
    Mistake("zero-engine", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism: stage {value}, and the pipeline engine "
            "runs{even}; give {expected}", _zero_engine),
    Mistake("no-pipeline", "pipeline_model_parallel_size must be 1 if pipeline parallel is disabled",
            At(_GRID[1], 1, beside=("--no-pipeline-parallel",), when=_several_stages)),
    Mistake("world", "world size ({world}) is not divisible by tensor parallel size ({tp}) times pipeline parallel size ({pp}) "
            "times seqence parallel size ({sp})", _world),
    Mistake("two-sequence-parallels", "sequence_parallel_size > 1 enables DeepSpeed's sequence parallel, which is not compatible "
            "with Megatron-LM's sequence parallel. Please remove \"--sequence_parallel\" argument",
            At(_SEQUENCE, when=lambda reading: _degrees(reading)[2] > 1, values={"value": _SEQUENCE})),
    Mistake("sequence-grid", "DeepSpeed's sequence parallel does not work with tensor parallel or pipeline parallel",
            At(_GRID[2], 1, when=_sequence_beside)),
    Mistake("sequence-parallel", "--sequence-parallel with tensor parallelism 1 is switched off without a word",
            At(_SEQUENCE, when=lambda reading: _degrees(reading)[0] == 1, values={"value": _SEQUENCE}), "warning"),
    Mistake("connections", "Using {what} requires setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1", _connections),
    Mistake("selective-method", "recompute method is not yet supported for selective recomputing granularity",
            At("--recompute-method", when=_is_selective)),
    Mistake("block-recompute", "the pipeline engine does not apply recompute method block: nothing is recomputed",
            At("--recompute-method", "uniform", equal("block"), when=_pipeline_engine), "warning"),
    Mistake("checkpointing-json", "{key} in the JSON has no effect: the flags ({flag} {state}) override it",
            tuple(At(f"activation_checkpointing.{name}", flag, is_true, without=(flag,),
                     values={"flag": flag, "state": "not given"})
                  for name, flag in _CHECKPOINTING.items()), "warning"),
    Mistake("interleaved", "--num-layers-per-virtual-pipeline-stage is parsed, but the DeepSpeed engine has no interleaving",
            At("--num-layers-per-virtual-pipeline-stage"), "warning"),
    Mistake("distributed-optimizer", "--use-distributed-optimizer has no effect under --deepspeed: the ZeRO stage of the JSON "
            "decides",
            At("--use-distributed-optimizer", f"{ZERO}.stage", beside=("--deepspeed",),
               values={"value": "--use-distributed-optimizer"}), "warning"),
    Mistake("expert-partition", "Pipe and/or Grad partitioning are not supported for MoE model",
            At("--num-experts", "tensor or pipeline parallelism 1", when=_experts)),
    Mistake("zero-bubble", "{words}",
            (At(_ZERO_BUBBLE, without=("--deepspeed",),
                values={"words": "Use DeepSpeed to use zero-bubble H1 pipeline", "value": None}),
             At(_SEQUENCE, beside=(_ZERO_BUBBLE,),
                values={"words": "Sequence Parallel not tested, proceed at own will by removing this line", "value": _SEQUENCE}))),
    Mistake("comment", "line {line} holds a comment: the file is read by json.load, which refuses it", _comment),
)
_SOURCE = "Megatron-DeepSpeed 4efb479d, megatron/arguments.py"
CHECKS = (*json_checks("megatron-deepspeed"), *checks("megatron-deepspeed", _MISTAKES, source=_SOURCE))
