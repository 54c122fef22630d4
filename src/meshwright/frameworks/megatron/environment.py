"""Environment of a Megatron-LM run: only what the layout needs, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.manual import Variable

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
QUEUES_FREE = {"blackwell", "cdna3", "cdna4", "cdna2"}
"""Families without the rule that collectives must be launched before the GEMM that they overlap."""
_NVIDIA = {"volta", "turing", "ampere", "ada", "hopper", "blackwell"}


def variables(case: Case, layout: Layout, minor: int) -> tuple[Variable, ...]:
    """The variables that the script of a minor version sets or unsets, in order."""
    found = [_connections(case, layout, minor)]
    if case.cluster.device.family in _NVIDIA:
        found.append(
            Variable(
                name="PYTORCH_CUDA_ALLOC_CONF",
                value="expandable_segments:True",
                reason="less fragmentation: reserved memory stays near allocated memory",
            )
        )
    return tuple(variable for variable in found if variable is not None)


def needs_one_connection(tp: int, cp: int, family: str | None, minor: int) -> bool:
    """Whether the parser stops unless CUDA_DEVICE_MAX_CONNECTIONS is 1 (without FSDP or overlap of experts).

    Core 0.11 asks for it always, for the device or not; 0.12 forgets that Blackwell is free of it where tp > 1.
    """
    if minor <= 11:
        return True
    free = family in QUEUES_FREE
    return (tp > 1 and (minor <= 12 or not free)) or (cp > 1 and not free)


def _connections(case: Case, layout: Layout, minor: int) -> Variable | None:
    """CUDA_DEVICE_MAX_CONNECTIONS: 1 orders collectives before GEMMs, FSDP and expert overlap need several queues."""
    if layout.zero_stage >= 2:
        return Variable(name=CONNECTIONS, value=None, reason="Megatron-FSDP refuses 1: its gathers need queues of their own")
    if layout.overlap.expert and layout.expert_parallel > 1:
        return Variable(name=CONNECTIONS, value="32", reason="the expert all-to-all runs on a queue of its own")
    if needs_one_connection(layout.tensor_parallel, layout.context_parallel, case.cluster.device.family, minor):
        reason = "required by core 0.11" if minor <= 11 else "required with tensor or context parallelism before Blackwell"
        return Variable(name=CONNECTIONS, value="1", reason=reason)
    return None
