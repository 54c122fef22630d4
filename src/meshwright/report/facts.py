"""Catalogue entries: names in a list, one entry with every figure, its unit and its source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from meshwright.report.blocks import Cell, Columns, Run, Section, Table, table, words
from meshwright.report.entries import SPARE

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT = 12
"""Characters of a value that a column holds in one piece."""
_FIGURE = re.compile(r"[\d.,]*[KMBT]?|\d+ of \d+")


def name_list(kind: str, rows: Sequence[Mapping[str, str]]) -> Iterator[Section]:
    """A table of entries; the keys of the first row are the columns, of which a narrow terminal leaves out those to spare."""
    head = tuple(rows[0]) if rows else ("name",)
    figures = [place for place, name in enumerate(head) if place and all(_FIGURE.fullmatch(row[name]) for row in rows)]
    short = [place for place, name in enumerate(head) if not place or all(len(row[name]) <= SHORT for row in rows)]
    least = {place: max(len(piece) for row in rows for piece in row[name].split(" ")) for place, name in enumerate(head) if rows}
    spare = [name for name in SPARE if name in head]
    shown = [tuple(place for place, name in enumerate(head) if name not in spare[:left]) for left in range(len(spare) + 1)]
    cells = [[Cell(words=words(each), label="," in each) for each in row.values()] for row in rows]
    yield Section(title=f"{len(rows)} {kind}", blocks=(table(
        head, cells, right=figures, whole=short, least=tuple(least.items()), look="tight",
        choices=tuple(Columns(shown=each, notes=bool(left)) for left, each in enumerate(shown)) if spare else (),
        notes=(words(f"a wider terminal, --json and catalog {kind} NAME have more columns"),) if spare else (),
    ),))


def entry(
    kind: str, name: str, facts: Mapping[str, object], provenance: Mapping[str, Mapping[str, object]]
) -> Iterator[Section]:
    """One entry: its facts, then every figure with the unit and the source that its file states."""
    told = [(key, value) for key, value in flat(facts) if value and not (provenance and key == "source")]
    yield Section(title=f"{kind} {name}", blocks=(named(told),))
    if provenance:
        parts = ("value", "unit", "source")
        rows = [(key, *(_figure(origin.get(part, "")) for part in parts)) for key, origin in provenance.items()]
        yield Section(title="Sources", blocks=(table(("figure", *parts), rows, right=[1], whole=[0, 2]),))


def named(facts: Sequence[tuple[str, str]]) -> Table:
    """Names, and what each of them is."""
    return table(("", ""), [(Run(name, "dim"), value) for name, value in facts], whole=[0], look="plain")


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
