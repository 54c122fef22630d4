"""The keys of NeMo-RL's DTensor back end that express a layout, and the layout as those keys have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute, Overlap
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.nemo_rl.keys import DTENSOR, micro_batches
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import ContextKind, Layout
    from meshwright.frameworks.base import Values

UNSPOKEN = ("overlap: FSDP2 gathers and reduces beside compute by itself",)
OVERLAP = Overlap(gradient_reduce=True, parameter_gather=True, tensor=False, point_to_point=True, expert=False)
KIND: ContextKind = "all-gather"
"""How its workers pass keys and values between context-parallel ranks: the default of ``set_rotate_method``."""
REPLICAS, EXPERTS = f"{DTENSOR}.dp_replicate_size", f"{DTENSOR}.expert_parallel_size"
KEYS = (
    Says(f"{DTENSOR}.tensor_parallel_size", "tensor_parallel"),
    Says(f"{DTENSOR}.sequence_parallel", "sequence_parallel"),
    Says(f"{DTENSOR}.context_parallel_size", "context_parallel"),
    Says(REPLICAS, lambda plan: plan.ranks // plan.shards[0]),
    Says(f"{DTENSOR}.activation_checkpointing", lambda plan: plan.layout.recompute == Full()),
    Says(f"{DTENSOR}.cpu_offload", lambda plan: bool(plan.layout.offload)),
)
NEEDED = tuple(row.key for row in KEYS if row.key != REPLICAS)
"""Keys that decide a layout and that the back end reads without a default."""


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout: all of them, as the recipe below may say anything."""
    packs = case.batch.packing is not None
    return {**decided(KEYS, Planned(case, layout, release)), **micro_batches(case, layout, packs=packs)}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as the back end has it."""
    return replace(
        layout, overlap=OVERLAP, context_kind=KIND if layout.context_parallel > 1 else "ring",
        recompute=NoRecompute() if layout.recompute == Full(layers=0) else layout.recompute,
    )
