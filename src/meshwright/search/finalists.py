"""What is kept of the grid while it streams past: the best, the nearly fitting, the Pareto front."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec import Struct, field

from meshwright.domain.layout import Layout, Overlap
from meshwright.domain.uncertainty import LEAST_PROBABILITY, expected_s
from meshwright.estimate.certainty import memory_curve
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.space import make_space

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Schedule
    from meshwright.domain.uncertainty import FitCurve
    from meshwright.search.grid import Bools, Floats, Grid, Ints, Rows
    from meshwright.search.grid_rows import Knobs
    from meshwright.search.result import Objective
    from meshwright.search.space import Pins, Space

MESH = ("tp", "cp", "pp", "dp", "ep", "etp")
KEEP = 240
"""Best fitting layouts kept for refinement."""
NEAR = 60
"""Best layouts kept of each band that needs more memory than there is."""
ROUNDED = 1e-9
"""Products of bounds round."""
NEAR_RATIOS = (1.0, 1.1, 1.25, 1.6)
"""Bands of demand over capacity: fast layouts far out must not crowd out those that a small change brings in."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A layout with its step, on average over the times that its runs take, and its reserved bytes."""

    layout: Layout
    step_s: float
    reserved_bytes: float
    order: int
    """Place in the enumeration, so that ties are broken the same way every time."""


class Pool(Struct, frozen=True, kw_only=True):
    """Rows kept so far, as columns; their layouts are rebuilt when the search is over."""

    knobs: Ints
    """``[knob, row]``: tp cp pp dp ep etp mb vp zero shards treatment schedule."""
    step_s: Floats
    reserved_bytes: Floats
    order: Ints

    def __len__(self) -> int:
        return len(self.order)

    def take(self, index: Ints) -> Pool:
        """Chosen rows."""
        return Pool(
            knobs=self.knobs[:, index],
            step_s=self.step_s[index],
            reserved_bytes=self.reserved_bytes[index],
            order=self.order[index],
        )

    def plus(self, other: Pool) -> Pool:
        """Both."""
        return Pool(
            knobs=np.concatenate([self.knobs, other.knobs], axis=1), step_s=np.concatenate([self.step_s, other.step_s]),
            reserved_bytes=np.concatenate([self.reserved_bytes, other.reserved_bytes]),
            order=np.concatenate([self.order, other.order]),
        )


def empty_pool() -> Pool:
    """No rows."""
    none = np.zeros(0)
    return Pool(knobs=np.zeros((12, 0), dtype=np.int64), step_s=none, reserved_bytes=none, order=np.zeros(0, dtype=np.int64))


