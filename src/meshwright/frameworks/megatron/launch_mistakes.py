"""The environment, the launcher, logs and profiles of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import equal
from meshwright.frameworks.megatron.asking import ARGUMENTS, FSDP, at, flags, grid_of, has, is_complete, minor
from meshwright.frameworks.megatron.environment import CONNECTIONS, needs_one_connection
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_NCCL, _TORCH = "NCCL environment variables", "PyTorch CUDA semantics: PYTORCH_CUDA_ALLOC_CONF"
_SETTING = re.compile(r"^(?:export[ \t]+)?((?:NCCL|CUDA|PYTORCH|TORCH|GLOO|UCX|NVTE|OMP)_[A-Z0-9_]+)=(\S+)", re.MULTILINE)
_PATHS = {
    "NCCL_IB_DISABLE": "between nodes it goes through TCP sockets instead of InfiniBand or RoCE",
    "NCCL_P2P_DISABLE": "within a node it goes through host memory instead of NVLink",
    "NCCL_SHM_DISABLE": "within a node it goes through the network where peers cannot reach each other",
}
"""Variable that takes a path away -> what is left."""
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_PROFILER = ("--use-pytorch-profiler", "--profile-step-start", "--profile-step-end", "--profile-ranks")


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


def _wants_one(reading: Reading, family: str | None) -> bool:
    """Whether the parser stops because the variable is not 1."""
    free = (*FSDP, "--use-torch-fsdp2", "--overlap-moe-expert-parallel-comm")
    if any(has(reading, flag) for flag in free):
        return False
    grid = grid_of(reading)
    needs = needs_one_connection(grid.tp, grid.cp, family, minor(reading))
    return needs and _known(reading, CONNECTIONS) and _variable(reading, CONNECTIONS) != "1"


def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    if case is not None and _wants_one(reading, case.cluster.device.family):
        yield _place(reading, CONNECTIONS, expected="export CUDA_DEVICE_MAX_CONNECTIONS=1")


def _connections_maybe(reading: Reading, case: Case | None) -> Iterator[Values]:
    if case is None and _wants_one(reading, None):
        yield _place(reading, CONNECTIONS, expected="export CUDA_DEVICE_MAX_CONNECTIONS=1")


def _is_sharded(reading: Reading) -> bool:
    return any(has(reading, flag) for flag in FSDP) or (has(reading, "--use-torch-fsdp2") and minor(reading) >= 12)


def _loud(reading: Reading) -> Values | None:
    level = (_variable(reading, "NCCL_DEBUG") or "").upper()
    return values_if(level in {"INFO", "TRACE"}, level=level)


def _closed(name: str) -> Callable[[Reading], Values | None]:
    """Whether a variable takes a path away: value ``setting``."""

    def closed(reading: Reading) -> Values | None:
        value = _variable(reading, name)
        return values_if(value not in {None, "", "0"}, setting=value)

    return closed


def _segments(reading: Reading, case: Case | None) -> Iterator[Values]:
    texts = [_variable(reading, name) or "" for name in _ALLOCATOR]
    if all(_known(reading, name) for name in _ALLOCATOR) and not any("expandable_segments:True" in text for text in texts):
        yield _place(reading, _ALLOCATOR[0], expected="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")


def _both_allocators(reading: Reading) -> Values | None:
    text = _variable(reading, _ALLOCATOR[0]) or ""
    return values_if("expandable_segments:True" in text and "max_split_size_mb" in text, setting=text)


def _set_twice(reading: Reading, case: Case | None) -> Iterator[Values]:
    for document in reading.source.documents:
        seen: dict[str, str] = {}
        for found in _SETTING.finditer(document.text):
            name, value = found[1], found[2].strip("\"'")
            if seen.get(name, value) != value and f"${name}" not in value and f"${{{name}" not in value:
                line = document.text.count("\n", 0, found.start()) + 1
                yield {"name": name, "first": seen[name], "last": value, "value": value, "path": f"{document.path}:{line}"}
            seen[name] = value


def _launcher(reading: Reading, case: Case | None) -> Iterator[Values]:
    from meshwright.documents.launch import LaunchDocument

    for document in reading.source.documents:
        found = document.shell.found if isinstance(document, LaunchDocument) else None
        if found is not None and found.launcher == "torch.distributed.launch":
            yield {"value": found.launcher, "expected": "torchrun", "path": f"{document.path}:{found.command.line}"}


def _log_throughput(reading: Reading, case: Case | None) -> Iterator[Values]:
    if is_complete(reading) and not has(reading, "--log-throughput"):
        yield at(reading, "--log-interval", expected="--log-throughput")


def _profile_steps(reading: Reading, case: Case | None) -> Iterator[Values]:
    values = flags(reading)
    start, end = values.int("--profile-step-start", 10), values.int("--profile-step-end", 12)
    if has(reading, "--profile") and start is not None and end is not None and start >= end:
        yield at(reading, "--profile-step-end", start=start, end=end, expected=f"--profile-step-end {start + 2}")


CHECKS = checks("megatron", (
    # CUDA_DEVICE_MAX_CONNECTIONS.
    Mistake("connections", "Using tensor model parallelism or context parallelism require setting the environment variable "
            "CUDA_DEVICE_MAX_CONNECTIONS to 1", _connections),
    Mistake("connections-unless-blackwell", "Using tensor model parallelism or context parallelism require setting the environment "
            "variable CUDA_DEVICE_MAX_CONNECTIONS to 1 (before Blackwell; which device it is, is not known here)",
            _connections_maybe, "warning"),
    Mistake("connections-fsdp", "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset.",
            At(f"${CONNECTIONS}", "unset CUDA_DEVICE_MAX_CONNECTIONS", equal("1"), when=_is_sharded)),
    Mistake("connections-experts", "CUDA_DEVICE_MAX_CONNECTIONS=1 puts the expert all-to-all behind the compute that it is to "
            "overlap: --overlap-moe-expert-parallel-comm wants more queues",
            At(f"${CONNECTIONS}", "32", equal("1"), beside=("--overlap-moe-expert-parallel-comm",)), "warning"),
    # NCCL and the allocator.
    Mistake("nccl-debug", "NCCL_DEBUG={level} logs each communicator and each call: for a search for faults, not for a run",
            At("$NCCL_DEBUG", "NCCL_DEBUG=WARN", when=_loud), "advice", _NCCL),
    Mistake("nccl-off", "{name}={setting} takes a path away from NCCL: {what}",
            tuple(At(f"${name}", f"unset {name}", when=_closed(name), values={"name": name, "what": what})
                  for name, what in _PATHS.items()), "warning", _NCCL),
    Mistake("blocking", "CUDA_LAUNCH_BLOCKING=1 waits for each kernel: nothing overlaps",
            At("$CUDA_LAUNCH_BLOCKING", "unset CUDA_LAUNCH_BLOCKING", equal("1")), "warning", _TORCH),
    Mistake("segments", "expandable segments of the allocator are not on: reserved memory grows above what is allocated by "
            "fragments", _segments, "advice", _TORCH),
    Mistake("allocator-split", "max_split_size_mb has no part in expandable segments: PYTORCH_CUDA_ALLOC_CONF={setting}",
            At("$PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", when=_both_allocators), "advice", _TORCH),
    Mistake("set-twice", "{name} is set to {first} and then to {last}, which is what counts", _set_twice, "warning", _TORCH),
    # Launcher, logs, profile.
    Mistake("launcher", "python -m torch.distributed.launch is deprecated: use torchrun", _launcher, "advice"),
    Mistake("log-throughput", "without --log-throughput no line says the TFLOP/s per GPU: --log-interval alone prints the time of "
            "an iteration", _log_throughput, "advice"),
    Mistake("profile-nsys", "--profile without --use-pytorch-profiler only marks ranges for nsys: no trace is written by itself",
            At("--profile", "--use-pytorch-profiler, or nsys around the command", without=("--use-pytorch-profiler",)), "advice"),
    Mistake("profile-off", "{flag} does nothing without --profile",
            tuple(At(flag, "--profile", without=("--profile",)) for flag in _PROFILER), "warning"),
    Mistake("profile-directory", "the trace of --use-pytorch-profiler goes to --tensorboard-dir, which is not given",
            At("--use-pytorch-profiler", "--tensorboard-dir", beside=("--profile",), without=("--tensorboard-dir",))),
    Mistake("profile-steps", "the profile starts at step {start} and ends at step {end}", _profile_steps),
), given=has, source=ARGUMENTS)
