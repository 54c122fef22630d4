"""Catalogue entries: names in a list, one entry with every figure, its unit and its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType


def name_list(kind: str, rows: Sequence[Mapping[str, str]]) -> Iterator[RenderableType]:
    """A table of entries; the keys of the first row are the columns."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for place, column in enumerate(rows[0] if rows else ("name",)):
        table.add_column(column, overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    yield Padding(Text(f"{len(rows)} {kind}", style="bold"), (1, 0, 0, 0))
    yield Padding(table, (0, 0, 0, 2))


def entry(
    kind: str, name: str, facts: Mapping[str, object], provenance: Mapping[str, Mapping[str, object]]
) -> Iterator[RenderableType]:
    """One entry: its facts, then every figure with the unit and the source that its file states."""
    yield Padding(Text(f"{kind} {name}", style="bold"), (1, 0, 0, 0))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in flat(facts):
        if value and not (provenance and key == "source"):
            table.add_row(key, value)
    yield Padding(table, (0, 0, 0, 2))
    if not provenance:
        return
    sources = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    sources.add_column("figure", no_wrap=True)
    sources.add_column("value", justify="right", overflow="fold")
    sources.add_column("unit", no_wrap=True)
    sources.add_column("source", overflow="fold")
    for key, origin in provenance.items():
        sources.add_row(key, *(_figure(origin.get(part, "")) for part in ("value", "unit", "source")))
    yield Padding(Text("Sources", style="bold"), (1, 0, 0, 0))
    yield Padding(sources, (0, 0, 0, 2))


def flat(value: object, prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings and lists of mappings as dotted keys and plain text."""
    if isinstance(value, Mapping):
        return [pair for key, inner in value.items() for pair in flat(inner, f"{prefix}.{key}" if prefix else str(key))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if all(isinstance(each, (str, int, float, bool)) for each in value):
            return [(prefix, _runs(value))]
        return [pair for place, inner in enumerate(value) for pair in flat(inner, f"{prefix}[{place}]")]
    return [(prefix, _figure(value))]


def _runs(values: Sequence[object]) -> str:
    """A list, equal neighbours counted: ``0 x 80``."""
    runs: list[tuple[object, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return ", ".join(_figure(value) if times == 1 else f"{_figure(value)} x {times}" for value, times in runs)


def _figure(value: object) -> str:
    """A scalar."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
