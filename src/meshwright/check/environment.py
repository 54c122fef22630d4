"""Variables of the launch that cost speed wherever they stand; what one framework needs is its own rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.check.context import finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.check.context import Context
    from meshwright.frameworks.settings import Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """A variable with values that should not stay, and what they do."""

    variable: str
    bad: Callable[[str], bool]
    words: str
    expected: str
    severity: Severity = "warning"
    across_nodes: bool = False
    """Whether it hurts only where there are several nodes."""
    source: str = ""


def _on(value: str) -> bool:
    return value.strip().lower() in {"1", "true", "on", "yes"}


def _is_prefix(value: str) -> bool:
    """Whether a list of ports names a family of adapters and no adapter: ``mlx5``, and not ``mlx5_0`` or ``=mlx5_0``."""
    return not value.startswith(("=", "^")) and any(re.fullmatch(r"[a-z]+\d*", name.partition(":")[0]) for name in value.split(","))


def _is_inside(value: str) -> bool:
    """Whether a list of interfaces has only those that end at the node: the loop, bridges of containers."""
    return bool(value.strip()) and all(name.strip().startswith(("lo", "docker", "virbr")) for name in value.split(","))


_SOCKETS = ("NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_NCCL = "NCCL documentation, environment variables"
_ASCEND = "CANN documentation, environment variables"
HABITS = (
    Habit(variable="NCCL_DEBUG", bad=lambda value: value.upper() in {"INFO", "TRACE"}, severity="advice", expected="WARN",
          words="every rank logs every communicator: for a look, not for a run", source=_NCCL),
    Habit(variable="NCCL_IB_DISABLE", bad=_on, across_nodes=True, expected="unset", source=_NCCL,
          words="traffic between nodes goes over TCP instead of InfiniBand or RoCE"),
    Habit(variable="NCCL_IB_HCA", bad=_is_prefix, across_nodes=True, severity="advice", expected="=mlx5_0,mlx5_1 or unset",
          words="the prefix takes every port that begins with it, storage ports too", source=f"{_NCCL}; guide 003:109"),
    *(Habit(variable=name, bad=_is_inside, across_nodes=True, expected="the interface between the nodes", source=_NCCL,
            words="no other node can be reached over it") for name in _SOCKETS),
    Habit(variable="NCCL_P2P_DISABLE", bad=_on, expected="unset", source=_NCCL,
          words="devices of a node talk through host memory instead of NVLink"),
    Habit(variable="NCCL_SHM_DISABLE", bad=_on, expected="unset", source=_NCCL, severity="advice",
          words="devices without a direct path fall back to the network"),
    Habit(variable="NCCL_PROTO", bad=lambda value: value.strip().upper() == "SIMPLE", expected="unset", source=_NCCL,
          severity="advice", words="small messages pay the latency of the Simple protocol"),
    Habit(variable="CUDA_LAUNCH_BLOCKING", bad=_on, expected="unset", words="the host waits for every kernel",
          source="CUDA programming guide"),
    Habit(variable="TORCH_DISTRIBUTED_DEBUG", bad=lambda value: value.upper() == "DETAIL", expected="OFF",
          words="every collective is checked against all ranks", source="PyTorch documentation, torch.distributed"),
    Habit(variable="NVTE_DEBUG", bad=_on, expected="unset", severity="advice",
          words="Transformer Engine logs its choice of kernels at every call", source="Transformer Engine documentation"),
    Habit(variable="ASCEND_LAUNCH_BLOCKING", bad=_on, expected="0", words="the host waits for every operator", source=_ASCEND),
    Habit(variable="ASCEND_GLOBAL_LOG_LEVEL", bad=lambda value: value.strip() in {"0", "1"}, expected="3", source=_ASCEND,
          words="logs of DEBUG and INFO slow the host"),
    Habit(variable="ASCEND_SLOG_PRINT_TO_STDOUT", bad=_on, expected="0", source=_ASCEND, severity="advice",
          words="logs of the runtime go to the terminal"),
)
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def environment(context: Context) -> Iterator[Finding]:
    """Left-overs of debugging, and an allocator that is told two things."""
    source = context.reading.source
    variables = source.environment
    nodes = source.nodes or (context.case.cluster.num_nodes if context.case is not None else 1)
    for habit in HABITS:
        setting = variables.get(habit.variable)
        if setting is None or not isinstance(setting.value, str) or not habit.bad(setting.value):
            continue
        if not habit.across_nodes or nodes > 1:
            yield finding(
                habit.severity, "environment.habit", "{name}={value}: {words}", path=setting.place, name=habit.variable,
                words=habit.words, value=setting.value, expected=habit.expected, source=habit.source,
            )
    old, new = (variables.get(name) for name in _ALLOCATOR)
    if old is not None and new is not None and old.value != new.value:
        yield finding(
            "warning", "environment.allocator", "{old} and {new} say different things; only one of them is read",
            path=new.place, value=old.value, expected=new.value, old=_ALLOCATOR[0], new=_ALLOCATOR[1],
            source="PyTorch documentation, CUDA semantics",
        )
