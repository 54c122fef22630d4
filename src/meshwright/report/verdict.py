"""Nothing fits: what was demanded, what the bound is, what is missing, and what would close the gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Block, Run, Table, Tone, line, table
from meshwright.words import gib, integer, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.estimate import Infeasible, Unmet


BASE = {"B": "bytes"}
"""Unit of a term -> of a figure."""


def amount(value: float, unit: str) -> str:
    """A figure with its unit, as people read it."""
    match unit:
        case "B" | "bytes":
            return f"{gib(value)} ({integer(value)} bytes)"
        case "s":
            return seconds(value)
        case _:
            return f"{value:,.6g} {unit}".rstrip()


def infeasible(verdict: Infeasible) -> Iterator[Block]:
    """Every unmet constraint with its terms and levers."""
    yield line(Run("Nothing fits.", "bad", bold=True), above=True)
    for unmet in verdict.unmet:
        yield line(unmet.constraint, indent=2)
        yield unmet_table(unmet)
        if unmet.levers:
            yield line(Run("What would close the gap", "strong"), indent=2)
        for lever in unmet.levers:
            yield line(lever, kind="item", indent=4)


def unmet_table(unmet: Unmet) -> Table:
    """What one constraint takes against what there is, to the byte."""
    def said(value: float, tone: Tone = "", *, bold: bool = False) -> Run:
        return Run(amount(value, unmet.unit), tone, bold=bold, value=value, unit=BASE.get(unmet.unit, unmet.unit))

    rows: list[tuple[str | Run, Run]] = [("demanded", said(unmet.demand)), ("bound", said(unmet.bound)),
            (Run("short of", "strong"), said(unmet.gap, "bad", bold=True))]
    rows += [(Run(f"  {name}", "dim"), said(value, "dim")) for name, value in unmet.terms.items()]
    return table(["", ""], rows, right=[1], whole=[0, 1], look="plain")
