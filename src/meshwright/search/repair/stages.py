"""What is worth trying stage by stage on a layout's own pipeline: layers moved off its fullest stages, or recomputed on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective, mixed
from meshwright.estimate.evaluate import evaluate, split_of
from meshwright.search.balance.layouts import choices, problem_of
from meshwright.search.balance.quick import quick_placements
from meshwright.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Grid, Layout, Recompute
    from meshwright.search.repair.prices import Extra

    Floats = NDArray[np.float64]

MOST_MOVES = 8
"""Layers that are moved, one after the other."""


class Room(Value, frozen=True, kw_only=True):
    """What every stage may need."""

    bound_bytes: float
    extra: Extra

    def needs(self, case: Case, layout: Layout) -> Floats:
        """Reserved bytes of every stage, with what comes on top."""
        here = evaluate(case, layout)
        embedding, head = here.composition.embedding > 0.0, here.composition.head > 0.0
        return here.memory.reserved_bytes + self.extra.on(embedding, head, np.full(len(head), float(layout.pipeline_parallel)))

    def holds(self, case: Case, layout: Layout) -> bool:
        """Whether every stage has enough."""
        return bool((self.needs(case, layout) <= self.bound_bytes).all())


def splits(case: Case, features: Features, layout: Layout, room: Room) -> tuple[Grid, ...]:
    """Splits of the layout's own pipeline: balanced under the bound, and its own with layers moved off the fullest stage.

    Holds:   moves stop where the fullest stage cannot become less full so; empty without a pipeline.
    """
    if layout.pipeline_parallel == 1 or not features.uneven_stages:
        return ()
    emptied = _emptied(case, layout, room)
    fits = bool(emptied) and room.holds(case, replace(layout, stage_layers=emptied[-1]))
    balanced = _balanced(case, features, layout, room) if fits else None
    return tuple(dict.fromkeys((*([balanced] if balanced else []), *emptied)))


def _balanced(case: Case, features: Features, layout: Layout, room: Room) -> Grid | None:
    """The fastest split within the bound, with recomputation as it is; None where there is none."""
    if (isinstance(layout.recompute, Full) and layout.recompute.layers is not None) or isinstance(layout.recompute, Mixed):
        return None
    (same,) = choices(features, layout, pinned=True)
    stages = layout.pipeline_parallel
    first, last = np.arange(stages) == 0, np.arange(stages) == stages - 1
    bounds = room.bound_bytes - room.extra.on(first, last, np.full(stages, float(stages)))
    problem = replace(problem_of(case, features, layout, same), memory_bounds=tuple(bounds.tolist()))
    found = quick_placements(problem)
    return found[0].layers if found else None


def _emptied(case: Case, layout: Layout, room: Room) -> list[Grid]:
    """The fullest stage gives a layer to the emptiest one, again and again."""
    found: list[Grid] = []
    split, worst = split_of(case, layout), np.inf
    while len(found) <= MOST_MOVES:
        needs = room.needs(case, replace(layout, stage_layers=split))
        if float(needs.max()) >= worst:
            return found[:-1]
        worst = float(needs.max())
        moved = _moved(split, int(needs.argmax()), int(needs.argmin()))
        if moved is None:
            return found
        split = moved
        found.append(split)
    return found[:-1]


def _moved(split: Grid, full: int, empty: int) -> Grid | None:
    """One layer of the fullest stage's largest chunk on the emptiest stage's smallest one; None where a chunk would be empty."""
    columns = np.array(split)
    take, give = int(columns[:, full].argmax()), int(columns[:, empty].argmin())
    if full == empty or columns[take, full] < 2:
        return None
    columns[take, full] -= 1
    columns[give, empty] += 1
    return tuple(tuple(row) for row in columns.tolist())


def lists(case: Case, features: Features, layout: Layout, room: Room) -> tuple[Recompute, ...]:
    """The fewest layers recomputed in full, on the stages alone that need more than they may; on all, where that is not enough.

    Holds:   only what the framework can say: counts by stage, beside modules where it can mix them.
    """
    kept = isinstance(layout.recompute, NoRecompute) or (isinstance(layout.recompute, Selective) and features.recompute_mixed)
    if layout.pipeline_parallel == 1 or not kept or not features.recompute_per_stage or "full" not in features.recompute:
        return ()
    split = split_of(case, layout)
    layers = np.array(split).sum(axis=0)
    counts = np.zeros_like(layers)
    over = room.needs(case, layout) > room.bound_bytes
    for count in range(1, int(layers.max()) + 1):
        counts = np.where(over & (counts < layers), count, counts)
        needs = room.needs(case, replace(layout, recompute=_recomputed(layout, split, counts)))
        over &= (needs > room.bound_bytes) & (counts < layers)
        if not over.any():
            break
    return (_recomputed(layout, split, counts),) if counts.any() else ()


def _recomputed(layout: Layout, split: Grid, counts: NDArray[np.int64]) -> Recompute:
    """So many layers of each stage in full, spread over its chunks; the others as they were."""
    chunks = len(split)
    grid = np.zeros((chunks, len(counts)), dtype=np.int64)
    room = np.array(split)
    for stage, count in enumerate(counts.tolist()):
        for _ in range(count):
            left = room[:, stage] - grid[:, stage]
            grid[int(np.argmax(left)), stage] += 1
    full = tuple(tuple(row) for row in grid.tolist())
    parts: list[tuple[Selective | Full, Grid]] = [(Full(), full)]
    if isinstance(layout.recompute, Selective):
        parts.append((layout.recompute, tuple(tuple(row) for row in (room - grid).tolist())))
    return mixed(parts, split)
