"""The keys of verl's FSDP engine that express a layout, and the layout as those keys have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Overlap
from meshwright.frameworks.verl.keys import ACTOR, REFERENCE, Places, is_tuning, micro_batches

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

SECTION = "fsdp_config"
UNSPOKEN = ("overlap: FSDP2 gathers and reduces beside compute by itself",)
OVERLAP = Overlap(gradient_reduce=True, parameter_gather=True, tensor=False, point_to_point=True, expert=False)


def places(case: Case) -> Places:
    """The keys of the trainer that runs a case."""
    return Places("" if is_tuning(case) else SECTION)


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout. The reference does not inherit Ulysses, so that is said twice."""
    where, ranks = places(case), layout.data_parallel * layout.context_parallel
    values: dict[str, object] = {
        f"{ACTOR}.strategy" if where.section else "engine.strategy": "fsdp2",
        f"{where.engine}.ulysses_sequence_parallel_size": layout.context_parallel,
        f"{where.engine}.fsdp_size": -1 if layout.optimizer_shards == ranks else layout.optimizer_shards,
        f"{where.engine}.reshard_after_forward": layout.zero_stage == 3,
        f"{where.engine}.offload_policy": bool(layout.offload),
        f"{where.model}.enable_gradient_checkpointing": layout.recompute == Full(),
    }
    if where.section:
        values[f"{REFERENCE}.fsdp_config.ulysses_sequence_parallel_size"] = layout.context_parallel
    return {**values, **micro_batches(case, layout, where)}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as the engine has it."""
    return replace(layout, context_kind="ulysses" if layout.context_parallel > 1 else "ring", overlap=OVERLAP)