class Finalists(Struct, eq=False):
    """Collects from rows what the end of the search needs; its size does not depend on the size of the grid."""

    space: Space
    overlap: Overlap
    objective: Objective
    capacity_bytes: float
    keep: int = KEEP
    """Best fitting layouts that are kept."""
    near_wanted: bool = True
    front_wanted: bool = True
    seen: int = 0
    """Places of the enumeration up to the last that was looked at."""
    curve: FitCurve | None = None
    """How likely layouts of the case fit."""
    grid: Grid | None = None
    """The grid once it is evaluated, for another pass."""
    _best: Pool = field(default_factory=empty_pool)
    _near: list[Pool] = field(default_factory=lambda: [empty_pool() for _ in NEAR_RATIOS[1:]])
    _front: Pool = field(default_factory=empty_pool)
    _bars: tuple[float, ...] | None = None
    """What ``_bar`` says of the best and of each band; None where rows were kept since."""

    def __post_init__(self) -> None:
        self.curve = memory_curve(self.space.case)

    def add(self, rows: Rows) -> None:
        """Look at evaluated rows."""
        self._bars = None
        fits = rows.reserved_bytes <= self.capacity_bytes
        key = self._key(rows.mean_s, rows.reserved_bytes)
        self._best = self._kept(rows, key, fits, self._best, self.keep)
        self.seen = max(self.seen, int(rows.order.max()) + 1)
        if self.near_wanted:
            demand = rows.reserved_bytes / self.capacity_bytes
            for band, (above, upto) in enumerate(pairwise(NEAR_RATIOS)):
                self._near[band] = self._kept(rows, key, (demand > above) & (demand <= upto), self._near[band], NEAR)
        if self.front_wanted:
            self._add_front(rows, fits)

    def beyond(self, step_s: Floats, reserved_bytes: Floats, _: Knobs | None = None, /, *, exactly: bool = False) -> Bools:
        """Whether no layout is kept that takes at least so long and needs at least (or ``exactly``) so much.

        Holds:   a layout is expected to take no less than its step, and over the memory no less than that over the probability at
                 the lower end of its band; the front is of those that nothing known beats in both.
        """
        if self._bars is None:
            self._bars = (self._worst(self._best, self.keep), *map(self._bar, self._near, NEAR_RATIOS))
        of_best, *of_bands = self._bars
        over, figure = reserved_bytes > self.capacity_bytes, self._figure(step_s, reserved_bytes)
        beyond = over | (figure > of_best)
        for bar, (above, upto) in zip(of_bands, pairwise(NEAR_RATIOS), strict=True) if self.near_wanted else ():
            late = figure > bar
            outside = reserved_bytes > upto * self.capacity_bytes * (1.0 + ROUNDED)
            if exactly:
                outside = outside | (reserved_bytes < above * self.capacity_bytes * (1.0 - ROUNDED))
            beyond = beyond & (late | outside)
        if not self.front_wanted:
            return beyond
        if not len(self._front):
            return beyond & over
        place = np.searchsorted(self._front.step_s, step_s, side="right") - 1
        beaten = (place >= 0) & (reserved_bytes > self._front.reserved_bytes[place])
        return np.asarray(beyond & (over | beaten))

    def expected_s(self, candidate: Candidate) -> float:
        """The mean step of a candidate over the probability that it fits."""
        return float(self._key(np.array([candidate.step_s]), np.array([candidate.reserved_bytes]))[0])

    def _figure(self, step_s: Floats, reserved_bytes: Floats) -> Floats:
        """What no key is below."""
        return reserved_bytes if self.objective == "memory" else step_s

    def _worst(self, pool: Pool, size: int) -> float:
        """The key that a layout must not exceed to be kept."""
        return float(self._key(pool.step_s[-1:], pool.reserved_bytes[-1:])[0]) if len(pool) >= size else math.inf

    def _bar(self, pool: Pool, above: float) -> float:
        """The figure that a layout of a band, from so much of the memory on, must not exceed to be kept."""
        worst = self._worst(pool, NEAR)
        if self.objective == "memory" or self.curve is None:
            return worst
        fits = self.curve.memory_probability(above * self.capacity_bytes, self.space.case.offered_bytes)
        return worst * max(float(fits), LEAST_PROBABILITY) * (1.0 + ROUNDED)

    @property
    def best(self) -> list[Candidate]:
        """The best that fit, best first."""
        return self._candidates(self._best)

    @property
    def near(self) -> tuple[list[Candidate], ...]:
        """The best that need more memory than there is, band by band."""
        return tuple(self._candidates(pool) for pool in self._near)

    @property
    def front(self) -> list[Candidate]:
        """Not dominated in step time and memory, fastest first."""
        return self._candidates(self._front)

    def _key(self, step_s: Floats, reserved_bytes: Floats) -> Floats:
        if self.objective == "memory" or self.curve is None:
            return reserved_bytes if self.objective == "memory" else step_s
        return expected_s(step_s, self.curve.memory_probability(reserved_bytes, self.space.case.offered_bytes))

    def _kept(self, rows: Rows, key: Floats, mask: Bools, pool: Pool, size: int) -> Pool:
        index = np.flatnonzero(mask)
        own = self._key(pool.step_s, pool.reserved_bytes)
        if len(pool) >= size:
            index = index[key[index] <= own[-1]]
        if not len(index):
            return pool
        if len(index) > size:
            index = index[np.lexsort((rows.order[index], key[index]))[:size]]
        merged = pool.plus(self._pool(rows, index))
        return merged.take(np.lexsort((merged.order, self._key(merged.step_s, merged.reserved_bytes)))[:size])

    def _add_front(self, rows: Rows, fits: Bools) -> None:
        """Keep what is not dominated in step time and reserved bytes."""
        index = np.flatnonzero(fits)
        if len(index) and len(self._front):
            place = np.searchsorted(self._front.step_s, rows.mean_s[index], side="right") - 1
            bar = np.where(place >= 0, self._front.reserved_bytes[place], np.inf)
            index = index[rows.reserved_bytes[index] <= bar]
        if not len(index):
            return
        merged = self._front.plus(self._pool(rows, index))
        merged = merged.take(np.lexsort((merged.order, merged.reserved_bytes, merged.step_s)))
        lowest = np.minimum.accumulate(merged.reserved_bytes)
        self._front = merged.take(np.flatnonzero(np.concatenate([[True], merged.reserved_bytes[1:] < lowest[:-1]])))

    def _pool(self, rows: Rows, index: Ints) -> Pool:
        schedule = np.full(len(index), self.space.schedules.index(cast("Schedule", rows.schedule)), dtype=np.int64)
        at, columns = rows.at[index], (rows.mb, rows.vp, rows.zero, rows.shards, rows.treatment)
        knobs = [*(rows.meshes[name][at] for name in MESH), *(column[index] for column in columns), schedule]
        return Pool(
            knobs=np.stack(knobs), step_s=rows.mean_s[index], reserved_bytes=rows.reserved_bytes[index], order=rows.order[index]
        )

    def _candidates(self, pool: Pool) -> list[Candidate]:
        return [
            Candidate(
                layout=rebuild(self.space, [int(value) for value in pool.knobs[:, row]], self.overlap),
                step_s=float(pool.step_s[row]),
                reserved_bytes=float(pool.reserved_bytes[row]), order=int(pool.order[row]),
            )
            for row in range(len(pool))
        ]


