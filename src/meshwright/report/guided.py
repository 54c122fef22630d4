"""The guide's way to a layout beside the searched best: what each step chooses, by which sentence, and what it comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Block, Run, Section, figure, line, table
from meshwright.words import bare_gib, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.estimate import Estimate
    from meshwright.judging.walk import GuidedStep


def guided_report(steps: Sequence[GuidedStep], best: Estimate) -> Iterator[Section]:
    """One row for each step, the rules behind them, and how the end of the walk stands to the first plan."""
    yield Section(title="As the ChatLearn guide goes, step by step", blocks=tuple(_walk(steps, best)))


def _walk(steps: Sequence[GuidedStep], best: Estimate) -> Iterator[Block]:
    if not steps:
        yield line(Run("The guide's first step has no legal layout here.", "warn"), indent=2)
        return
    rows = []
    for place, step in enumerate(steps, start=1):
        now, over = step.estimate, not step.estimate.fits
        rows.append((
            str(place), f"{step.says} ({step.source})", step.choice, figure(now.step_s, seconds), figure(now.mfu_ratio, percent),
            figure(now.memory_reserved_bytes, bare_gib, tone="bad" if over else "", bold=over),
            figure(step.loss_ratio, percent) if step.loss_ratio is not None else "no fit",
            Run(step.searched, "dim" if step.choice == step.searched else ""),
        ))
    head = ("", "the guide says", "chooses", "step", "MFU", "GiB", "slower", "searched")
    yield table(head, rows, right=range(3, 7), whole=range(3, 7), look="tight")
    said = "each row: the layout so far, its expected step over that of plan 1, and what plan 1 has there"
    yield line(said, kind="small", indent=2)
    end = steps[-1]
    said = ", which does not fit"
    if end.loss_ratio is not None:
        own, first = seconds(end.estimate.expected_step_s), seconds(best.expected_step_s)
        said = f": {own} expected, {percent(end.loss_ratio)} slower than plan 1 ({first})"
    yield line("the guide ends at ", Run(end.estimate.label, "accent", bold=True), said, indent=2)
