"""A dry run beside the cost model: figure by figure, and their difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.views.dryrun import figures
from meshwright.estimate.naming import name_of
from meshwright.report.blocks import Run, line, table
from meshwright.units import TERA
from meshwright.words import gib, percent, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.engine.dry_run import Found
    from meshwright.report.blocks import Block, Table


def dryrun_report(case: Case, layout: Layout, ranks: Sequence[Found]) -> Iterator[Block]:
    """A table for every rank."""
    what = f"{case.model.name}, {case.model.num_layers} layers, {case.batch.sequence_tokens:,} tokens"
    yield line(Run(f"{what}: {name_of(case, layout)}", bold=True))
    for found in ranks:
        yield from _rank(layout.world, found)
        yield _table(("", "dry run", f"cost model ({case.implementation.name})", "difference"), [
            (each.name, _amount(each.found, each.unit), _amount(each.said, each.unit), _difference(each.difference_ratio))
            for each in figures(case, layout, found)
        ])


def own_report(builder: str, world: int, ranks: Sequence[Found]) -> Iterator[Block]:
    """What ranks of a function of the user's need."""
    yield line(Run(builder, bold=True))
    for found in ranks:
        yield from _rank(world, found)
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
        yield _table(("", "dry run"), [(name, _amount(value, unit)) for name, unit, value in rows])


def _rank(world: int, found: Found) -> Iterator[Block]:
    """The peak of a rank: where it is, and what it is made of."""
    parts = [
        f"{name} {gib(size)} ({percent(size / found.peak_bytes)})"
        for name, size in sorted(found.peak_by_purpose.items(), key=lambda pair: -pair[1])
        if size >= found.peak_bytes / 1000
    ]
    yield line(
        Run(f"Rank {found.rank} of {world}: peak {gib(found.peak_bytes)} in the {found.peak_at}", bold=True), above=True
    )
    yield line(", ".join(parts), indent=2)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return table(head, rows, right=range(1, len(head)), whole=range(1, len(head)))


def _difference(ratio: float | None) -> str:
    return "exact" if ratio == 0.0 else "" if ratio is None else signed(ratio, 2)


def _amount(value: int, unit: str) -> str:
    if unit == "bytes":
        return gib(value) if value >= 2**27 else f"{value / 2**20:,.2f} MiB"
    return f"{value / TERA:,.4f} TFLOP" if unit == "FLOP" else f"{value:,}"
