"""What a run says when its memory ends."""

from __future__ import annotations

from typing import Literal

from meshwright.value import Value

Phase = Literal["", "setup", "loss", "gather", "optimizer", "experts", "attention", "backward"]
"""``setup``: building or loading the model; ``gather``: parameters of sharded ranks; empty: not known, or a plain forward pass."""
Speaker = Literal["pytorch", "mindspore", "xla", "driver", "communication", "kernel"]
"""Who says so: an allocator that knows its figures, the driver below it, NCCL or HCCL beside it, or the host's kernel or Slurm."""


class OutOfMemory(Value, frozen=True, kw_only=True):
    """One message with whatever figures it has; sizes in bytes, None where it does not say."""

    speaker: Speaker
    text: str
    """The message, on one line."""
    line: int
    """Where it stands in what was given."""
    rank: int | None = None
    stage: int | None = None
    """The pipeline stage, where the prefix of the line names it."""
    device: int | None = None
    """Of its node."""
    requested_bytes: float | None = None
    capacity_bytes: float | None = None
    free_bytes: float | None = None
    allowed_bytes: float | None = None
    """What the allocator was told not to exceed."""
    allocated_bytes: float | None = None
    """Tensors, private pools included."""
    unallocated_bytes: float | None = None
    """Reserved by the allocator and not used by a tensor."""
    private_pool_bytes: float = 0.0
    """Of CUDA graphs; part of what is allocated."""
    process_bytes: float | None = None
    """This process, with what its allocator does not know."""
    processes: tuple[tuple[int, float], ...] = ()
    """Numbers and bytes of processes on the device; this one may be among them where ``process_bytes`` is not said."""
    phase: Phase = ""
    """What the traceback says was going on; empty without one."""
    frame: str = ""
    """The frame that says so."""

    @property
    def reserved_bytes(self) -> float | None:
        """What the allocator holds."""
        if self.allocated_bytes is None or self.unallocated_bytes is None:
            return None
        return self.allocated_bytes + self.unallocated_bytes

    @property
    def limit_bytes(self) -> float | None:
        """Where the allocator ends: the device, or what it was told not to exceed."""
        return self.capacity_bytes if self.allowed_bytes is None else self.allowed_bytes

    @property
    def open_bytes(self) -> float | None:
        """What the allocator may still reserve; without a figure of what is free, what it has not reserved."""
        limit, reserved = self.limit_bytes, self.reserved_bytes
        left = None if limit is None or reserved is None else max(0.0, limit - reserved)
        if self.free_bytes is None:
            return left
        return self.free_bytes if self.allowed_bytes is None or left is None else min(self.free_bytes, left)


class OutOfMemories(Value, frozen=True, kw_only=True):
    """The messages of one log, one for each rank that speaks."""

    file: str
    format: str
    messages: tuple[OutOfMemory, ...]
