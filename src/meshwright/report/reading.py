"""Files as a framework understands them: the layout, what else they say, what was not understood, what is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.check import likely_models
from meshwright.check.messages import placed
from meshwright.domain.label import label
from meshwright.report.findings import simple
from meshwright.report.view import layout_view
from meshwright.report.words import plural
from meshwright.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.errors import Message
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading

WHY = {
    "given": "as --from says", "shown": "the files show it",
    "assumed": "assumed: the files do not show it; --from NAME@VERSION says it",
}
_SAID = {
    "devices": "devices", "global_batch_sequences": "sequences a step", "sequence_tokens": "tokens of a sequence",
    "precision": "precision", "gradient_dtype": "gradients in", "optimizer": "optimizer", "task": "task",
}
_LISTED = 8
"""Keys of a group that are named."""


def reading_view(framework: Framework, reading: Reading, why: str) -> dict[str, Any]:
    """``import --json``."""
    layout, source = reading.layout, reading.source
    groups = own_keys(framework, reading)
    return {
        "framework": framework.name, "version": reading.version, "version_source": why,
        "label": None if layout is None else label(layout),
        "layout": None if layout is None else layout_view(layout),
        "said": {name: simple(getattr(reading.said, name)) for name in _SAID} | {"figures": simple(reading.said.figures)},
        "likely_models": list(likely_models(reading)),
        "launch": {"nodes": source.nodes, "devices_per_node": source.devices_per_node, "program": source.program},
        "messages": [_message_view(each) for each in unmapped(reading)],
        "remarks": [_message_view(each) for each in remarks(reading)],
        "own_keys": {"count": sum(map(len, groups.values())), "groups": {name: list(keys) for name, keys in groups.items()}},
    }


def unmapped(reading: Reading) -> tuple[Message, ...]:
    """What could not be mapped, without what the files' own language already left open."""
    known = {str(each) for each in reading.source.remarks}
    return tuple(placed(each) for each in reading.messages if str(each) not in known)


def remarks(reading: Reading) -> tuple[Message, ...]:
    """What the files' own language leaves open, at its line."""
    return tuple(placed(each) for each in reading.source.remarks)


def _message_view(message: Message) -> dict[str, Any]:
    """One message with its place."""
    return {"id": message.id, "message": str(message), "place": message.path}


def own_keys(framework: Framework, reading: Reading) -> Mapping[str, tuple[str, ...]]:
    """Keys that express no layout and stay as they are, by section; flags together, unknown ones apart."""
    surface = framework.surface() if framework.surface is not None else None
    knobs = surface.knobs() if surface is not None else {}
    groups: dict[str, list[str]] = {}
    for key in reading.source.settings:
        if key in knobs:
            continue
        known = surface is None or surface.find(key, reading.version) is not None or surface.inside(key, reading.version)
        section = "flags" if key.startswith("-") else key.partition(".")[0] if "." in key else "top level"
        groups.setdefault(section if known else "unknown to the framework", []).append(key)
    return {name: tuple(keys) for name, keys in groups.items()}


def reading_report(framework: Framework, reading: Reading, why: str) -> Iterator[RenderableType]:
    """The layout first, then facts, messages and what is left alone."""
    layout = reading.layout
    if layout is None:
        yield Padding(Text("The files determine no layout.", style="bold red"), (1, 0, 0, 0))
    else:
        yield Padding(Text(label(layout), style="bold"), (1, 0, 0, 0))
    yield Padding(_facts(framework, reading, why), (0, 0, 0, 2))
    for title, found in (
        ("Could not be mapped" if layout else "Why", unmapped(reading)),
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
