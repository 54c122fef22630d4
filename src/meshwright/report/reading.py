"""Files as a framework understands them: the layout, what else they say, what was not understood, what is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.api.views.reading import _SAID, own_keys, remarks, unmapped
from meshwright.check import likely_models
from meshwright.text import visible
from meshwright.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading

WHY = {
    "given": "as --from says", "shown": "the files show it",
    "assumed": "assumed: the files do not show it; --from NAME@VERSION says it",
}
_LISTED = 8
"""Keys of a group that are named."""


def reading_report(framework: Framework, reading: Reading, why: str, label: str | None) -> Iterator[RenderableType]:
    """The layout first, then facts, messages and what is left alone."""
    if label is None:
        yield Padding(Text("The files determine no layout.", style="bold red"), (1, 0, 0, 0))
    else:
        yield Padding(Text(label, style="bold"), (1, 0, 0, 0))
    yield Padding(_facts(framework, reading, why), (0, 0, 0, 2))
    for title, found in (
        ("Could not be mapped" if label else "Why", unmapped(reading)),
        ("Not understood", remarks(reading)),
    ):
        if found:
            yield Padding(Text(title, style="bold"), (1, 0, 0, 0))
        for message in found:
            yield Padding(Text(str(message)), (0, 0, 0, 2))
    yield from _own(own_keys(framework, reading))


def _facts(framework: Framework, reading: Reading, why: str) -> Table:
    """What else the files say, in two columns."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("framework", f"{framework.title} {reading.version} ({WHY[why]})")
    source = reading.source
    if source.program:
        table.add_row("program", Text(visible(source.program)))
    if source.nodes is not None and source.devices_per_node is not None:
        table.add_row("launch", f"{plural(source.nodes, 'node')} of {plural(source.devices_per_node, 'device')}")
    for name, noun in _SAID.items():
        value = getattr(reading.said, name)
        if value is not None:
            table.add_row(noun, f"{value:,}" if isinstance(value, int) else visible(str(value)))
    if reading.said.figures:
        table.add_row("model", visible(", ".join(f"{name} {value}" for name, value in reading.said.figures.items())))
    if likely := likely_models(reading):
        table.add_row("looks like", ", ".join(likely))
    return table


def _own(groups: Mapping[str, tuple[str, ...]]) -> Iterator[RenderableType]:
    """What an edit would leave alone."""
    total = sum(map(len, groups.values()))
    if not total:
        return
    yield Padding(Text(f"Left alone: {plural(total, 'key')}", style="bold"), (1, 0, 0, 0))
    for name, keys in groups.items():
        more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
        words = visible(", ".join(keys[:_LISTED])) + more
        yield Padding(Text.assemble((f"{visible(name)} ({len(keys)}): ", "dim"), words), (0, 0, 0, 2))
