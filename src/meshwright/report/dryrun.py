"""A dry run beside the cost model: figure by figure, and their difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.domain.label import label
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.rank import rank_figures
from meshwright.report.words import gib, percent
from meshwright.units import TERA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

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
    """All figures of one rank."""
    stage = found.rank // (layout.world // layout.pipeline_parallel)
    said = rank_figures(case, layout, stage)
    peak = float(evaluate(case, layout).memory.allocated_bytes[stage])
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
    return {"label": label(layout), "implementation": case.implementation.name, **_fullest(views), "ranks": views}


def own_view(world: int, ranks: Sequence[Found]) -> dict[str, Any]:
    """A function of the user's: there is nothing to stand beside it."""
    views = [found_view(world, found) for found in ranks]
    return {**_fullest(views), "ranks": views}


def _fullest(views: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(views, key=lambda view: int(view["memory_peak_bytes"]))


def dryrun_report(case: Case, layout: Layout, ranks: Sequence[Found]) -> Iterator[RenderableType]:
    """A table for every rank."""
    yield Text(
        f"{case.model.name}, {case.model.num_layers} layers, {case.batch.sequence_tokens:,} tokens: {label(layout)}", style="bold"
    )
    for found in ranks:
        yield from _rank(layout.world, found)
        table = _table("", "dry run", f"cost model ({case.implementation.name})", "difference")
        for each in figures(case, layout, found):
            ratio = each.difference_ratio
            text = "exact" if ratio == 0.0 else "" if ratio is None else f"{100 * ratio:+.2f} %"
            table.add_row(each.name, _amount(each.found, each.unit), _amount(each.said, each.unit), text)
        yield Padding(table, (0, 0, 0, 2))


def own_report(builder: str, world: int, ranks: Sequence[Found]) -> Iterator[RenderableType]:
    """What ranks of a function of the user's need."""
    yield Text(builder, style="bold")
    for found in ranks:
        yield from _rank(world, found)
        table = _table("", "dry run")
        rows = [
            ("parameters", "", found.parameters), ("optimizer states", "bytes", found.optimizer_bytes),
            ("activations in flight", "bytes", found.activation_bytes), ("matrix products", "FLOP", found.product_flops),
            ("attention, whole squares", "FLOP", found.attention_flops),
        ]
        rows += [
            (f"{each.operation} over {each.ranks}, {each.calls} calls", "bytes", each.payload_bytes) for each in found.collectives
        ]
        for name, unit, value in rows:
            table.add_row(name, _amount(value, unit))
        yield Padding(table, (0, 0, 0, 2))


def _rank(world: int, found: Found) -> Iterator[RenderableType]:
    """The peak of a rank: where it is, and what it is made of."""
    parts = [
        f"{name} {gib(size)} ({percent(size / found.peak_bytes)})"
        for name, size in sorted(found.peak_by_purpose.items(), key=lambda pair: -pair[1])
        if size >= found.peak_bytes / 1000
    ]
    yield Padding(
        Text(f"Rank {found.rank} of {world}: peak {gib(found.peak_bytes)} in the {found.peak_at}", style="bold"), (1, 0, 0, 0)
    )
    yield Padding(Text(", ".join(parts)), (0, 0, 0, 2))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    return table


def _amount(value: int, unit: str) -> str:
    if unit == "bytes":
        return gib(value) if value >= 2**27 else f"{value / 2**20:,.2f} MiB"
    return f"{value / TERA:,.4f} TFLOP" if unit == "FLOP" else f"{value:,}"
