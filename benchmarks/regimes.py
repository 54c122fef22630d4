"""Rows by regime: what kind of run a residual belongs to, and which sets of rows do not overlap."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from meshwright.evidence.score.sets import sets
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from meshwright.evidence.score.scored import Scored

MFU_EDGES = (0.02, 0.05, 0.10, 0.20, 0.30, 0.40, 0.50)
LEAST_ROWS = 8
"""A regime of fewer rows says nothing about itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """One class of runs within a way to divide them."""

    kind: str
    name: str
    rows: tuple[Scored, ...]


def disjoint_sets(rows: Sequence[Scored]) -> list[tuple[str, list[Scored]]]:
    """Sets of the product's list that hold a row and lie in no other set, the set of all rows aside."""
    found = {each.name: [row for row in rows if each.where.holds(row)] for each in sets()}
    found = {name: inside for name, inside in found.items() if inside and len(inside) < len(rows)}
    ids = {name: {row.id for row in inside} for name, inside in found.items()}
    return [(name, inside) for name, inside in found.items() if not any(ids[name] < ids[other] for other in ids)]


def regimes(rows: Sequence[Scored]) -> list[Regime]:
    """All regimes with rows enough, by kind; within a kind in the order of what it counts."""
    result: list[Regime] = []
    for kind, name_of in KINDS.items():
        found: dict[tuple[float, str], list[Scored]] = defaultdict(list)
        for row in rows:
            found[name_of(row)].append(row)
        result += [Regime(kind=kind, name=key[1], rows=tuple(found[key])) for key in sorted(found) if len(found[key]) >= LEAST_ROWS]
    return result


def _band(row: Scored) -> tuple[float, str]:
    place = sum((row.mfu or 0.0) >= edge for edge in MFU_EDGES)
    if place == len(MFU_EDGES):
        return float(place), f"over {percent(MFU_EDGES[-1], 0)}"
    return float(place), f"{100 * MFU_EDGES[place - 1] if place else 0:.0f} - {percent(MFU_EDGES[place], 0)}"


def _degree(row: Scored, column: str) -> int:
    value = row.row.cell(column)
    return value if isinstance(value, int) else 1


def _powers(column: str) -> Callable[[Scored], tuple[float, str]]:
    """A degree by its powers of two, the last class open."""

    def name(row: Scored) -> tuple[float, str]:
        degree = _degree(row, column)
        place = min(max(degree, 1).bit_length() - 1, 5)
        low = 2**place
        return float(place), f"{low}" if low <= 2 else f"{low} - {2 * low - 1}" if place < 5 else f"{low} and more"

    return name


def _nodes(row: Scored) -> tuple[float, str]:
    nodes = max(1, round(_degree(row, "n_gpus") / _degree(row, "gpus_per_node")))
    for place, edge in enumerate((1, 2, 4, 8, 16, 32, 64, 128)):
        if nodes <= edge:
            return float(place), str(edge) if edge <= 2 else f"{edge // 2 + 1} - {edge}"
    return 8.0, "over 128"


def _tp_and_pp(row: Scored) -> tuple[float, str]:
    tp, pp = _degree(row, "tp"), _degree(row, "pp")
    across = tp > _degree(row, "gpus_per_node")
    words = ["TP across nodes" if across else "TP"] * (tp > 1) + ["PP"] * (pp > 1)
    return float((tp > 1) + 2 * across + 4 * (pp > 1)), " and ".join(words) or "neither"


KINDS: dict[str, Callable[[Scored], tuple[float, str]]] = {
    "measured MFU": _band,
    "TP and PP": _tp_and_pp,
    "tensor parallel": _powers("tp"),
    "pipeline stages": _powers("pp"),
    "context parallel": _powers("cp"),
    "expert parallel": _powers("ep"),
    "micro-batch": _powers("mbs"),
    "nodes": _nodes,
    "model": lambda row: (float(row.is_moe), "mixture of experts" if row.is_moe else "dense"),
    "precision": lambda row: (0.0, row.row.precision),
    "device": lambda row: (0.0, row.device),
    "framework": lambda row: (0.0, row.row.framework.split(" (")[0].split("/")[0].lower()),
    "task": lambda row: (0.0, row.row.task),
}
"""Way to divide the rows -> the class of a row, with its place in the order."""


PUBLISHED = 0.1
"""Share of failed runs from which those of a framework are taken to be published as they came."""


def with_failures(rows: Iterable[Scored]) -> list[Scored]:
    """Legal rows of frameworks whose sources publish runs that failed, too: what ran elsewhere says nothing of what would not."""
    of_family: dict[str, list[Scored]] = defaultdict(list)
    for row in rows:
        if row.legal and row.status:
            of_family[row.implementation].append(row)
    told = [own for own in of_family.values() if fmean(each.status == "failed" for each in own) >= PUBLISHED]
    return [row for own in told for row in own]
