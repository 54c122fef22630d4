"""The guide's way to a layout beside the searched best: what each step chooses, by which sentence, and what it comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.units import GIB
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.estimate import Estimate
    from meshwright.judging.walk import GuidedStep


def guided_report(steps: Sequence[GuidedStep], best: Estimate) -> Iterator[RenderableType]:
    """One row for each step, the rules behind them, and how the end of the walk stands to the first plan."""
    yield Padding(Text("As the ChatLearn guide goes, step by step", style="bold"), (1, 0, 0, 0))
    if not steps:
        yield Text("  The guide's first step has no legal layout here.", style="yellow")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name in ("", "the guide says", "chooses", "step", "MFU", "GiB", "slower", "searched"):
        figures = name in ("step", "MFU", "GiB", "slower")
        table.add_column(name, justify="right" if figures else "left", no_wrap=figures, overflow="fold")
    for place, step in enumerate(steps, start=1):
        now = step.estimate
        memory = Text(f"{now.memory_reserved_bytes / GIB:.1f}", style="" if now.fits else "bold red")
        slower = percent(step.loss_ratio) if step.loss_ratio is not None else "no fit"
        same = step.choice == step.searched
        table.add_row(
            str(place), f"{step.says} ({step.source})", step.choice, seconds(now.step_s), percent(now.mfu_ratio), memory, slower,
            Text(step.searched, style="dim" if same else ""),
        )
    yield Padding(table, (0, 0, 0, 2))
    yield Text("  each row: the layout so far, its expected step over that of plan 1, and what plan 1 has there", style="dim")
    end = steps[-1]
    words = Text.assemble("  the guide ends at ", (end.estimate.label, "bold cyan"))
    if end.loss_ratio is None:
        words.append(", which does not fit")
    else:
        own, first = seconds(end.estimate.expected_step_s), seconds(best.expected_step_s)
        words.append(f": {own} expected, {percent(end.loss_ratio)} slower than plan 1 ({first})")
    yield words
