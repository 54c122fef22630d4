"""JSON of ``dryrun``: the document of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.naming import name_of
from meshwright.estimate.rank import rank_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.engine.dry_run import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a rank: found, and said by the cost model."""

    name: str
    unit: str
    """``bytes``, ``FLOP``, or nothing for a count."""
    found: int
    said: int

    @property
    def difference_ratio(self) -> float | None:
        """(said - found) / found; None where nothing was found but something said."""
        if self.found == self.said:
            return 0.0
        return (self.said - self.found) / self.found if self.found else None


def figures(case: Case, layout: Layout, found: Found) -> list[Figure]:
    """All figures of one rank.

    The peak is the cost model's, with FP32 parameters for its master copies, which ZeRO-1 shares and the reference step does not.
    """
    stage = found.rank // (layout.world // layout.pipeline_parallel)
    said = rank_figures(case, layout, stage)
    memory = evaluate(case, layout).memory
    peak = float(memory.allocated_bytes[stage]) + said.parameter_bytes - float((memory.optimizer - memory.moments)[stage])
    pairs = [
        ("parameters", "", found.parameters, said.parameters),
        ("parameters in FP32", "bytes", found.parameter_bytes, said.parameter_bytes),
        ("gradients", "bytes", found.gradient_bytes, said.parameter_bytes),
        ("optimizer states", "bytes", found.optimizer_bytes, said.optimizer_bytes),
        ("activations in flight", "bytes", found.activation_bytes, said.activation_bytes),
        ("peak", "bytes", found.peak_bytes, round(peak)),
        ("matrix products", "FLOP", found.product_flops, said.product_flops),
        ("attention, whole squares", "FLOP", found.attention_flops, said.attention_flops),
    ]
    if found.scan_flops or said.scan_flops:
        pairs.append(("recurrences, in chunks", "FLOP", found.scan_flops, said.scan_flops))
    sorts = {(each.operation, each.ranks): each.payload_bytes for each in found.collectives}
    expected = {(each.operation, each.ranks): each.payload_bytes for each in said.messages}
    for operation, ranks in sorted({*sorts, *expected}):
        key = (operation, ranks)
        pairs.append((f"{operation} over {ranks}", "bytes", sorts.get(key, 0), expected.get(key, 0)))
    return [Figure(name=name, unit=unit, found=one, said=other) for name, unit, one, other in pairs]


def found_view(world: int, found: Found) -> dict[str, Any]:
    """What one rank found, as JSON of the contract."""
    return {
        "world": world, "rank": found.rank, "parameters": found.parameters, "memory_peak_bytes": found.peak_bytes,
        "memory_bytes": found.peak_by_purpose, "memory_peak_at": found.peak_at,
        "held_bytes": {
            "parameters": found.parameter_bytes, "gathered": found.gathered_bytes, "gradients": found.gradient_bytes,
            "optimizer": found.optimizer_bytes, "activations": found.activation_bytes,
        },
        "flops": found.product_flops, "attention_flops": found.attention_flops,
        "scan_flops": found.scan_flops,
        "collectives": [
            {"operation": each.operation, "ranks": each.ranks, "calls": each.calls, "payload_bytes": each.payload_bytes}
            for each in found.collectives
        ],
        "dry_run_s": found.seconds,
    }


def dryrun_view(case: Case, layout: Layout, ranks: Sequence[Found]) -> dict[str, Any]:
    """The fullest rank, with all ranks that were run and the cost model's figures beside them."""
    views = [
        {**found_view(layout.world, found), "comparison": [
            {"figure": each.name, "unit": each.unit, "dry_run": each.found, "cost_model": each.said,
             "difference_ratio": each.difference_ratio} for each in figures(case, layout, found)]}
        for found in ranks
    ]
    return {"label": name_of(case, layout), "implementation": case.implementation.name, **_fullest(views), "ranks": views}


def own_view(world: int, ranks: Sequence[Found]) -> dict[str, Any]:
    """A function of the user's: there is nothing to stand beside it."""
    views = [found_view(world, found) for found in ranks]
    return {**_fullest(views), "ranks": views}


def _fullest(views: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(views, key=lambda view: int(view["memory_peak_bytes"]))
