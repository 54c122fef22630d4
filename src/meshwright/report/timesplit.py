"""Where the step goes: exposed seconds by cause on the busiest stage, summing to the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.estimate.breakdown import STALLS, STRAGGLERS
from meshwright.report.blocks import Bar, Cell, Part, Run, Section, figure, table
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.estimate import Estimate

PARTS = (
    ("compute_s", "compute", "C", "green"),
    ("tensor_parallel_s", "tensor parallel", "T", "blue"),
    ("context_parallel_s", "context parallel", "X", "cyan"),
    ("expert_parallel_s", "expert parallel", "E", "magenta"),
    ("pipeline_exposed_s", "pipeline transfers", "P", "bright_blue"),
    ("bubble_s", "bubble", "B", "red"),
    ("data_parallel_exposed_s", "data parallel", "D", "yellow"),
    ("optimizer_s", "optimizer", "O", "bright_magenta"),
    ("host_s", "host", "H", "bright_black"),
)
WAITS = ((STALLS, "stalls", "M", "bright_red"), (STRAGGLERS, "stragglers", "S", "bright_yellow"))
"""Terms that stand apart from the host in a table: term, name, letter, style."""
BAR = 60


def parts_of(estimate: Estimate) -> list[Part]:
    """The parts of a step, in the order of the bar: those of the contract, and what waits for others apart from the host."""
    waited = {term.name: term.value for term in estimate.terms if term.name in (STALLS, STRAGGLERS)}
    seconds_of = {key: getattr(estimate.time, key) for key, *_ in PARTS}
    seconds_of["host_s"] = max(0.0, seconds_of["host_s"] - sum(waited.values()))
    parts = [Part(name=name, letter=letter, style=style, value=seconds_of[key]) for key, name, letter, style in PARTS]
    return parts + [Part(name=name, letter=letter, style=style, value=waited.get(term, 0.0)) for term, name, letter, style in WAITS]


def time_split(estimate: Estimate) -> Iterator[Section]:
    """One bar, then every part that is not zero, and their sum."""
    parts, total = parts_of(estimate), estimate.time.total_s()
    rows: list[tuple[str | Run | Cell, ...]] = [
        (Cell(key=part), part.name, figure(part.value, seconds), figure(part.value / total, percent))
        for part in parts if part.value > 0
    ]
    rows.append(("=", Run("step", "strong"), figure(total, seconds, tone="strong"), figure(1.0, percent)))
    told = table(["", "", "", ""], rows, right=[2, 3], whole=range(4), look="plain")
    yield Section(title="Time of one step", blocks=(Bar(parts=tuple(parts), scale=total, width=BAR), told))
