"""The grid, evaluated: layouts as columns gathered from tables of distinct keys, in bounded memory.

A mesh (tp, cp, pp, dp, ep, etp) has micro-batches (``work``: what a layer costs), chunk counts (``split``: what stands on a
stage), and sharding options (``state``: what is kept and synchronised). A layout is one of each, so tables are computed
once per distinct key and gathered. What provably cannot matter any more is left out, level by level.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct, structs

from meshwright.estimate.combine import pipeline_time, step_time, straggler_ratio
from meshwright.estimate.degrees import Degrees
from meshwright.estimate.memory import activation_memory, dynamic_bytes
from meshwright.estimate.split import take_columns
from meshwright.estimate.stages import stage_costs
from meshwright.perf.arrays import take as take_record
from meshwright.search.grid_tables import settings_for, states_of, work_of
from meshwright.search.legal_grid import Counts, legal_layouts, sequence_parallel, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from meshwright.domain.layout import Overlap
    from meshwright.estimate.costs import Settings
    from meshwright.search.grid_tables import States, Work
    from meshwright.search.legal_grid import Legal
    from meshwright.search.space import Space

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

__all__ = ["Bar", "Counts", "Rows", "evaluate_grid", "sequence_parallel"]

WHOLE = 100_000
"""A grid of so few legal layouts is evaluated whole: bounds would take longer than what they leave out."""
BLOCK_PAIRS = 16384
"""Pairs of mesh and micro-batch of a block: bounds the memory of its states."""
CHUNK_LAYOUTS, FIRST_CHUNK = 32768, 1024
"""Layouts of a chunk: their temporaries stay in cache. Under a bar the first chunk is short, so that there soon is a bar."""
ROUNDING = 1.0 - 1e-9
"""A lower bound is a sum in another order than what it bounds."""


class Bar(Protocol):
    """What a search has found already, asked whether layouts can still matter."""

    def beyond(self, step_s: Floats, reserved_bytes: Floats, *, exactly: bool = False) -> Bools:
        """Whether no layout can matter that takes at least so long and needs at least (or ``exactly``) so much."""
        ...


class Rows(Struct, frozen=True, kw_only=True):
    """Evaluated layouts: their knobs as columns, step time and reserved bytes."""

    meshes: dict[str, Ints]
    """All meshes of the grid."""
    at: Ints
    """Which of them."""
    mb: Ints
    vp: Ints
    zero: Ints
    shards: Ints
    treatment: Ints
    """Code: place in ``Space.recomputes``."""
    schedule: str
    order: Ints
    """Place in the enumeration of the grid, whatever order it is evaluated in."""
    step_s: Floats
    mean_s: Floats
    """The step on average over the times that runs of a layout take; never less than ``step_s``."""
    reserved_bytes: Floats

    def __len__(self) -> int:
        return len(self.step_s)

    @property
    def mesh(self) -> dict[str, Ints]:
        """Degrees as columns."""
        return take(self.meshes, self.at)

    def take(self, index: Ints | Bools) -> Rows:
        """Chosen rows."""
        return Rows(
            meshes=self.meshes, at=self.at[index], mb=self.mb[index], vp=self.vp[index],
            zero=self.zero[index], shards=self.shards[index], treatment=self.treatment[index], schedule=self.schedule,
            order=self.order[index], step_s=self.step_s[index], mean_s=self.mean_s[index],
            reserved_bytes=self.reserved_bytes[index],
        )


def evaluate_grid(
    space: Space, counts: Counts, *, overlap: Overlap, bound: bool = True, bar: Bar | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Rows]:
    """Every legal layout of the grid, evaluated chunk by chunk, or left out: its states alone exceed the memory, or it is beyond
    the bar.

    Lower bounds of the step time: the mean stage in place of the busiest one; then the pipeline of the layout; then that with its
    optimizer. Of the memory: the leanest states of the mesh; then those of the layout; then all that it reserves.

    ``bar``: looks at each chunk before the next one is asked for; meshes that promise most come first then. Small grids are
    evaluated whole.

    Holds:   legal = evaluated + bounded when exhausted. ``Rows.order`` is the same in whatever order rows come.
    """
    grid = open_grid(space, counts, overlap=overlap, bound=bound, bar=bar)
    if grid is not None:
        yield from grid.rows(progress)


def open_grid(space: Space, counts: Counts, *, overlap: Overlap, bound: bool = True, bar: Bar | None = None) -> Grid | None:
    """A grid before it is evaluated; None where nothing of it is legal.

    Source:  ``evaluate_grid``.
    """
    legal = legal_layouts(space, counts)
    if legal is None or not len(legal.pairs.mesh):
        return None
    return Grid(space, counts, legal, overlap, bar if legal.number > WHOLE else None, bound=bound)


class Ground(Struct, frozen=True, kw_only=True):
    """What an evaluated grid leaves for another pass over some of it, under other modules of recomputation."""

    legal: Legal
    least_s: Floats
    """Lower bound of a step that recomputes nothing, by pair of mesh and micro-batch."""

    def within(self, space: Space, latest_s: float) -> Legal | None:
        """The pairs that take no longer if they recompute nothing, under each treatment of a space; None where none do.

        Holds:   every treatment of the space is as legal as plain selective recomputation is.
        """
        pairs = self.legal.pairs.where(self.least_s <= latest_s)
        if not len(pairs.mesh):
            return None
        return self.legal.only(pairs, treatments=len(space.codes))


class Grid:
    """The tables of a grid under evaluation."""

    def __init__(self, space: Space, counts: Counts, legal: Legal, overlap: Overlap, bar: Bar | None, *, bound: bool) -> None:
        self.space, self.counts, self.legal, self.bar, self.bound = space, counts, legal, bar, bound
        self.settings = [settings_for(space, schedule, overlap) for schedule in space.schedules]
        self.chunks, self.sizes = np.array(space.chunks, dtype=np.int64), np.array(space.microbatches, dtype=np.int64)
        self.treatments = np.array(space.codes, dtype=np.int64)
        self.delay = 1.0 + float(straggler_ratio(space.case, Degrees.of(take(legal.mesh, np.zeros(1, dtype=np.int64))))[0])
        self.digits = _worth(
            len(space.schedules), len(space.recomputes), len(legal.pairs.mesh), len(space.chunks), len(space.shard_options)
        )
        """What a step of schedule, treatment, pair, chunks and sharding is worth in the order of the enumeration."""
        self.per_block = max(1, BLOCK_PAIRS // max(1, len(space.microbatches)))

    def rows(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Rows]:
        """Its layouts, chunk by chunk, as far as they matter."""
        done, total = 0, len(self.legal.mesh["tp"])
        for meshes, pairs in self.blocks():
            yield from self.evaluated(meshes, pairs)
            done += len(meshes)
            if progress is not None:
                progress(done, total)

    def ground(self) -> Ground | None:
        """What another pass needs; None where no states fit, whatever is recomputed.

        Holds:   recomputation adds to the step, but for what goes to the host meanwhile: there nothing is bounded.
        """
        if "work" not in self.__dict__:
            return None
        every = np.arange(len(self.legal.pairs.mesh))
        if self.space.case.launch.offloads:
            return Ground(legal=self.legal, least_s=np.zeros(len(every)))
        return Ground(legal=self.legal, least_s=self._at_least_s(every, np.zeros(1, dtype=np.int64))[0])

    @cached_property
    def work(self) -> Work:
        """What micro-batches cost, made when the first is asked for: where no states fit none is."""
        return work_of(self.space, self.legal, self.settings[0])

    def at_least_s(self, pairs: Ints) -> Floats:
        """Lower bound of the step of pairs under each treatment of the space: the mean stage of the pipeline is not the busiest.

        Shapes:  ``[treatment, pair]``.
        Units:   s.
        """
        return self._at_least_s(pairs, self.treatments)

    def _at_least_s(self, pairs: Ints, treatments: Ints) -> Floats:
        own = self.legal.pairs
        stages = self.legal.mesh["pp"][own.mesh[pairs]]
        share = own.num_microbatches[pairs] * (self.delay * ROUNDING) / stages
        return np.asarray(self.work.whole_s[treatments[:, None], self.work.key[pairs]] * share)

    def blocks(self) -> Iterator[tuple[Ints, Ints]]:
        """Meshes with their pairs, block by block; under a bar those that promise most come first."""
        pairs, meshes = self.legal.pairs.mesh, len(self.legal.mesh["tp"])
        first = np.searchsorted(pairs, np.arange(meshes + 1))
        order = np.flatnonzero(first[1:] > first[:-1])
        if self.bar is not None:
            fastest = np.minimum.reduceat(self.at_least_s(np.arange(len(pairs))).min(axis=0), first[order])
            order = order[np.argsort(fastest, kind="stable")]
        for begin in range(0, len(order), self.per_block):
            own = order[begin : begin + self.per_block]
            yield own, np.concatenate([np.arange(first[mesh], first[mesh + 1]) for mesh in own])

    def evaluated(self, meshes: Ints, pairs: Ints) -> Iterator[Rows]:
        """The layouts of a block."""
        local = np.full(len(self.legal.mesh["tp"]), -1, dtype=np.int64)
        local[meshes] = np.arange(len(meshes))
        of_pair = local[self.legal.pairs.mesh[pairs]]
        pipeline = self.legal.pairs.pipeline[pairs]
        least_s = None if self.bar is None else self.at_least_s(pairs)
        for number, settings in enumerate(self.settings):
            allowed = self.legal.pipelines[settings.schedule]
            each = allowed.sum(axis=0)[pipeline]
            rows = np.stack([np.bincount(of_pair, weights=chunk, minlength=len(meshes)) for chunk in each.T], axis=1)
            states = states_of(self.space, self.legal, meshes, rows > 0, settings) if rows.any() else None
            if states is None:
                continue
            legal, fits = states.number >= 0, states.fullest <= self.space.case.capacity_bytes
            possible = legal & fits[states.number] if self.bound else legal
            uses = rows[states.shape >= 0]
            before = self.counts.evaluated
            self.counts.legal += int(uses @ legal.sum(axis=1))
            self.counts.possible += int(uses @ (legal & fits[states.number]).sum(axis=1))
            leanest = np.where(possible, states.fullest[states.number], np.inf).min(axis=1)
            if possible.any():
                yield from self._of_schedule(
                    number, settings, pairs, of_pair, allowed[:, pipeline], states, possible, leanest, least_s
                )
            self.counts.bounded += int(uses @ legal.sum(axis=1)) - (self.counts.evaluated - before)

    def _of_schedule(
        self, number: int, settings: Settings, pairs: Ints, of_pair: Ints, allowed: Bools, states: States, possible: Bools,
        leanest: Floats, least_s: Floats | None,
    ) -> Iterator[Rows]:
        """The layouts of a block under one schedule; ``allowed``: ``[treatment, pair, chunks]``."""
        shapes = states.shape[of_pair]
        room = np.where(shapes >= 0, leanest[shapes], np.inf)
        wanted = allowed & np.isfinite(room)
        if self.bar is not None and least_s is not None:
            wanted &= ~self.bar.beyond(least_s, np.broadcast_to(room.min(axis=1), least_s.shape))[:, :, None]
        treatment, pair, chunk = np.nonzero(wanted)
        if self.bar is not None and least_s is not None:
            own_s = least_s[treatment, pair]
            soonest = np.argsort(own_s, kind="stable")
            treatment, pair, chunk, own_s = treatment[soonest], pair[soonest], chunk[soonest], own_s[soonest]
        most = max(1, CHUNK_LAYOUTS // len(self.space.shard_options))
        size = most if self.bar is None else max(1, FIRST_CHUNK // len(self.space.shard_options))
        begin = 0
        while begin < len(pair):
            part = slice(begin, begin + size)
            begin, size = begin + size, min(most, 2 * size)
            own, shape = pair[part], shapes[pair[part], chunk[part]]
            piece = _Piece(pair=pairs[own], treatment=self.treatments[treatment[part]], chunk=chunk[part], shape=shape)
            if self.bar is not None:
                piece = piece.where(~self.bar.beyond(own_s[part], room[own, chunk[part]]))
            if len(piece.pair):
                rows = self._of_piece(number, settings, piece, states, possible[piece.shape])
                if rows is not None:
                    yield rows

    def _of_piece(self, number: int, settings: Settings, piece: _Piece, states: States, alive: Bools) -> Rows | None:
        """Some pipelines with all of their shardings, as far as they can still matter."""
        case, pairs = self.space.case, self.legal.pairs
        gathered = self.work.take(piece.pair, piece.treatment)
        own = states.pipelines.take(states.pipeline_of[piece.shape])
        costs = stage_costs(gathered, own)
        at, vp = pairs.mesh[piece.pair], self.chunks[piece.chunk]
        pace = Degrees.of({"pp": self.legal.mesh["pp"][at], "vp": vp, "m": pairs.num_microbatches[piece.pair]})
        pipeline = pipeline_time(case, settings, own, costs, pace, hop_s=gathered.hop_s)
        number_of = states.number[piece.shape]
        least_s: Floats | None = None
        if self.bar is not None:
            least_s = (pipeline.through_s[:, None] + states.apart_s[number_of]) * (self.delay * ROUNDING)
            alive = alive & ~self.bar.beyond(least_s, states.fullest[number_of])
            used = np.flatnonzero(alive.any(axis=1))
            if not len(used):
                return None
            if len(used) < len(alive):
                piece, alive, number_of, least_s = piece.where(used), alive[used], number_of[used], least_s[used]
                at, vp, own, pace = at[used], vp[used], take_columns(own, used), take_record(pace, used)
                costs, pipeline = take_record(costs, used), take_record(pipeline, used)
                if own.uneven is not None:
                    gathered = self.work.take(piece.pair, piece.treatment)
        activation = activation_memory(settings, own, costs, pace, gathered.kinds)
        dynamic = dynamic_bytes(case, activation)
        inner, option = np.nonzero(alive)
        outer = number_of[inner, option]
        moving = np.maximum(dynamic.take(inner, axis=1), states.step.take(outer, axis=1))
        reserved = (states.static.take(outer, axis=1) + moving).max(axis=0)
        if self.bar is not None and least_s is not None:
            left = np.flatnonzero(~self.bar.beyond(least_s[inner, option], reserved, exactly=True))
            inner, option, outer, reserved = inner[left], option[left], outer[left], reserved[left]
        if not len(inner):
            return None
        of_state = states.table.take(outer)
        whole = structs.replace(of_state.degrees, num_microbatches=pace.num_microbatches[inner])
        time = step_time(case, settings, take_record(pipeline, inner), of_state.times, whole, reserved_bytes=reserved)
        self.counts.evaluated += len(inner)
        self.counts.fitting += int(np.count_nonzero(reserved <= case.capacity_bytes))
        return Rows(
            meshes=self.legal.mesh, at=at[inner], mb=self.sizes[pairs.place[piece.pair]][inner], vp=vp[inner],
            zero=states.zero[outer], shards=states.shards[outer], treatment=piece.treatment[inner], schedule=settings.schedule,
            order=self._order(number, at, piece)[inner] + option, step_s=time.step_s, mean_s=time.mean_s,
            reserved_bytes=reserved,
        )

    def _order(self, schedule: int, at: Ints, piece: _Piece) -> Ints:
        """Place of the first sharding of pipelines in the enumeration: by block, schedule, treatment, pair, chunks."""
        block, own, of_treatment, of_pair, of_chunk, _ = self.digits
        return np.asarray(
            at // self.per_block * block + schedule * own + piece.treatment * of_treatment + piece.pair * of_pair
            + piece.chunk * of_chunk
        )


class _Piece(Struct, frozen=True, kw_only=True):
    """Pipelines: pair, treatment, chunk count and shape of each."""

    pair: Ints
    treatment: Ints
    chunk: Ints
    shape: Ints

    def where(self, index: Ints | Bools) -> _Piece:
        """Chosen ones."""
        return _Piece(pair=self.pair[index], treatment=self.treatment[index], chunk=self.chunk[index], shape=self.shape[index])


def _worth(*sizes: int) -> tuple[int, ...]:
    """What a step of each digit is worth, of one digit above them all, and 1 for the last."""
    return tuple(math.prod(sizes[place:]) for place in range(len(sizes) + 1))
