"""What sort of out-of-memory a message reports, each verdict with its reason and figures; the first is the main one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from meshwright.errors import Message
from meshwright.units import GIB, gib
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.observed.out_of_memory import OutOfMemory, Phase

Kind = Literal[
    "request larger than the device", "other tenant", "fragmentation", "transient", "capacity", "host", "outside the allocator",
    "unknown",
]
TENANT_BYTES = 1.0 * GIB
"""What another process must hold to be named."""
CONTEXT_BYTES = 5.0 * GIB
"""Most that a process holds beside its allocator: context, communicators, kernels (1-5 GiB is typical)."""
SCATTERED = 0.10
"""Share of what is reserved that is free in it and yet too scattered, from which fragmentation is named beside a shortage."""

SPIKES: dict[Phase, str] = {
    "loss": "the logits of one micro-batch and their loss exist for a moment only, on the last stage",
    "gather": "whole parameters are gathered for a moment, beside those that are kept in shards",
    "optimizer": "the optimizer makes its states and working copies in its first step",
    "experts": "the busiest expert gets more tokens than the average one, and differently in each step",
}
"""What makes a peak of a moment, by what the traceback says."""


class Verdict(Value, frozen=True, kw_only=True):
    """One thing that a message shows, and why."""

    kind: Kind
    message: Message
    short_bytes: float | None = None
    """What is missing even if all that is free could be used; None where the message does not say."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def classify(said: OutOfMemory) -> tuple[Verdict, ...]:
    """All that one message shows, in the order of the decision: what no other remedy could help comes first.

    Source: docs/sources.md#out-of-memory-messages.
    """
    if said.speaker == "kernel":
        return (
            _verdict(
                "host", "oom.host", "memory of the node ended, not of the device: the kernel or the scheduler stopped a process"
            ),
        )
    if said.speaker in ("driver", "communication"):
        who = "NCCL or HCCL" if said.speaker == "communication" else "the driver"
        asked = f" {gib(said.requested_bytes)}" if said.requested_bytes else ""
        return (_verdict("outside the allocator", "oom.outside",
                         "{who} found no{asked} memory on the device: the allocator, which knows nothing of it, holds the rest",
                         who=who, asked=asked),)
    found = tuple(_figures(said))
    return found or (
        _verdict("unknown", "oom.figures", "the message has no figures: only that the memory of the device did not do"),
    )


def _figures(said: OutOfMemory) -> Iterator[Verdict]:
    """What the allocator's figures show."""
    asked, capacity = said.requested_bytes, said.limit_bytes
    if asked is None:
        return
    if capacity is not None and asked > capacity:
        yield _verdict(
            "request larger than the device", "oom.larger",
            "one tensor of {asked} is asked for, and the whole device has {capacity}: only a smaller tensor helps",
            asked - capacity, asked=gib(asked), capacity=gib(capacity),
        )
    yield from _tenants(said)
    free, scattered = said.free_bytes, said.unallocated_bytes
    if free is None and capacity is not None and said.reserved_bytes is not None:
        free = max(0.0, capacity - said.reserved_bytes)  # XPU does not say it
    if free is None:
        yield _verdict(
            "capacity", "oom.asked", "{asked} more did not fit; the message does not say what was free", asked=gib(asked)
        )
        return
    usable = free + (scattered or 0.0)
    if usable >= asked and (scattered or 0.0) > 0.0:
        yield _verdict(
            "fragmentation", "oom.fragments",
            "{asked} would fit: {free} is free and {scattered} lies unused inside what the allocator reserved, in pieces too small",
            0.0, asked=gib(asked), free=gib(free), scattered=gib(scattered or 0.0),
        )
        return
    short = max(0.0, asked - usable)
    if spike := SPIKES.get(said.phase):
        yield _verdict("transient", "oom.spike", "{spike} ({frame})", short, spike=spike, frame=said.frame)
    yield _verdict(
        "capacity", "oom.short", "{asked} more is {short} beyond all that is free, however it lies ({usable})",
        short, asked=gib(asked), short=gib(short), usable=gib(usable),
    )
    reserved = said.reserved_bytes
    if reserved and scattered and scattered >= SCATTERED * reserved:
        yield _verdict(
            "fragmentation", "oom.scattered", "{share:.0%} of what the allocator reserved is unused pieces ({scattered})",
            short, share=scattered / reserved, scattered=gib(scattered),
        )


def _tenants(said: OutOfMemory) -> Iterator[Verdict]:
    """Other processes that hold enough of the device to matter."""
    others = tenants(said)
    if others:
        names = ", ".join(f"process {number} with {gib(size)}" for number, size in others)
        yield _verdict("other tenant", "oom.tenant", "the device is shared: {names}", names=names)


def tenants(said: OutOfMemory) -> tuple[tuple[int, float], ...]:
    """Processes on the device that are not the one that speaks, and hold more than ``TENANT_BYTES``.

    Its own is the one that holds what its allocator reserved and at most ``CONTEXT_BYTES`` more, unless the message says apart
    what this process has.
    """
    processes = list(said.processes)
    reserved = said.reserved_bytes
    if said.process_bytes is None and reserved is not None:
        own = [each for each in processes if -0.02 * GIB <= each[1] - reserved <= CONTEXT_BYTES]
        if own:
            processes.remove(min(own, key=lambda each: each[1] - reserved))
    return tuple(each for each in processes if each[1] > TENANT_BYTES)


def _verdict(kind: Kind, id: str, template: str, short_bytes: float | None = None, **values: object) -> Verdict:
    return Verdict(kind=kind, message=Message(id, template, values), short_bytes=short_bytes)
