"""Environment of a Megatron-LM run: only what the layout needs, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

_QUEUES_FREE = {"blackwell", "cdna3", "cdna4", "cdna2"}
"""Families without the rule that collectives must be launched before the GEMM that they overlap."""
_NVIDIA = {"volta", "turing", "ampere", "ada", "hopper", "blackwell"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One environment variable: its value (None: must not be set) and why."""

    name: str
    value: str | None
    reason: str


def settings(case: Case, layout: Layout) -> tuple[Setting, ...]:
    """The variables that the script sets or unsets, in order."""
    found = [_connections(case, layout)]
    if case.cluster.device.family in _NVIDIA:
        found.append(
            Setting(
                name="PYTORCH_CUDA_ALLOC_CONF",
                value="expandable_segments:True",
                reason="less fragmentation: reserved memory stays near allocated memory",
            )
        )
    return tuple(setting for setting in found if setting is not None)


def _connections(case: Case, layout: Layout) -> Setting | None:
    """CUDA_DEVICE_MAX_CONNECTIONS: 1 orders collectives before GEMMs, FSDP and expert overlap need several queues."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if layout.zero_stage >= 2:
        return Setting(name=name, value=None, reason="Megatron-FSDP refuses 1: its gathers need queues of their own")
    if layout.overlap.expert and layout.expert_parallel > 1:
        return Setting(name=name, value="32", reason="the expert all-to-all runs on a queue of its own")
    ordered = layout.tensor_parallel > 1 or layout.context_parallel > 1
    if ordered and case.cluster.device.family not in _QUEUES_FREE:
        return Setting(name=name, value="1", reason="required with tensor or context parallelism before Blackwell")
    return None
