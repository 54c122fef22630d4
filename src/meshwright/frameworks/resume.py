"""What a change of layout means for a run that goes on from a checkpoint.

The worst of what its knobs mean decides. A framework gives its own table where its checkpoints know more or less.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout

Resume = Literal["same checkpoint", "reshard", "convert", "not possible"]
ORDER: tuple[Resume, ...] = ("same checkpoint", "reshard", "convert", "not possible")
"""``reshard``: the framework loads it into the new layout by itself; ``convert``: a tool must rewrite it first."""

KNOBS: Mapping[str, str] = MappingProxyType({
    "tensor_parallel": "tp", "sequence_parallel": "sp", "context_parallel": "cp", "context_kind": "cp",
    "pipeline_parallel": "pp", "virtual_stages": "vp", "expert_parallel": "ep", "expert_tensor_parallel": "etp",
    "data_parallel": "dp", "optimizer_shards": "zero", "gradient_shards": "zero", "parameter_shards": "zero",
    "microbatch_sequences": "mb", "num_microbatches": "mb", "recompute": "recompute", "schedule": "schedule",
    "stage_layers": "layers", "offload": "offload", "overlap": "overlap",
})
"""Field of a layout -> the word that a label says it with."""


class Meaning(Value, frozen=True, kw_only=True):
    """What changing a knob means for a checkpoint, and why."""

    resume: Resume
    reason: str


_SAME = Meaning(resume="same checkpoint", reason="weights and optimizer state are cut as before")
SHARDED: Mapping[str, Meaning] = MappingProxyType(
    dict.fromkeys(("sp", "mb", "recompute", "schedule", "overlap"), _SAME)
    | {knob: Meaning(resume="reshard", reason="a sharded checkpoint is loaded into the new cut")
       for knob in ("tp", "cp", "pp", "vp", "ep", "etp", "dp", "zero", "layers")}
    | {"offload": _SAME}
)
"""Frameworks whose checkpoints know the whole tensors behind the shards (torch distributed checkpoint)."""
CUT: Mapping[str, Meaning] = MappingProxyType(
    dict.fromkeys(("sp", "cp", "mb", "recompute", "schedule", "overlap"), _SAME)
    | {knob: Meaning(resume="convert", reason="each rank loads its own file, cut for the old layout")
       for knob in ("tp", "pp", "vp", "ep", "etp", "dp", "zero", "layers", "offload")}
)
"""Frameworks whose checkpoints hold one file for each rank, as it was cut."""


def changed_knobs(before: Layout, after: Layout) -> tuple[str, ...]:
    """The layout words in which two layouts differ."""
    fields = (name for name in KNOBS if getattr(before, name) != getattr(after, name))
    return tuple(dict.fromkeys(KNOBS[name] for name in fields))


def meaning(table: Mapping[str, Meaning], knobs: tuple[str, ...]) -> Meaning:
    """The worst that a change of some knobs means."""
    found = [table[knob] for knob in knobs if knob in table] or [_SAME]
    return max(found, key=lambda each: ORDER.index(each.resume))
