"""The rollout engine beside the trainer: how many GPUs share a copy of the model, and what memory is left to it.

While samples are made the engine holds ``gpu_memory_utilization`` of each GPU, whatever else is there; while the policy is trained
it sleeps and holds none. What the trainer keeps in between must fit beside it, or wait on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

UTILIZATION = 0.6
"""Share of each GPU: that of most recipes of verl; its default is 0.5."""
WEIGHTS = 0.5
"""Share of the engine's memory that weights may take, so that as much is left to keys and values."""
BF16_BYTES = 2.0


class Rollout(Struct, frozen=True):
    """What the files say of the engine."""

    tensor_parallel: int
    utilization: float


def rollout_of(case: Case, layout: Layout) -> Rollout:
    """The fewest GPUs to a copy under which weights leave as much again; all that divide the heads where none does.

    Formula: 2 bytes x parameters / tp <= 0.5 x 0.6 x memory.
    Source:  verl 1dda039b9 verl/workers/rollout (weights in bf16); the shares are those of its recipes.
    """
    room = WEIGHTS * UTILIZATION * case.cluster.device.memory_bytes
    heads = case.model.attention.num_heads
    able = [size for size in range(1, min(layout.world, heads) + 1) if layout.world % size == 0 and heads % size == 0]
    fitting = (size for size in able if BF16_BYTES * total_parameters(case.model) / size <= room)
    return Rollout(next(fitting, able[-1]), UTILIZATION)
