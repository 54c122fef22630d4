"""A dry run beside the cost model: figure by figure, and their difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.api.views.dryrun import figures
from meshwright.estimate.naming import name_of
from meshwright.units import TERA
from meshwright.words import gib, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.engine.dry_run import Found


def dryrun_report(case: Case, layout: Layout, ranks: Sequence[Found]) -> Iterator[RenderableType]:
    """A table for every rank."""
    what = f"{case.model.name}, {case.model.num_layers} layers, {case.batch.sequence_tokens:,} tokens"
    yield Text(f"{what}: {name_of(case, layout)}", style="bold")
    for found in ranks:
        yield from _rank(layout.world, found)
        table = _table("", "dry run", f"cost model ({case.implementation.name})", "difference")
        for each in figures(case, layout, found):
            ratio = each.difference_ratio
            text = "exact" if ratio == 0.0 else "" if ratio is None else f"{100 * ratio:+z.2f} %"
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
        if found.scan_flops:
            rows.append(("recurrences, in chunks", "FLOP", found.scan_flops))
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
