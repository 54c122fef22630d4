"""What is kept of the grid while it streams past: the best, the nearly fitting, the least demanding, the Pareto front."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective

if TYPE_CHECKING:
    from meshwright.search.grid import Bools, Floats, Rows
    from meshwright.search.result import Objective
    from meshwright.search.space import Space

KEEP = 240
"""Best fitting layouts kept for refinement."""
NEAR = 120
"""Best layouts kept that need a little more memory than there is."""
NEAR_RATIO = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout with its step time and reserved bytes."""

    layout: Layout
    step_s: float
    reserved_bytes: float
    order: int
    """Place in the enumeration, so that ties are broken the same way every time."""


@dataclass(slots=True)
class Finalists:
    """Collects from rows what the end of the search needs; its size does not depend on the size of the grid."""

    space: Space
    overlap: Overlap
    objective: Objective
    capacity_bytes: float
    best: list[Candidate] = field(default_factory=list)
    near: list[Candidate] = field(default_factory=list)
    least: Candidate | None = None
    front: list[Candidate] = field(default_factory=list)
    seen: int = 0

    def add(self, rows: Rows) -> None:
        """Look at evaluated rows."""
        fits = rows.reserved_bytes <= self.capacity_bytes
        key = self._key(rows)
        self._keep(rows, key, fits, self.best, KEEP)
        almost = ~fits & (rows.reserved_bytes <= NEAR_RATIO * self.capacity_bytes)
        self._keep(rows, key, almost, self.near, NEAR)
        smallest = int(np.argmin(rows.reserved_bytes))
        if self.least is None or rows.reserved_bytes[smallest] < self.least.reserved_bytes:
            self.least = self._candidate(rows, smallest)
        self._front(rows, fits)
        self.seen += len(rows)

    def _key(self, rows: Rows) -> Floats:
        return rows.reserved_bytes if self.objective == "memory" else rows.step_s

    def _value(self, candidate: Candidate) -> float:
        return candidate.reserved_bytes if self.objective == "memory" else candidate.step_s

    def _keep(self, rows: Rows, key: Floats, mask: Bools, pool: list[Candidate], size: int) -> None:
        index = np.flatnonzero(mask)
        if not len(index):
            return
        worst = self._value(pool[-1]) if len(pool) >= size else np.inf
        index = index[key[index] < worst] if len(pool) >= size else index
        if not len(index):
            return
        index = index[np.argsort(key[index], kind="stable")[:size]]
        pool.extend(self._candidate(rows, int(i)) for i in index)
        pool.sort(key=lambda candidate: (self._value(candidate), candidate.order))
        del pool[size:]

    def _front(self, rows: Rows, fits: Bools) -> None:
        """Not dominated in step time and reserved bytes."""
        index = np.flatnonzero(fits)
        if not len(index):
            return
        if self.front:
            times = np.array([candidate.step_s for candidate in self.front])
            sizes = np.array([candidate.reserved_bytes for candidate in self.front])
            place = np.searchsorted(times, rows.step_s[index], side="right") - 1
            index = index[(place < 0) | (rows.reserved_bytes[index] < np.where(place >= 0, sizes[place], np.inf))]
        if not len(index):
            return
        index = index[np.lexsort((rows.reserved_bytes[index], rows.step_s[index]))]
        sizes = rows.reserved_bytes[index]
        lowest = np.minimum.accumulate(sizes)
        index = index[np.concatenate([[True], sizes[1:] < lowest[:-1]])]
        merged = sorted(
            [*self.front, *(self._candidate(rows, int(i)) for i in index)], key=lambda c: (c.step_s, c.reserved_bytes, c.order)
        )
        self.front = []
        for candidate in merged:
            if not self.front or candidate.reserved_bytes < self.front[-1].reserved_bytes:
                self.front.append(candidate)

    def _candidate(self, rows: Rows, index: int) -> Candidate:
        return Candidate(
            layout=rebuild(self.space, rows, index, self.overlap),
            step_s=float(rows.step_s[index]),
            reserved_bytes=float(rows.reserved_bytes[index]),
            order=self.seen + index,
        )


def rebuild(space: Space, rows: Rows, index: int, overlap: Overlap) -> Layout:
    """The layout of one row of the grid."""
    mesh = {name: int(column[index]) for name, column in rows.mesh.items()}
    stage, shards, mb = int(rows.zero[index]), int(rows.shards[index]), int(rows.mb[index])
    able = space.case.implementation.sequence_parallel and space.features.sequence_parallel
    wanted = able if space.pins.sp is None else space.pins.sp
    recompute: dict[str, Recompute] = {
        "none": NoRecompute(), "selective": Selective(modules=space.pins.modules or ("core_attn",)), "full": Full(),
    }  # fmt: skip
    return Layout(
        tensor_parallel=mesh["tp"], sequence_parallel=bool(mesh["tp"] > 1 and wanted), context_parallel=mesh["cp"],
        context_kind=space.features.context_kinds[0], pipeline_parallel=mesh["pp"], virtual_stages=int(rows.vp[index]),
        expert_parallel=mesh["ep"], expert_tensor_parallel=mesh["etp"], data_parallel=mesh["dp"], optimizer_shards=shards,
        gradient_shards=shards if stage >= 2 else 1, parameter_shards=shards if stage >= 3 else 1, microbatch_sequences=mb,
        num_microbatches=space.case.batch.global_batch_sequences // (mesh["dp"] * mb), recompute=recompute[rows.treatment],
        schedule=rows.schedule, overlap=overlap,  # type: ignore[arg-type]
    )  # fmt: skip
