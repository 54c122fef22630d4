"""Memory of every pipeline stage as stacked bars against the capacity of the device."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from meshwright.estimate.host_memory import REASONS
from meshwright.report.blocks import Bar, Legend, Part, Section, figure, line, table
from meshwright.words import bare_gib, count, gib, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

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
BAR, MIN_BAR = 40, 10


def stage_memory(estimate: Estimate) -> Iterator[Section]:
    """One bar per stage with a legend; of many stages the first, the fullest and the last."""
    stages = shown(estimate)
    uneven = any(len(set(stage.chunk_layers)) > 1 for stage in estimate.stages)
    capacity = estimate.memory_capacity_bytes
    scale = max(capacity, *(stage.memory.reserved_bytes for stage in stages))
    rows = []
    for stage in stages:
        full, held = stage.memory.reserved_bytes > capacity, stage.memory.reserved_bytes
        mark = "*" if stage.stage == estimate.peak_stage else " "
        rows.append((
            f"{mark}{stage.stage}", f"{stage.layers}{_chunks(stage)}" if uneven else str(stage.layers),
            figure(stage.parameters, count), Bar(parts=_parts(stage), scale=scale, width=BAR, limit=capacity),
            figure(held, bare_gib, tone="bad" if full else "", bold=full), figure(stage.forward_s, seconds),
            figure(stage.backward_s, seconds),
        ))
    head = ("stage", "layers", "weights", f"memory, to {gib(scale)}", "GiB", "forward", "backward")
    places = {0, 1, 2, 4, 5, 6}
    hidden = len(estimate.stages) - len(stages)
    more = f"; {hidden} stages between are not shown" if hidden else ""
    chunks = "; in brackets the layers of its chunks" if uneven else ""
    yield Section(title="Memory by stage", blocks=(
        table(head, rows, right=places, whole=places, least=((3, MIN_BAR),)), Legend(parts=_parts(stages[0])),
        line(f"* fullest stage{chunks}; seconds are per micro-batch{more}", kind="small", indent=2),
    ))


def host_memory(estimate: Estimate) -> Iterator[Section]:
    """The host memory of a node, each part with its reason."""
    parts = estimate.host_memory_bytes
    if parts is None:
        return
    rows = [(name, figure(value, gib), reason) for name, reason in REASONS.items() if (value := getattr(parts, name))]
    told = table(["", "", ""], rows, right=[1], whole=[0, 1], look="plain", least=((0, 10), (1, 10)))
    yield Section(title="Host memory of a node", remark=gib(parts.total_bytes), blocks=(told,))


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


def _parts(stage: Stage) -> tuple[Part, ...]:
    """The parts of a stage's memory, in the order of the bar."""
    return tuple(Part(name=name, letter=letter, style=style, value=getattr(stage.memory, name)) for name, letter, style in PARTS)