def grid_best(case: Case, features: Features, pins: Pins, *, overlap: Overlap) -> Candidate | None:
    """The layout of the plain grid that is expected to be fastest on all devices of the case; None where none fits."""
    space = make_space(case, features, case.cluster.num_devices, pins)
    kept = Finalists(
        space=space, overlap=overlap, objective="step-time", capacity_bytes=case.capacity_bytes, keep=1, near_wanted=False,
        front_wanted=False,
    )
    for rows in evaluate_grid(space, Counts(), overlap=overlap, bar=kept):
        kept.add(rows)
    return next(iter(kept.best), None)


def rebuild(space: Space, knobs: Sequence[int], overlap: Overlap) -> Layout:
    """The layout of one row of a pool."""
    tp, cp, pp, dp, ep, etp, mb, vp, stage, shards, treatment, schedule = knobs
    return Layout(
        tensor_parallel=tp, sequence_parallel=tp > 1 and space.sequence_parallel, context_parallel=cp,
        context_kind=space.context_kind if cp > 1 else "ring", pipeline_parallel=pp, virtual_stages=vp, expert_parallel=ep,
        expert_tensor_parallel=etp, data_parallel=dp, optimizer_shards=shards, gradient_shards=shards if stage >= 2 else 1,
        parameter_shards=shards if stage >= 3 else 1, microbatch_sequences=mb,
        num_microbatches=space.case.batch.global_batch_sequences // (dp * mb), recompute=space.recomputes[treatment],
        schedule=space.schedules[schedule], overlap=overlap, offload=space.offload,
        compiled=space.compiled, attention=space.attention,
    )


def layout_of_row(space: Space, rows: Rows, index: int, overlap: Overlap) -> Layout:
    """The layout of one evaluated row of the grid."""
    at = int(rows.at[index])
    mesh = [int(rows.meshes[name][at]) for name in MESH]
    own = [int(column[index]) for column in (rows.mb, rows.vp, rows.zero, rows.shards)]
    codes = [int(rows.treatment[index]), space.schedules.index(cast("Schedule", rows.schedule))]
    return rebuild(space, [*mesh, *own, *codes], overlap)
