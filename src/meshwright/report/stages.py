"""Memory of every pipeline stage as stacked bars against the capacity of the device."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.estimate.host_memory import REASONS
from meshwright.report.bars import MIN_BAR, Legend, Part, StackedBar
from meshwright.units import GIB
from meshwright.words import count, gib, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.domain.estimate import Estimate, Stage

PARTS = (
    ("parameters", "P", "blue"),
    ("gradients", "G", "cyan"),
    ("optimizer", "O", "magenta"),
    ("activations", "A", "green"),
    ("temporary", "T", "yellow"),
    ("overhead", "V", "bright_black"),
)
MAX_STAGES = 12
BAR = 40


def stage_memory(estimate: Estimate) -> Iterator[RenderableType]:
    """One bar per stage with a legend; of many stages the first, the fullest and the last."""
    stages = shown(estimate)
    uneven = any(len(set(stage.chunk_layers)) > 1 for stage in estimate.stages)
    most = max(stage.memory.reserved_bytes for stage in stages)
    scale = max(most, estimate.memory_capacity_bytes)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name, side in (("stage", "right"), ("layers", "right"), ("weights", "right")):
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    table.add_column(f"memory, to {gib(scale)}", min_width=MIN_BAR)
    for name in ("GiB", "forward", "backward"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages:
        full = stage.memory.reserved_bytes > estimate.memory_capacity_bytes
        mark = "*" if stage.stage == estimate.peak_stage else " "
        table.add_row(
            f"{mark}{stage.stage}", f"{stage.layers}{_chunks(stage)}" if uneven else str(stage.layers), count(stage.parameters),
            StackedBar(parts=_parts(stage), scale=scale, width=BAR, limit=estimate.memory_capacity_bytes),
            Text(f"{stage.memory.reserved_bytes / GIB:.1f}", style="bold red" if full else ""),
            seconds(stage.forward_s), seconds(stage.backward_s),
        )
    yield Padding(Text("Memory by stage", style="bold"), (1, 0, 0, 0))
    yield Padding(table, (0, 0, 0, 2))
    yield Legend(parts=_parts(stages[0]))
    hidden = len(estimate.stages) - len(stages)
    more = f"; {hidden} stages between are not shown" if hidden else ""
    chunks = "; in brackets the layers of its chunks" if uneven else ""
    yield Text(f"  * fullest stage{chunks}; seconds are per micro-batch{more}", style="dim")


def host_memory(estimate: Estimate) -> Iterator[RenderableType]:
    """The host memory of a node, each part with its reason."""
    parts = estimate.host_memory_bytes
    if parts is None:
        return
    yield Padding(Text.assemble(("Host memory of a node", "bold"), f"  {gib(parts.total_bytes)}"), (1, 0, 0, 0))
    for name, reason in REASONS.items():
        if value := getattr(parts, name):
            yield Padding(Text(f"{name:<11}{gib(value):>11}  {reason}"), (0, 0, 0, 2))


def shown(estimate: Estimate) -> list[Stage]:
    """All stages, or where they are many the first and last ones and the fullest."""
    stages = list(estimate.stages)
    if len(stages) <= MAX_STAGES:
        return stages
    half = MAX_STAGES // 2
    return [
        stage for place, stage in enumerate(stages)
        if place < half or place >= len(stages) - half + 1 or stage.stage == estimate.peak_stage
    ]


def _chunks(stage: Stage) -> str:
    """Layers of the chunks in their order, runs of equal ones together: `` (6x3+2)``."""
    runs = [(layers, len(list(same))) for layers, same in groupby(stage.chunk_layers)]
    return f" ({'+'.join(f'{times}x{layers}' if times > 1 else str(layers) for layers, times in runs)})"


def _parts(stage: Stage) -> list[Part]:
    """The parts of a stage's memory, in the order of the bar."""
    return [Part(name=name, letter=letter, style=style, value=getattr(stage.memory, name)) for name, letter, style in PARTS]
