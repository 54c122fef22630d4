"""The environment, the launcher, logs and profiles of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.megatron.asking import FSDP, at, flags, grid_of, has, is_complete, minor
from meshwright.frameworks.megatron.environment import CONNECTIONS, needs_one_connection
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading

CHECKS: list[Check] = []
_rule = partial(file_rule, CHECKS, source="Megatron-LM megatron/training/arguments.py")
_nccl = partial(file_rule, CHECKS, source="NCCL environment variables")
_torch = partial(file_rule, CHECKS, source="PyTorch CUDA semantics: PYTORCH_CUDA_ALLOC_CONF")
_SETTING = re.compile(r"^(?:export[ \t]+)?((?:NCCL|CUDA|PYTORCH|TORCH|GLOO|UCX|NVTE|OMP)_[A-Z0-9_]+)=(\S+)", re.MULTILINE)


def _variable(reading: Reading, name: str) -> str | None:
    """The value that the launch gives a variable; None where it gives none, or one that is not known."""
    setting = reading.source.environment.get(name)
    return setting.value if setting is not None and isinstance(setting.value, str) else None


def _known(reading: Reading, name: str) -> bool:
    """Whether it is known what a variable is."""
    setting = reading.source.environment.get(name)
    return setting is None or setting.value is not UNKNOWN


def _place(reading: Reading, name: str, /, **values: object) -> Values:
    """Value and place of a variable, then the values of the words."""
    setting = reading.source.environment.get(name)
    return {**({"value": setting.value, "path": setting.place} if setting else {}), **values}


# CUDA_DEVICE_MAX_CONNECTIONS.


def _wants_one(reading: Reading, family: str | None) -> bool:
    """Whether the parser stops because the variable is not 1."""
    free = (*FSDP, "--use-torch-fsdp2", "--overlap-moe-expert-parallel-comm")
    if any(has(reading, flag) for flag in free):
        return False
    grid = grid_of(reading)
    needs = needs_one_connection(grid.tp, grid.cp, family, minor(reading))
    return needs and _known(reading, CONNECTIONS) and _variable(reading, CONNECTIONS) != "1"


@_rule(
    "megatron.connections",
    "Using tensor model parallelism or context parallelism require setting the environment variable "
    "CUDA_DEVICE_MAX_CONNECTIONS to 1",
)
def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    if case is not None and _wants_one(reading, case.cluster.device.family):
        yield _place(reading, CONNECTIONS, expected="export CUDA_DEVICE_MAX_CONNECTIONS=1")


@_rule("megatron.connections-unless-blackwell",
       "Using tensor model parallelism or context parallelism require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS "
       "to 1 (before Blackwell; which device it is, is not known here)", severity="warning")
def _connections_maybe(reading: Reading, case: Case | None) -> Iterator[Values]:
    if case is None and _wants_one(reading, None):
        yield _place(reading, CONNECTIONS, expected="export CUDA_DEVICE_MAX_CONNECTIONS=1")


@_rule("megatron.connections-fsdp", "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset.")
def _connections_fsdp(reading: Reading, case: Case | None) -> Iterator[Values]:
    sharded = any(has(reading, flag) for flag in FSDP) or (has(reading, "--use-torch-fsdp2") and minor(reading) >= 12)
    if sharded and _variable(reading, CONNECTIONS) == "1":
        yield _place(reading, CONNECTIONS, expected="unset CUDA_DEVICE_MAX_CONNECTIONS")


@_rule("megatron.connections-experts",
       "CUDA_DEVICE_MAX_CONNECTIONS=1 puts the expert all-to-all behind the compute that it is to overlap: "
       "--overlap-moe-expert-parallel-comm wants more queues", severity="warning")
def _connections_experts(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--overlap-moe-expert-parallel-comm") and _variable(reading, CONNECTIONS) == "1":
        yield _place(reading, CONNECTIONS, expected="32")


# NCCL and the allocator.


@_nccl("megatron.nccl-debug", "NCCL_DEBUG={level} logs each communicator and each call: for a search for faults, not for a run",
       severity="advice")
def _nccl_debug(reading: Reading, case: Case | None) -> Iterator[Values]:
    level = (_variable(reading, "NCCL_DEBUG") or "").upper()
    if level in {"INFO", "TRACE"}:
        yield _place(reading, "NCCL_DEBUG", level=level, expected="NCCL_DEBUG=WARN")


@_nccl("megatron.nccl-off", "{name}={setting} takes a path away from NCCL: {what}", severity="warning")
def _nccl_off(reading: Reading, case: Case | None) -> Iterator[Values]:
    what = {
        "NCCL_IB_DISABLE": "between nodes it goes through TCP sockets instead of InfiniBand or RoCE",
        "NCCL_P2P_DISABLE": "within a node it goes through host memory instead of NVLink",
        "NCCL_SHM_DISABLE": "within a node it goes through the network where peers cannot reach each other",
    }
    for name, words in what.items():
        if (value := _variable(reading, name)) not in {None, "", "0"}:
            yield _place(reading, name, name=name, setting=value, what=words, expected=f"unset {name}")


@_torch("megatron.blocking", "CUDA_LAUNCH_BLOCKING=1 waits for each kernel: nothing overlaps", severity="warning")
def _blocking(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _variable(reading, "CUDA_LAUNCH_BLOCKING") == "1":
        yield _place(reading, "CUDA_LAUNCH_BLOCKING", expected="unset CUDA_LAUNCH_BLOCKING")


@_torch("megatron.segments",
        "expandable segments of the allocator are not on: reserved memory grows above what is allocated by fragments",
        severity="advice")
def _segments(reading: Reading, case: Case | None) -> Iterator[Values]:
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    texts = [_variable(reading, name) or "" for name in names]
    if all(_known(reading, name) for name in names) and not any("expandable_segments:True" in text for text in texts):
        yield _place(reading, names[0], expected="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")


@_torch(
    "megatron.allocator-split",
    "max_split_size_mb has no part in expandable segments: PYTORCH_CUDA_ALLOC_CONF={setting}",
    severity="advice",
)
def _allocator_split(reading: Reading, case: Case | None) -> Iterator[Values]:
    text = _variable(reading, "PYTORCH_CUDA_ALLOC_CONF") or ""
    if "expandable_segments:True" in text and "max_split_size_mb" in text:
        yield _place(reading, "PYTORCH_CUDA_ALLOC_CONF", setting=text, expected="expandable_segments:True")


@_torch("megatron.set-twice", "{name} is set to {first} and then to {last}, which is what counts", severity="warning")
def _set_twice(reading: Reading, case: Case | None) -> Iterator[Values]:
    for document in reading.source.documents:
        seen: dict[str, str] = {}
        for found in _SETTING.finditer(document.text):
            name, value = found[1], found[2].strip("\"'")
            if seen.get(name, value) != value and f"${name}" not in value and f"${{{name}" not in value:
                line = document.text.count("\n", 0, found.start()) + 1
                yield {"name": name, "first": seen[name], "last": value, "value": value, "path": f"{document.path}:{line}"}
            seen[name] = value


# Launcher, logs, profile.


@_rule("megatron.launcher", "python -m torch.distributed.launch is deprecated: use torchrun", severity="advice")
def _launcher(reading: Reading, case: Case | None) -> Iterator[Values]:
    from meshwright.documents.launch import LaunchDocument

    for document in reading.source.documents:
        found = document.shell.found if isinstance(document, LaunchDocument) else None
        if found is not None and found.launcher == "torch.distributed.launch":
            yield {"value": found.launcher, "expected": "torchrun", "path": f"{document.path}:{found.command.line}"}


@_rule(
    "megatron.log-throughput",
    "without --log-throughput no line says the TFLOP/s per GPU: --log-interval alone prints the time of an iteration",
    severity="advice",
)
def _log_throughput(reading: Reading, case: Case | None) -> Iterator[Values]:
    if is_complete(reading) and not has(reading, "--log-throughput"):
        yield at(reading, "--log-interval", expected="--log-throughput")


@_rule("megatron.profile-nsys", "--profile without --use-pytorch-profiler only marks ranges for nsys: no trace is written "
                                "by itself",
       severity="advice")
def _profile_nsys(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--profile") and not has(reading, "--use-pytorch-profiler"):
        yield at(reading, "--profile", expected="--use-pytorch-profiler, or nsys around the command")


@_rule("megatron.profile-off", "{flag} does nothing without --profile", severity="warning")
def _profile_off(reading: Reading, case: Case | None) -> Iterator[Values]:
    for flag in ("--use-pytorch-profiler", "--profile-step-start", "--profile-step-end", "--profile-ranks"):
        if has(reading, flag) and not has(reading, "--profile"):
            yield at(reading, flag, flag=flag, expected="--profile")


@_rule("megatron.profile-directory", "the trace of --use-pytorch-profiler goes to --tensorboard-dir, which is not given")
def _profile_directory(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--profile") and has(reading, "--use-pytorch-profiler") and not has(reading, "--tensorboard-dir"):
        yield at(reading, "--use-pytorch-profiler", expected="--tensorboard-dir")


@_rule("megatron.profile-steps", "the profile starts at step {start} and ends at step {end}")
def _profile_steps(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = flags(reading)
    start, end = values.int("--profile-step-start", 10), values.int("--profile-step-end", 12)
    if has(reading, "--profile") and start is not None and end is not None and start >= end:
        yield at(reading, "--profile-step-end", start=start, end=end, expected=f"--profile-step-end {start + 2}")
