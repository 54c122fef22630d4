"""The environment, the launcher, logs and profiles of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import equal
from meshwright.frameworks.megatron.asking import ARGUMENTS, FSDP, at, flags, grid_of, has, is_complete, minor
from meshwright.frameworks.megatron.environment import CONNECTIONS, needs_one_connection
from meshwright.frameworks.rules import At, Mistake, checks, values_if
from meshwright.frameworks.variables import WORDS, habit_of, set_twice

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_NCCL, _TORCH = "NCCL environment variables", "PyTorch CUDA semantics: PYTORCH_CUDA_ALLOC_CONF"
_PATHS = ("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
"""Variables that take a path away."""
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


def _said(name: str) -> Values:
    """Name and words of a variable, as ``environment.habit`` says it: two rules that say the same are one finding."""
    return {"name": name, "words": habit_of(name).words}


def _left_over(name: str) -> Callable[[Reading], bool]:
    """Whether a variable has a value that should not stay."""
    return lambda reading: habit_of(name).bad(_variable(reading, name) or "")


def _closed(name: str) -> Callable[[Reading], Values | None]:
    """Whether a variable takes a path away: value ``setting``."""

    def closed(reading: Reading) -> Values | None:
        value = _variable(reading, name)
        return values_if(value not in {None, "", "0"}, setting=value)

    return closed


def _segments(reading: Reading, case: Case | None) -> Iterator[Values]:
    if has(reading, "--use-nccl-ub"):
        return  # buffers that NCCL registers exclude them
    texts = [_variable(reading, name) or "" for name in _ALLOCATOR]
    if all(_known(reading, name) for name in _ALLOCATOR) and not any("expandable_segments:True" in text for text in texts):
        yield _place(reading, _ALLOCATOR[0], expected="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")


def _both_allocators(reading: Reading) -> Values | None:
    text = _variable(reading, _ALLOCATOR[0]) or ""
    return values_if("expandable_segments:True" in text and "max_split_size_mb" in text, setting=text)


def _set_twice(reading: Reading, case: Case | None) -> Iterator[Values]:
    for document in reading.source.documents:
        for name, first, last, line in set_twice(document.text):
            yield {"name": name, "first": first, "last": last, "value": last, "path": f"{document.path}:{line}"}


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
    Mistake("nccl-debug", WORDS,
            At("$NCCL_DEBUG", "NCCL_DEBUG=WARN", when=_left_over("NCCL_DEBUG"), values=_said("NCCL_DEBUG")), "advice", _NCCL),
    Mistake("nccl-off", WORDS,
            tuple(At(f"${name}", f"unset {name}", when=_closed(name), values=_said(name)) for name in _PATHS), "warning", _NCCL),
    Mistake("blocking", WORDS,
            At("$CUDA_LAUNCH_BLOCKING", "unset CUDA_LAUNCH_BLOCKING", equal("1"), values=_said("CUDA_LAUNCH_BLOCKING")), "warning",
            _TORCH),
    Mistake("segments", "expandable segments of the allocator are not on: reserved memory grows above what is allocated by "
            "fragments", _segments, "advice", _TORCH),
    Mistake("allocator-split", "max_split_size_mb has no part in expandable segments: PYTORCH_CUDA_ALLOC_CONF={setting}",
            At("$PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", when=_both_allocators), "advice", _TORCH),
    Mistake("set-twice", "{name} is set to {first} and then to {last}, which is what counts", _set_twice, "warning",
            "guide 002, line 164: options in one variable are set at once; " + _TORCH),
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
