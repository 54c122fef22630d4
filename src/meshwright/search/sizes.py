"""Numbers of devices: those that split into degrees which divide the model and the batch, and those on which a layout fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from meshwright.estimate.overlap import overlap_for
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.least import corner, least_states_bytes
from meshwright.search.rules import knobs_of, rules_of, sequence_parallel_unasked
from meshwright.search.space import Pins, divisors, make_space

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Overlap

    Ints = NDArray[np.int64]

MAX_NODES = 16384


def on(case: Case, devices: int) -> Case:
    """The case on another number of devices."""
    return replace(case, cluster=replace(case.cluster, num_devices=devices))


def sizes(case: Case, features: Features, limit_nodes: int = MAX_NODES) -> tuple[int, ...]:
    """Numbers of devices that may have a legal layout, rising: parts of a node, then whole nodes up to a limit.

        n = tp cp pp dp

    Symbols: tp, cp, pp each a degree that no rule refuses by itself; dp a divisor of the global batch.
    Holds:   no number with a legal layout is missing; degrees that are legal alone may refuse each other.
    """
    per_node = case.cluster.devices_per_node
    most = limit_nodes * per_node
    found = np.array(divisors(case.batch.global_batch_sequences), dtype=np.int64)
    heads = max((each.num_heads for each in case.model.attentions), default=1)
    longest = {"tp": heads, "cp": case.batch.sequence_tokens, "pp": case.model.num_layers}
    for knob, largest in longest.items():
        degrees = _alone(case, features, knob, min(largest, most))
        products = np.multiply.outer(found, degrees)
        found = np.array(sorted(set(products[products <= most].tolist())), dtype=np.int64)
    whole = (found % per_node == 0) | ((found < per_node) & (per_node % found == 0))
    return tuple(int(each) for each in found[whole])


def _alone(case: Case, features: Features, knob: str, largest: int) -> Ints:
    """Values of one degree that no rule of meshes refuses where all others are 1."""
    values = np.arange(1, largest + 1, dtype=np.int64)
    ones = np.ones_like(values)
    mesh = dict.fromkeys(("tp", "cp", "pp", "dp", "ep", "etp"), ones) | {knob: values}
    able = sequence_parallel_unasked(case, features)
    keep = np.ones(len(values), dtype=np.bool_)
    kinds = features.context_kinds or ("ring",)
    for rule in rules_of("mesh"):
        held = [
            np.broadcast_to(
                np.asarray(rule.holds(case, features, knobs_of(mesh, sp=np.where(mesh["tp"] > 1, int(able), 0), context=kind))),
                values.shape,
            )
            for kind in kinds
        ]
        keep = keep & np.logical_or.reduce(held)
    return values[keep]


def fits_anywhere(case: Case, features: Features, devices: int, *, overlap: Overlap, pins: Pins | None = None) -> bool:
    """Whether any layout fits on so many devices, by the least demanding ones (``least.corner``)."""
    own, pins = on(case, devices), pins or Pins()
    if pins.offload != "optimizer" and least_states_bytes(own) > own.capacity_bytes:
        return False
    space = corner(make_space(own, features, devices, pins))
    return any(bool((rows.reserved_bytes <= own.capacity_bytes).any()) for rows in evaluate_grid(space, Counts(), overlap=overlap))


def that_fit(
    case: Case, features: Features, *, above: int = 0, limit_nodes: int = MAX_NODES, moved: bool = False
) -> Iterator[int]:
    """Numbers of devices above some on which a layout fits its devices, rising.

    ``moved``: with optimizer states in host memory, too; whether the nodes have the memory for them is not asked.
    """
    ways = (Pins(), Pins(offload="optimizer")) if moved and features.optimizer_offload else (Pins(),)
    for devices in sizes(case, features, limit_nodes):
        own = on(case, devices)
        if devices > above and any(fits_anywhere(own, features, devices, overlap=overlap_for(own), pins=pins) for pins in ways):
            yield devices
