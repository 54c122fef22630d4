"""What Megatron-DeepSpeed takes although it is wrong, and where its flags and its JSON disagree (commit 4efb479d)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, differs, place_of, whole
from meshwright.frameworks.deepspeed.json_config import ZERO
from meshwright.frameworks.deepspeed.mistakes import json_checks
from meshwright.frameworks.deepspeed.mistakes import unknown_key as unknown_json_key
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

CHECKS: list[Check] = json_checks("megatron-deepspeed")
_rule = partial(file_rule, CHECKS, source="Megatron-DeepSpeed 4efb479d, megatron/arguments.py")
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_GRID = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--ds-sequence-parallel-size")


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


@_rule("megatron-deepspeed.switch", "--deepspeed_config without --deepspeed: pretrain_gpt.py stops at "
       "\"'Namespace' object has no attribute 'deepspeed_config_dict'\"")
def _switch(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _on(reading, "--deepspeed_config") and not _on(reading, "--deepspeed"):
        yield {"expected": "--deepspeed", "path": place_of(reading, "--deepspeed_config")}


@_rule("megatron-deepspeed.no-config", "--deepspeed without --deepspeed_config: DeepSpeed is given no configuration")
def _no_config(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _on(reading, "--deepspeed") and not _on(reading, "--deepspeed_config"):
        yield {"expected": "--deepspeed_config", "path": place_of(reading, "--deepspeed")}


@_rule("megatron-deepspeed.no-json", "the JSON of --deepspeed_config is not given: ZeRO and batch are read from the flags, though "
                                     "it decides them", severity="advice")
def _no_json(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _on(reading, "--deepspeed_config") and all(key.startswith("-") for key in reading.source.settings):
        yield {"value": reading.source.value("--deepspeed_config"), "path": place_of(reading, "--deepspeed_config")}


@_rule("megatron-deepspeed.disagree", "{flag} is {value}, {key} in the JSON is {other}: the JSON wins", severity="error")
def _disagree(reading: Reading, case: Case | None) -> Iterator[Values]:
    pairs = (("--micro-batch-size", "train_micro_batch_size_per_gpu"), ("--global-batch-size", "train_batch_size"),
             ("--zero-stage", f"{ZERO}.stage"))
    for flag, key in pairs:
        one, other = _count(reading, flag), _count(reading, key)
        if one is not None and other is not None and one != other:
            yield {"flag": flag, "key": key, "value": one, "other": other, "expected": other, "path": place_of(reading, flag)}
    stage = _count(reading, f"{ZERO}.stage", 0)
    if stage == 3 and not _on(reading, "--zero-stage"):
        yield {
            "flag": "--zero-stage",
            "key": f"{ZERO}.stage",
            "value": 0,
            "other": 3,
            "expected": 3,
            "path": place_of(reading, f"{ZERO}.stage"),
        }
    for flag in ("bf16", "fp16"):
        enabled = reading.source.value(f"{flag}.enabled")
        if isinstance(enabled, bool) and enabled != _on(reading, f"--{flag}") and (enabled or _on(reading, f"--{flag}")):
            yield {"flag": f"--{flag}", "key": f"{flag}.enabled", "value": _on(reading, f"--{flag}"), "other": enabled,
                   "expected": enabled,
                   "path": place_of(reading, f"{flag}.enabled")}


@_rule("megatron-deepspeed.zero-engine", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism: stage {value}, and the "
                                         "pipeline engine runs{even}; give {expected}")
def _zero_engine(reading: Reading, case: Case | None) -> Iterator[Values]:
    stages = _count(reading, "--pipeline-model-parallel-size", 1) or 1
    if _stage(reading) >= 2 and _pipeline_engine(reading):
        even = " even with one stage" if stages == 1 else f" with {stages} stages"
        expected = "--no-pipeline-parallel" if stages == 1 else "stage 0 or 1, or one stage and --no-pipeline-parallel"
        yield {"value": _stage(reading), "even": even, "expected": expected, "path": place_of(reading, f"{ZERO}.stage")}


@_rule("megatron-deepspeed.no-pipeline", "pipeline_model_parallel_size must be 1 if pipeline parallel is disabled")
def _no_pipeline(reading: Reading, case: Case | None) -> Iterator[Values]:
    stages = _count(reading, "--pipeline-model-parallel-size", 1) or 1
    if _on(reading, "--no-pipeline-parallel") and stages > 1:
        yield {"value": stages, "expected": 1, "path": place_of(reading, "--pipeline-model-parallel-size")}


@_rule("megatron-deepspeed.world", "world size ({world}) is not divisible by tensor parallel size ({tp}) times pipeline parallel "
                                   "size ({pp}) times seqence parallel size ({sp})")
def _world(reading: Reading, case: Case | None) -> Iterator[Values]:
    world = reading.said.devices
    tp, pp, sp = (_count(reading, flag, 1) or 1 for flag in _GRID)
    if world and world % (tp * pp * sp):
        yield {"world": world, "tp": tp, "pp": pp, "sp": sp, "value": world, "path": place_of(reading, _GRID[0])}


@_rule("megatron-deepspeed.two-sequence-parallels", "sequence_parallel_size > 1 enables DeepSpeed's sequence parallel, "
                                                    "which is not compatible "
       "with Megatron-LM's sequence parallel. Please remove \"--sequence_parallel\" argument")
def _two_sequence_parallels(reading: Reading, case: Case | None) -> Iterator[Values]:
    if (_count(reading, "--ds-sequence-parallel-size", 1) or 1) > 1 and _on(reading, "--sequence-parallel"):
        yield {"value": "--sequence-parallel", "path": place_of(reading, "--sequence-parallel")}


@_rule("megatron-deepspeed.sequence-grid", "DeepSpeed's sequence parallel does not work with tensor parallel or pipeline parallel")
def _sequence_grid(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp, pp, sp = (_count(reading, flag, 1) or 1 for flag in _GRID)
    if sp > 1 and tp * pp > 1:
        yield {"value": sp, "expected": 1, "path": place_of(reading, "--ds-sequence-parallel-size")}


@_rule("megatron-deepspeed.sequence-parallel", "--sequence-parallel with tensor parallelism 1 is switched off without a word",
       severity="warning")
def _sequence_parallel(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _on(reading, "--sequence-parallel") and (_count(reading, "--tensor-model-parallel-size", 1) or 1) == 1:
        yield {"value": "--sequence-parallel", "path": place_of(reading, "--sequence-parallel")}


@_rule("megatron-deepspeed.connections", "Using {what} requires setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1")
def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.environment.get(CONNECTIONS)
    tensor = (_count(reading, "--tensor-model-parallel-size", 1) or 1) > 1
    sequence = _on(reading, "--sequence-parallel") and tensor
    plain = not _on(reading, "--deepspeed") and not _on(reading, "--no-async-tensor-model-parallel-allreduce")
    scripts = any(key.startswith("-") for key in reading.source.settings)
    if scripts and (sequence or plain) and differs(setting, "1"):
        what = "sequence parallelism" if sequence else "async gradient all reduce"
        yield at(setting, "1", what=what)


@_rule("megatron-deepspeed.selective-method", "recompute method is not yet supported for selective recomputing granularity")
def _selective_method(reading: Reading, case: Case | None) -> Iterator[Values]:
    selective = reading.source.value("--recompute-granularity") == "selective" or _on(reading, "--recompute-activations")
    if selective and _on(reading, "--recompute-method"):
        yield {"value": reading.source.value("--recompute-method"), "path": place_of(reading, "--recompute-method")}


@_rule("megatron-deepspeed.block-recompute", "the pipeline engine does not apply recompute method block: nothing is recomputed",
       severity="warning")
def _block_recompute(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.source.value("--recompute-method") == "block" and _pipeline_engine(reading):
        yield {"value": "block", "expected": "uniform", "path": place_of(reading, "--recompute-method")}


@_rule("megatron-deepspeed.checkpointing-json", "{key} in the JSON has no effect: the flags ({flag} {state}) override it",
       severity="warning")
def _checkpointing_json(reading: Reading, case: Case | None) -> Iterator[Values]:
    flags = {"partition_activations": "--partition-activations", "cpu_checkpointing": "--checkpoint-in-cpu",
             "contiguous_memory_optimization": "--contigious-checkpointing"}
    for name, flag in flags.items():
        key = f"activation_checkpointing.{name}"
        if reading.source.value(key) is True and not _on(reading, flag):
            yield {"key": key, "flag": flag, "state": "not given", "value": True, "expected": flag, "path": place_of(reading, key)}


@_rule("megatron-deepspeed.interleaved", "--num-layers-per-virtual-pipeline-stage is parsed, but the DeepSpeed engine has "
                                         "no interleaving",
       severity="warning")
def _interleaved(reading: Reading, case: Case | None) -> Iterator[Values]:
    flag = "--num-layers-per-virtual-pipeline-stage"
    if _on(reading, flag):
        yield {"value": reading.source.value(flag), "path": place_of(reading, flag)}


@_rule("megatron-deepspeed.distributed-optimizer", "--use-distributed-optimizer has no effect under --deepspeed: the ZeRO "
                                                   "stage of the JSON decides",
       severity="warning")
def _distributed_optimizer(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _on(reading, "--use-distributed-optimizer") and _on(reading, "--deepspeed"):
        yield {
            "value": "--use-distributed-optimizer",
            "expected": f"{ZERO}.stage",
            "path": place_of(reading, "--use-distributed-optimizer"),
        }


@_rule("megatron-deepspeed.expert-partition", "Pipe and/or Grad partitioning are not supported for MoE model")
def _expert_partition(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp, pp, _ = (_count(reading, flag, 1) or 1 for flag in _GRID)
    experts = str(reading.source.value("--num-experts", "1"))
    if experts not in {"1", "('1',)"} and tp > 1 and pp > 1 and _pipeline_engine(reading):
        yield {"value": experts, "expected": "tensor or pipeline parallelism 1", "path": place_of(reading, "--num-experts")}


@_rule("megatron-deepspeed.zero-bubble", "{words}")
def _zero_bubble(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _on(reading, "--enable-zbh1-pipeline"):
        if not _on(reading, "--deepspeed"):
            yield {"words": "Use DeepSpeed to use zero-bubble H1 pipeline", "path": place_of(reading, "--enable-zbh1-pipeline")}
        if _on(reading, "--sequence-parallel"):
            yield {"words": "Sequence Parallel not tested, proceed at own will by removing this line",
                   "value": "--sequence-parallel",
                   "path": place_of(reading, "--sequence-parallel")}


@_rule("megatron-deepspeed.comment", "line {line} holds a comment: the file is read by json.load, which refuses it",
       severity="error")
def _comment(reading: Reading, case: Case | None) -> Iterator[Values]:
    for remark in reading.source.remarks:
        if remark.id == "json.comment":
            yield {"line": remark.values["line"], "value": "//", "path": remark.path}
