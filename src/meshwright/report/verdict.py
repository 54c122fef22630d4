"""Nothing fits: what was demanded, what the bound is, what is missing, and what would close the gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.words import gib, integer, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.domain.estimate import Infeasible, Unmet


def amount(value: float, unit: str) -> str:
    """A figure with its unit, as people read it."""
    match unit:
        case "B" | "bytes":
            return f"{gib(value)} ({integer(value)} bytes)"
        case "s":
            return seconds(value)
        case _:
            return f"{value:,.6g} {unit}".rstrip()


def infeasible(verdict: Infeasible) -> Iterator[RenderableType]:
    """Every unmet constraint with its terms and levers."""
    yield Padding(Text("Nothing fits.", style="bold red"), (1, 0, 0, 0))
    for unmet in verdict.unmet:
        yield from _unmet(unmet)


def _unmet(unmet: Unmet) -> Iterator[RenderableType]:
    """One constraint."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row("demanded", amount(unmet.demand, unmet.unit))
    table.add_row("bound", amount(unmet.bound, unmet.unit))
    table.add_row(Text("short of", style="bold"), Text(amount(unmet.gap, unmet.unit), style="bold red"))
    for name, value in unmet.terms.items():
        table.add_row(Text(f"  {name}", style="dim"), Text(amount(value, unmet.unit), style="dim"))
    yield Text(f"  {unmet.constraint}")
    yield Padding(table, (0, 0, 0, 2))
    if unmet.levers:
        yield Text("  What would close the gap", style="bold")
    for lever in unmet.levers:
        yield Padding(Text(f"- {lever}"), (0, 0, 0, 4))
