"""Transfers that occupy both their ends: where on each stage's line they stand."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from meshwright.perf.schedules.operations import FORWARD

if TYPE_CHECKING:
    from meshwright.perf.schedules.dependencies import Operations
    from meshwright.perf.schedules.operations import Order


class Place(NamedTuple):
    """The gap of a transfer on one line: after how many of the stage's operations it comes."""

    stage: int
    gap: int


def lines_of(order: Order, ops: Operations) -> list[list[int]]:
    """Every stage's operations and transfers in the order in which it does them.

    Operation i is i, the transfer to operation i is i + the number of operations. A stage receives just before the operation
    and sends just after it; where chunks are interleaved, in the steady part it sends one operation later, behind work. Between
    two operations odd stages receive first and even ones send first; what goes to and fro between the same two stages keeps the
    order of the other one.

    Shapes:  an Order and its operations -> per stage a list.
    Units:   counts.
    Holds:   orders without pairs.
    Source:  the rules of mindspore-ai/toolkits, pipeline_balance/simulator/pp_simulator.py (send and receive blocks), written
             anew; tests hold both to the same times. With an odd number of stages and as many microbatches, SAPP also sends the
             middle stage's only steady forward late.
    """
    total = ops.kind.size
    first: list[int] = ops.first.tolist()
    stage: list[int] = ops.stage.tolist()
    steady = _steady(order, ops) if order.num_chunks > 1 else set()
    sends: dict[int, Place] = {}
    receives: dict[int, Place] = {}
    gaps: dict[Place, list[int]] = {}
    for receiver in range(total):
        if ops.remote[receiver]:
            sender = int(ops.needs[receiver])
            at, to = stage[sender], stage[receiver]
            sends[receiver] = Place(at, sender - first[at] + 1 + (sender in steady))
            receives[receiver] = Place(to, receiver - first[to])
    for transfer, place in sorted(sends.items(), key=lambda each: int(ops.needs[each[0]])):
        gaps.setdefault(place, []).append(transfer)
    for transfer, place in receives.items():
        gaps.setdefault(place, []).append(transfer)
    lines: list[list[int]] = []
    for at, (begin, stop) in enumerate(pairwise(first)):
        line: list[int] = []
        for gap in range(stop - begin + 1):
            here = Place(at, gap)
            line += [total + transfer for transfer in _arranged(here, gaps.get(here, []), sends, receives)]
            line += [begin + gap] if begin + gap < stop else []
        lines.append(line)
    return lines


def _arranged(here: Place, transfers: list[int], sends: dict[int, Place], receives: dict[int, Place]) -> list[int]:
    """The transfers of one gap, sends first as given."""
    others = [receives[each] if sends[each] == here else sends[each] for each in transfers]
    if len({other.stage for other in others}) == 1:
        return [each for _, each in sorted(zip(others, transfers, strict=True))]
    receiving = [each for each in transfers if receives[each] == here]
    if here.stage % 2 == 1 and len(transfers) == 2:
        return receiving + [each for each in transfers if receives[each] != here]
    return transfers


def _steady(order: Order, ops: Operations) -> set[int]:
    """Operations of the part in which forwards and backwards alternate, but for its last."""
    found: set[int] = set()
    for begin, stop in pairwise(ops.first.tolist()):
        forward: list[bool] = (ops.kind[begin:stop] == FORWARD).tolist()
        warm = forward.index(False) - 1
        alternating = 2 * sum(forward[warm:])
        if alternating > 2:
            found.update(range(begin + warm, begin + warm + alternating - 1))
    return found
