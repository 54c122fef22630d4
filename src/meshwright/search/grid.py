"""The grid, evaluated: layouts as columns gathered from tables of distinct keys, in bounded memory.

A mesh (tp, cp, pp, dp, ep, etp) has micro-batches (``work``: what a layer costs), chunk counts (``split``: what stands on a
stage), and sharding options (``state``: what is kept and synchronised). A layout is one of each, so tables are computed
once per distinct key and gathered. What provably cannot matter any more is left out, level by level.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from meshwright.estimate.combine import pipeline_time, step_time
from meshwright.estimate.degrees import Degrees
from meshwright.estimate.memory import activation_memory, dynamic_bytes
from meshwright.estimate.split import take_columns
from meshwright.estimate.stages import stage_costs
from meshwright.perf.arrays import array
from meshwright.perf.arrays import take as take_record
from meshwright.search.grid_bounds import Bounds
from meshwright.search.grid_rows import Bar, Knobs, Level, Piece, Rows, Turn
from meshwright.search.grid_tables import settings_for, states_of
from meshwright.search.legal_grid import Counts, legal_layouts, sequence_parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.layout import Overlap
    from meshwright.search.grid_tables import Work
    from meshwright.search.legal_grid import Legal
    from meshwright.search.space import Space

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

__all__ = ["Bar", "Counts", "Rows", "evaluate_grid", "sequence_parallel"]

WHOLE = 100_000
"""A grid of so few legal layouts is evaluated whole: bounds would take longer than what they leave out."""
BLOCK_PAIRS, FIRST_PAIRS = 16384, 4096
"""Pairs of mesh and micro-batch that are looked at side by side; under a bar few at first, so that there soon is a bar,
unless one is known before."""
BLOCK_MESHES = 4096
"""Meshes whose states are made side by side under a bar: bounds their memory."""
CHUNK_LAYOUTS, FIRST_CHUNK = 32768, 4096
"""Layouts of a chunk: their temporaries stay in cache. Under a bar the first chunk is short, so that there soon is a bar."""


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


def open_grid(
    space: Space, counts: Counts, *, overlap: Overlap, bound: bool = True, bar: Bar | None = None, led: bool = False
) -> Grid | None:
    """A grid before it is evaluated; None where nothing of it is legal. ``led``: as ``Grid`` has it.

    Source:  ``evaluate_grid``.
    """
    legal = legal_layouts(space, counts)
    if legal is None or not len(legal.pairs.mesh):
        return None
    return Grid(space, counts, legal, overlap, bar if legal.number > WHOLE else None, bound=bound, led=led)


class Grid:
    """The tables of a grid under evaluation, and what they leave for another pass over some of it."""

    def __init__(
        self, space: Space, counts: Counts, legal: Legal, overlap: Overlap, bar: Bar | None, *, bound: bool, led: bool = False
    ) -> None:
        """``led``: the bar knows a latest time before any layout is looked at, or falls so fast that small pieces cost more calls
        than they leave out.
        """
        self.space, self.counts, self.legal, self.bar, self.bound = space, counts, legal, bar, bound
        self.least_pairs, self.least_layouts = (BLOCK_PAIRS, CHUNK_LAYOUTS) if led else (FIRST_PAIRS, FIRST_CHUNK)
        """What is looked at side by side under a bar at first."""
        self.settings = [settings_for(space, schedule, overlap) for schedule in space.schedules]
        self.chunks, self.sizes = np.array(space.chunks, dtype=np.int64), np.array(space.microbatches, dtype=np.int64)
        self.treatments = np.array(space.codes, dtype=np.int64)
        self.stages = np.array([each.stage for each in space.shard_options], dtype=np.int64)
        self.bounds = Bounds(space, legal, self.settings[0])
        self.digits = _worth(
            len(space.schedules), len(space.recomputes), len(legal.pairs.mesh), len(space.chunks), len(space.shard_options)
        )
        """What a step of schedule, treatment, pair, chunks and sharding is worth in the order of the enumeration."""
        self.per_block = max(1, BLOCK_PAIRS // max(1, len(space.microbatches)))
        self.first = np.searchsorted(legal.pairs.mesh, np.arange(len(legal.mesh["tp"]) + 1))
        """Of every mesh the first of its pairs, and their number."""

    def rows(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Rows]:
        """Its layouts, chunk by chunk, as far as they matter."""
        done, total = 0, len(self.legal.mesh["tp"])
        for meshes in self.blocks():
            yield from self.evaluated(meshes)
            done += len(meshes)
            if progress is not None:
                progress(done, total)

    def early(self) -> Floats:
        """Lower bound of the step of every pair of mesh and micro-batch that recomputes nothing.

        Units:   s.
        Holds:   recomputation adds to the step, but for what goes to the host meanwhile: there nothing is bounded.
        """
        pairs = self.legal.pairs
        if self.space.case.launch.offloads:
            return np.zeros(len(pairs.mesh))
        if "work" in self.__dict__:
            return np.asarray(self.bounds.of_pairs_s(self.work, pairs, np.zeros(1, dtype=np.int64))[0])
        return np.asarray(self.bounds.of_meshes_s[0, pairs.mesh])

    def until(self, latest_s: float) -> Legal | None:
        """The layouts of the pairs that take no longer if they recompute nothing; None where none do."""
        pairs = self.legal.pairs.where(self.early() <= latest_s)
        return self.legal.where(pairs) if len(pairs.mesh) else None

    def within(self, space: Space, latest_s: float) -> Legal | None:
        """Those pairs under each treatment of a space; None where there are none.

        Holds:   every treatment of the space is as legal as plain selective recomputation is.
        """
        legal = self.until(latest_s)
        return None if legal is None else legal.only(legal.pairs, treatments=len(space.codes))

    @cached_property
    def work(self) -> Work:
        """What micro-batches cost where all are asked about; made when the first is: where no states fit none is."""
        return self.bounds.work(self.legal.pairs)

    def blocks(self) -> Iterator[Ints]:
        """Meshes block by block; under a bar those that promise most come first."""
        order, size = np.flatnonzero(self.first[1:] > self.first[:-1]), self.per_block
        if self.bar is not None:
            size = max(size, BLOCK_MESHES)
            order = order[np.argsort(self.bounds.of_meshes_s[self.treatments][:, order].min(axis=0), kind="stable")]
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    def evaluated(self, meshes: Ints) -> Iterator[Rows]:
        """The layouts of a block."""
        levels = [each for each in (self._level(number, meshes) for number in range(len(self.settings))) if each is not None]
        able = [each for each in levels if each.possible.any()]
        before = self.counts.evaluated
        for turn in self._turns(meshes, able) if able else ():
            for level in able:
                yield from self._of_level(level, turn)
        self.counts.bounded += sum(each.legal for each in levels) - (self.counts.evaluated - before)

    def _turns(self, meshes: Ints, levels: Sequence[Level]) -> Iterator[Turn]:
        """What of a block is looked at side by side: all of it, or under a bar what still matters, more and more."""
        if self.bar is None:
            number = self._pairs_of(meshes)
            yield Turn(
                number=number, pairs=self.legal.pairs.where(number), place=np.repeat(np.arange(len(meshes)), self._sizes(meshes)),
                knobs=None, work=structs.replace(self.work, key=self.work.key[number]), least_s=None,
            )
            return
        room = np.min([each.room.min(axis=1) for each in levels], axis=0)
        least_s, treatments = self.bounds.of_meshes_s[self.treatments][:, meshes], len(self.treatments)
        left, size = np.arange(len(meshes)), max(1, self.least_pairs // max(1, len(self.space.microbatches)))
        while len(left):
            needed = np.broadcast_to(room[left], (treatments, len(left)))
            late = self.bar.beyond(least_s[:, left], needed, self._knobs(meshes[left], self.treatments[:, None]))
            left = left[~late.all(axis=0)]
            own, left, size = left[:size], left[size:], min(self.per_block, 2 * size)
            if len(own):
                yield self._turn(meshes, own, room)

    def _turn(self, meshes: Ints, own: Ints, room: Floats) -> Turn:
        """Some meshes of a block, with what their micro-batches cost, as far as these still matter."""
        number, place = self._pairs_of(meshes[own]), np.repeat(own, self._sizes(meshes[own]))
        pairs = self.legal.pairs.where(number)
        work = self.bounds.work(pairs)
        least_s = self.bounds.of_pairs_s(work, pairs, self.treatments)
        assert self.bar is not None
        knobs = self._knobs(pairs.mesh, self.treatments[:, None], mb=self.sizes[pairs.place])
        left = np.asarray(~self.bar.beyond(least_s, np.broadcast_to(room[place], least_s.shape), knobs).all(axis=0))
        pairs = pairs.where(left)
        return Turn(
            number=number[left], pairs=pairs, place=place[left], work=structs.replace(work, key=work.key[left]),
            least_s=least_s[:, left], knobs=self._knobs(pairs.mesh, self.treatments[:, None], mb=self.sizes[pairs.place]),
        )

    def _knobs(self, at: Ints, treatment: Ints, mb: Ints | None = None, vp: Ints | None = None) -> Knobs:
        """Knobs of layouts on some meshes whose sharding is open, and so may be their chunks and micro-batch."""
        ahead = (1,) * np.broadcast(at, treatment).ndim
        return Knobs(
            meshes=self.legal.mesh, at=at, treatment=treatment, zero=self.stages.reshape(-1, *ahead),
            able=self.legal.shardings[at].T.reshape(len(self.stages), *ahead[1:], len(at)),
            vp=self.chunks.reshape(-1, 1, *ahead) if vp is None else vp,
            mb=self.sizes.reshape(-1, 1, 1, *ahead) if mb is None else mb,
        )

    def _level(self, number: int, meshes: Ints) -> Level | None:
        """The states of a block under a schedule, counted; None where nothing is legal."""
        settings, pairs = self.settings[number], self._pairs_of(meshes)
        allowed = self.legal.pipelines[settings.schedule]
        each = allowed.sum(axis=0)[self.legal.pairs.pipeline[pairs]]
        of_pair = np.repeat(np.arange(len(meshes)), self._sizes(meshes))
        rows = np.stack([np.bincount(of_pair, weights=chunk, minlength=len(meshes)) for chunk in each.T], axis=1)
        states = states_of(self.space, self.legal, meshes, rows > 0, settings) if rows.any() else None
        if states is None:
            return None
        legal, fits = states.number >= 0, states.fullest <= self.space.case.capacity_bytes
        possible = legal & fits[states.number]
        uses, numbers = rows[states.shape >= 0], legal.sum(axis=1)
        self.counts.legal += int(uses @ numbers)
        self.counts.possible += int(uses @ possible.sum(axis=1))
        possible = possible if self.bound else legal
        leanest = np.where(possible, states.fullest[states.number], np.inf).min(axis=1)
        return Level(
            number=number, states=states, possible=possible, legal=int(uses @ numbers),
            room=np.where(states.shape >= 0, leanest[states.shape], np.inf),
        )

    def _sizes(self, meshes: Ints) -> Ints:
        """Of each mesh the number of its pairs."""
        return np.asarray(self.first[meshes + 1] - self.first[meshes])

    def _pairs_of(self, meshes: Ints) -> Ints:
        """The pairs of meshes, mesh by mesh."""
        sizes = self._sizes(meshes)
        ends = np.cumsum(sizes)
        return np.asarray(np.arange(ends[-1]) + np.repeat(self.first[meshes] - (ends - sizes), sizes))

    def _of_level(self, level: Level, turn: Turn) -> Iterator[Rows]:
        """The layouts of a turn under one schedule."""
        states, settings, least_s = level.states, self.settings[level.number], turn.least_s
        allowed = self.legal.pipelines[settings.schedule][:, turn.pairs.pipeline]
        shapes, room = states.shape[turn.place], level.room[turn.place]
        wanted = allowed & np.isfinite(room)
        if self.bar is not None and least_s is not None:
            wanted &= ~self.bar.beyond(least_s, np.broadcast_to(room.min(axis=1), least_s.shape), turn.knobs)[:, :, None]
        treatment, pair, chunk = np.nonzero(wanted)
        if self.bar is not None and least_s is not None:
            own_s = least_s[treatment, pair]
            soonest = np.argsort(own_s, kind="stable")
            treatment, pair, chunk, own_s = treatment[soonest], pair[soonest], chunk[soonest], own_s[soonest]
        most = max(1, CHUNK_LAYOUTS // len(self.space.shard_options))
        size = most if self.bar is None else max(1, self.least_layouts // len(self.space.shard_options))
        begin = 0
        while begin < len(pair):
            part = slice(begin, begin + size)
            begin, size = begin + size, min(most, 2 * size)
            own, shape = pair[part], shapes[pair[part], chunk[part]]
            piece = Piece(pair=own, treatment=self.treatments[treatment[part]], chunk=chunk[part], shape=shape)
            if self.bar is not None:
                at, mb = turn.pairs.mesh[own], self.sizes[turn.pairs.place[own]]
                knobs = self._knobs(at, piece.treatment, mb, self.chunks[piece.chunk])
                piece = piece.where(~self.bar.beyond(own_s[part], room[own, chunk[part]], knobs))
            if len(piece.pair):
                rows = self._of_piece(level, turn, piece)
                if rows is not None:
                    yield rows

    def _of_piece(self, level: Level, turn: Turn, piece: Piece) -> Rows | None:
        """Some pipelines with all of their shardings, as far as they can still matter."""
        case, pairs, states, settings = self.space.case, turn.pairs, level.states, self.settings[level.number]
        alive, gathered = level.possible[piece.shape], turn.work.take(piece.pair, piece.treatment)
        own = states.pipelines.take(states.pipeline_of[piece.shape])
        costs = stage_costs(gathered, own)
        at, vp = pairs.mesh[piece.pair], self.chunks[piece.chunk]
        pace = Degrees.of({"pp": self.legal.mesh["pp"][at], "vp": vp, "m": pairs.num_microbatches[piece.pair]})
        pipeline = pipeline_time(case, settings, own, costs, pace, hop_s=gathered.hop_s)
        number_of = states.number[piece.shape]
        least_s: Floats | None = None
        if self.bar is not None:
            least_s = (pipeline.through_s[:, None] + states.apart_s[number_of]) * self.bounds.delay
            mb = self.sizes[pairs.place[piece.pair]]
            knobs = Knobs(
                meshes=self.legal.mesh, at=at[:, None], mb=mb[:, None], vp=vp[:, None], zero=self.stages,
                treatment=piece.treatment[:, None],
            )
            alive = alive & ~self.bar.beyond(least_s, states.fullest[number_of], knobs)
            used = np.flatnonzero(alive.any(axis=1))
            if not len(used):
                return None
            if len(used) < len(alive):
                piece, alive, number_of, least_s = piece.where(used), alive[used], number_of[used], least_s[used]
                at, vp, own, pace = at[used], vp[used], take_columns(own, used), take_record(pace, used)
                costs, pipeline = take_record(costs, used), take_record(pipeline, used)
                if own.uneven is not None:
                    gathered = turn.work.take(piece.pair, piece.treatment)
        activation = activation_memory(settings, own, costs, pace, gathered.kinds)
        dynamic = dynamic_bytes(case, activation)
        inner, option = np.nonzero(alive)
        outer = number_of[inner, option]
        moving = np.maximum(dynamic.take(inner, axis=1), states.step.take(outer, axis=1))
        reserved = (states.static.take(outer, axis=1) + moving).max(axis=0)
        if self.bar is not None and least_s is not None:
            knobs = Knobs(
                meshes=self.legal.mesh, at=at[inner], mb=self.sizes[pairs.place[piece.pair]][inner], vp=vp[inner],
                zero=self.stages[option], treatment=piece.treatment[inner],
            )
            left = np.flatnonzero(~self.bar.beyond(least_s[inner, option], reserved, knobs, exactly=True))
            inner, option, outer, reserved = inner[left], option[left], outer[left], reserved[left]
        if not len(inner):
            return None
        of_state = states.table.take(outer)
        cp, dp = (array(self.legal.mesh[name][at[inner]]) for name in ("cp", "dp"))
        whole = structs.replace(
            of_state.degrees, num_microbatches=pace.num_microbatches[inner], context_parallel=cp, data_parallel=dp
        )
        time = step_time(case, settings, take_record(pipeline, inner), of_state.times, whole, reserved_bytes=reserved)
        self.counts.evaluated += len(inner)
        self.counts.fitting += int(np.count_nonzero(reserved <= case.capacity_bytes))
        return Rows(
            meshes=self.legal.mesh, at=at[inner], mb=self.sizes[pairs.place[piece.pair]][inner], vp=vp[inner],
            zero=states.zero[outer], shards=states.shards[outer], treatment=piece.treatment[inner], schedule=settings.schedule,
            order=self._order(level.number, at, turn, piece)[inner] + option, step_s=time.step_s, mean_s=time.mean_s,
            reserved_bytes=reserved,
        )

    def _order(self, schedule: int, at: Ints, turn: Turn, piece: Piece) -> Ints:
        """Place of the first sharding of pipelines in the enumeration: by block, schedule, treatment, pair, chunks."""
        block, own, of_treatment, of_pair, of_chunk, _ = self.digits
        return np.asarray(
            at // self.per_block * block + schedule * own + piece.treatment * of_treatment + turn.number[piece.pair] * of_pair
            + piece.chunk * of_chunk
        )


def _worth(*sizes: int) -> tuple[int, ...]:
    """What a step of each digit is worth, of one digit above them all, and 1 for the last."""
    return tuple(math.prod(sizes[place:]) for place in range(len(sizes) + 1))
