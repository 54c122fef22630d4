"""Which dimension of the layout a trace's process group is, and what ranks waited for each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed import RankTrace

NAMES = (
    ("ep", ("expert", "moe", "_ep", "ep_group")),
    ("cp", ("context", "_cp", "cp_group", "ulysses")),
    ("tp", ("tensor", "mp_group", "_tp", "tp_group", "model_parallel", "model-parallel")),
    ("pp", ("pipeline", "_pp", "pp_group", "embedding")),
    ("dp", ("data", "_dp", "dp_group", "fsdp", "shard", "replicate", "default_pg")),
)
"""Words in a group's description -> dimension, asked in this order."""


def dimensions(traces: Sequence[RankTrace], layout: Layout | None) -> dict[str, str]:
    """Process group -> ``tp cp ep pp dp``, by its description, else by its ranks under the layout; others are left out.

    By ranks: neighbours that follow each other and number ``tp`` are tensor-parallel, and so on outwards as frameworks place them.
    """
    found: dict[str, str] = {}
    for trace in traces:
        for group in {**dict.fromkeys(trace.exposed_by_group), **dict.fromkeys(trace.groups)}:
            if (named := _named(group) or _placed(trace.groups.get(group, ()), layout)) is not None:
                found[group] = named
    return found


def _named(group: str) -> str | None:
    words = group.lower()
    return next((name for name, known in NAMES if any(word in words for word in known)), None)


def _placed(ranks: Sequence[int], layout: Layout | None) -> str | None:
    """The dimension whose size and stride the ranks have."""
    if layout is None or len(ranks) < 2:
        return None
    strides = {b - a for a, b in pairwise(ranks)}
    if len(strides) != 1:
        return None
    stride, inner = strides.pop(), 1
    for name, size in (
        ("tp", layout.tensor_parallel),
        ("cp", layout.context_parallel),
        ("dp", layout.data_parallel),
        ("pp", layout.pipeline_parallel),
    ):
        if size > 1 and len(ranks) == size and stride == inner:
            return name
        inner *= size
    return "ep" if len(ranks) == layout.expert_parallel > 1 else None
