"""Which dimension of the layout a trace's process group is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed import RankTrace

TITLES = {"tp": "tensor-parallel", "cp": "context-parallel", "ep": "expert-parallel", "pp": "pipeline", "dp": "data-parallel"}
"""Dimension -> its name in a sentence."""
NAMES = (
    ("ep", ("expert", "moe", "_ep", "ep_group")),
    ("cp", ("context", "_cp", "cp_group", "ulysses")),
    ("tp", ("tensor", "mp_group", "_tp", "tp_group", "model_parallel", "model-parallel")),
    ("pp", ("pipeline", "_pp", "pp_group", "embedding")),
    ("dp", ("data", "_dp", "dp_group", "fsdp", "shard", "replicate")),
)
"""Words in a group's description -> dimension, asked in this order."""
WORLD = "default_pg"
"""The group of all ranks: data-parallel where nothing else is, and where nobody says what else there is."""


def dimensions(traces: Sequence[RankTrace], layout: Layout | None, stages_inside_replicas: bool = False) -> dict[str, str]:
    """Process group -> ``tp cp ep pp dp``, by its description, else by its ranks under the layout; others are left out.

    By ranks: as Megatron places them, tensor-parallel ranks are neighbours, then those of context, data and pipeline parallelism;
    with ``stages_inside_replicas`` stages stand inside of replicas (``Framework.facts``).
    """
    found: dict[str, str] = {}
    for trace in traces:
        for group in {**dict.fromkeys(trace.exposed_by_group), **dict.fromkeys(trace.groups)}:
            ranks: Sequence[int] = trace.groups.get(group, ())
            if WORLD in group.lower():
                ranks = ranks or range(layout.world if layout is not None else 0)
                named = "dp" if layout is None else _placed(ranks, layout, stages_inside_replicas)
            else:
                named = _named(group) or _placed(ranks, layout, stages_inside_replicas)
            if named is not None:
                found[group] = named
    return found


def _named(group: str) -> str | None:
    words = group.lower()
    return next((name for name, known in NAMES if any(word in words for word in known)), None)


def _placed(ranks: Sequence[int], layout: Layout | None, stages_inside_replicas: bool) -> str | None:
    """The dimension whose size and stride the ranks have; gradients are reduced over context and data parallelism together."""
    if layout is None or len(ranks) < 2:
        return None
    strides = {b - a for a, b in pairwise(ranks)}
    if len(strides) != 1:
        return None
    stride = strides.pop()
    tp, cp, dp, pp = layout.tensor_parallel, layout.context_parallel, layout.data_parallel, layout.pipeline_parallel
    outside = tp * cp
    places = [("tp", tp, 1), ("cp", cp, tp)]
    places += [("pp", pp, outside), ("dp", dp, outside * pp)] if stages_inside_replicas else [
        ("dp", dp, outside), ("pp", pp, outside * dp), ("dp", cp * dp, tp)]
    if (found := next((name for name, size, inner in places if 1 < size == len(ranks) and stride == inner), None)) is not None:
        return found
    return "ep" if len(ranks) == layout.expert_parallel > 1 else None
