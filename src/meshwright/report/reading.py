"""Files as a framework understands them: the layout, what else they say, what was not understood, what is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshwright.api.views.reading import _SAID, own_keys, remarks, unmapped
from meshwright.check import likely_models
from meshwright.check.messages import TAKEN
from meshwright.report.blocks import Run, Section, line
from meshwright.report.facts import named
from meshwright.text import plain, visible
from meshwright.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading
    from meshwright.report.blocks import Table, Told

WHY = {
    "given": "as --from says", "shown": "the files show it",
    "assumed": "assumed: the files do not show it; --from NAME@VERSION says it",
}
_LISTED = 8
"""Keys of a group that are named."""


def reading_report(framework: Framework, reading: Reading, why: str, label: str | None) -> Iterator[Told]:
    """The layout first, then facts, messages and what is left alone."""
    if label is None:
        yield line(Run("The files determine no layout.", "bad", bold=True), above=True)
    else:
        yield line(Run(label, bold=True), above=True)
    yield _facts(framework, reading, why)
    said = remarks(reading)
    for title, found in (
        ("Could not be mapped" if label else "Why", unmapped(reading)),
        ("Not understood", [each for each in said if each.id not in TAKEN]),
        ("How the files were taken", [each for each in said if each.id in TAKEN]),
    ):
        if found:
            yield Section(title=title, blocks=tuple(line(str(message), indent=2) for message in found))
    yield from _own(own_keys(framework, reading))


def _facts(framework: Framework, reading: Reading, why: str) -> Table:
    """What else the files say, in two columns."""
    facts = [("framework", f"{framework.title} {reading.version} ({WHY[why]})")]
    source = reading.source
    if source.program:
        facts.append(("program", visible(source.program)))
    if source.nodes is not None and source.devices_per_node is not None:
        facts.append(("launch", f"{plural(source.nodes, 'node')} of {plural(source.devices_per_node, 'device')}"))
    if beneath := next(iter(source.beneath.values()), None):
        facts.append(("starts from", visible(beneath.file) + (f", of {reading.said.model}" if reading.said.model else "")))
    for name, noun in _SAID.items():
        value = getattr(reading.said, name)
        if value is not None:
            facts.append((noun, f"{value:,}" if isinstance(value, int) else visible(str(value))))
    if reading.said.figures:
        facts.append(("model", ", ".join(f"{visible(name)} {plain(value)}" for name, value in reading.said.figures.items())))
    if likely := likely_models(reading):
        facts.append(("looks like", ", ".join(likely)))
    return named(facts)


def _own(groups: Mapping[str, tuple[str, ...]]) -> Iterator[Section]:
    """What an edit would leave alone."""
    total = sum(map(len, groups.values()))
    if not total:
        return
    lines = []
    for name, keys in groups.items():
        more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
        words = visible(", ".join(keys[:_LISTED])) + more
        lines.append(line(Run(f"{visible(name)} ({len(keys)}): ", "dim"), words, indent=2))
    yield Section(title=f"Left alone: {plural(total, 'key')}", blocks=tuple(lines))
