"""The grid, evaluated: blocks of meshes, their micro-batches, pipelines and shardings as columns, in bounded memory.

A mesh (tp, cp, pp, dp, ep, etp) has micro-batches (``work``: what a layer costs), chunk counts (``split``: what stands on a
stage), and sharding options (``state``: what is kept and synchronised). A layout is one of each, so tables are computed
once per distinct key and gathered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.layout import Full, NoRecompute, Overlap, Selective
from meshwright.estimate.combine import pipeline_time, state_costs, step_time
from meshwright.estimate.costs import Settings, work_costs
from meshwright.estimate.degrees import Degrees, sharded
from meshwright.estimate.memory import activation_memory, dynamic_bytes, static_bytes
from meshwright.estimate.split import Composition, compose, default_split, stack, take_columns, treated
from meshwright.estimate.stages import stage_costs, stage_inputs, stage_parameters
from meshwright.perf.arrays import take
from meshwright.search.rules import knobs_of, rules_of
from meshwright.search.space import TREATMENTS, mesh_grid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from meshwright.estimate.stages import StageInputs
    from meshwright.search.space import Space

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

WORK_ROWS = 16384
"""Micro-batch rows of a block: bounds the memory of the layer tables."""
CHUNK_ROWS = 16384
"""Layouts of a chunk: their temporaries stay in cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Evaluated layouts: their knobs as columns, step time and reserved bytes."""

    mesh: dict[str, Ints]
    mb: Ints
    vp: Ints
    zero: Ints
    shards: Ints
    treatment: str
    schedule: str
    step_s: Floats
    reserved_bytes: Floats

    def __len__(self) -> int:
        return len(self.step_s)

    def take(self, index: Ints | Bools) -> Rows:
        """Chosen rows."""
        return Rows(
            mesh={name: column[index] for name, column in self.mesh.items()}, mb=self.mb[index], vp=self.vp[index],
            zero=self.zero[index], shards=self.shards[index], treatment=self.treatment, schedule=self.schedule,
            step_s=self.step_s[index], reserved_bytes=self.reserved_bytes[index],
        )


@dataclass(slots=True)
class Counts:
    """How many layouts were legal, evaluated, skipped by a bound, and refused by which rule."""

    legal: int = 0
    evaluated: int = 0
    bounded: int = 0
    fitting: int = 0
    rejected: Counter[str] | None = None

    def refuse(self, reason: str, number: int) -> None:
        """Count layouts that a rule refused."""
        if self.rejected is None:
            self.rejected = Counter()
        if number:
            self.rejected[reason] += number


def shard_ranks(space: Space, mesh: dict[str, Ints]) -> Ints:
    """Ranks of every sharding option per mesh, ``[option, mesh]``; 1 where it shards nothing."""
    ranks = mesh["dp"] * (mesh["cp"] if space.features.shards_over_context else 1)
    per_node = np.maximum(1, space.case.cluster.devices_per_node // mesh["tp"])
    rows = []
    for option in space.shard_options:
        if option.group == "none":
            rows.append(np.ones_like(ranks))
        elif option.group == "all":
            rows.append(ranks)
        elif option.group == "node":
            rows.append(np.where(per_node < ranks, per_node, 1))
        else:
            rows.append(np.full_like(ranks, int(option.group)))
    return np.stack(rows)


def sequence_parallel(space: Space, tp: Ints) -> Ints:
    """1 where sequence parallelism is on: with every TP that can have it, unless pinned."""
    return np.where((tp > 1) & space.sequence_parallel, 1, 0)


def settings_for(space: Space, schedule: str, overlap: Overlap) -> Settings:
    """Settings of one block of the grid: every treatment of ``TREATMENTS``, of which a layout has one."""
    return Settings(
        schedule=schedule, treatments=(NoRecompute(), Selective(modules=space.selective_modules), Full()), overlap=overlap,
        context_kind=space.context_kind, offload=bool(space.offload),
    )


class Compositions:
    """Compositions of all (pp, vp) of the grid as padded columns, so that a stage row gathers its own."""

    def __init__(self, space: Space, *, folded: bool) -> None:
        """An empty table; rows are made when they are first asked for."""
        self._space, self._folded = space, folded
        self._index: dict[tuple[int, int], int] = {}
        self._items: list[Composition] = []

    def number(self, pp: int, vp: int) -> int:
        """The row of a pipeline shape."""
        key = (pp, vp)
        if key not in self._index:
            case = self._space.case
            self._index[key] = len(self._items)
            self._items.append(compose(case.model, default_split(case, pp, vp), folded=self._folded))
        return self._index[key]

    def columns(self, numbers: Ints) -> Composition:
        """Compositions of a column of rows; the treatment is put in by ``treated``."""
        used, inverse = np.unique(numbers, return_inverse=True)
        return take_columns(stack([self._items[number] for number in used], len(self._space.case.model.kinds)), inverse)


def legal_meshes(space: Space, counts: Counts) -> dict[str, Ints]:
    """Meshes that no mesh rule refuses; the layouts below refused ones are counted by reason."""
    mesh = mesh_grid(space)
    for rule in rules_of("mesh"):
        knobs = knobs_of(mesh, sp=sequence_parallel(space, mesh["tp"]), context=space.context_kind)
        keep = np.broadcast_to(np.asarray(rule.holds(space.case, space.features, knobs)), mesh["tp"].shape)
        counts.refuse(rule.reason, int((~keep).sum()) * space.children)
        mesh = {name: column[keep] for name, column in mesh.items()}
    return mesh


def evaluate_grid(
    space: Space, counts: Counts, *, overlap: Overlap, bound: bool = True, progress: Callable[[int, int], None] | None = None
) -> Iterator[Rows]:
    """Every legal layout of the grid, evaluated chunk by chunk, or left out because its states alone exceed the memory.

    Holds:   legal = evaluated + bounded when exhausted.
    """
    mesh = legal_meshes(space, counts)
    total = len(mesh["tp"])
    size = max(1, WORK_ROWS // max(1, len(space.microbatches)))
    tables = {folded: Compositions(space, folded=folded) for folded in (False, True)}
    for begin in range(0, total, size):
        block = {name: column[begin : begin + size] for name, column in mesh.items()}
        yield from _evaluate_block(space, counts, block, tables, overlap, bound=bound)
        if progress is not None:
            progress(min(total, begin + size), total)


def _evaluate_block(
    space: Space, counts: Counts, mesh: dict[str, Ints], tables: dict[bool, Compositions], overlap: Overlap, *, bound: bool
) -> Iterator[Rows]:
    case, features = space.case, space.features
    batch = case.batch.global_batch_sequences
    meshes = len(mesh["tp"])
    # micro-batches of every mesh
    at, mb = _pairs(meshes, np.array(space.microbatches, dtype=np.int64))
    per_mesh = space.children // max(1, len(space.microbatches))
    for rule in rules_of("microbatch"):
        keep = np.asarray(rule.holds(case, features, knobs_of(_take(mesh, at), mb=mb)))
        counts.refuse(rule.reason, int((~keep).sum()) * per_mesh)
        at, mb = at[keep], mb[keep]
    if not len(at):
        return
    num_microbatches = batch // (mesh["dp"][at] * mb)
    sp = sequence_parallel(space, mesh["tp"])
    work = _take(mesh, at)
    shards = shard_ranks(space, mesh)
    inputs: dict[tuple[str, ...], StageInputs] = {}
    for schedule in space.schedules:
        folded = schedule == "dualpipev"
        below = len(space.shard_options)
        pair, vp = _pairs(len(at), np.array(space.chunks, dtype=np.int64))
        for treatment in space.treatments:
            rows, chunks = pair, vp
            for rule in rules_of("pipeline"):
                knobs = knobs_of(
                    _take(work, rows), mb=mb[rows], m=num_microbatches[rows], vp=chunks, schedule=schedule, treatment=treatment
                )
                keep = np.broadcast_to(np.asarray(rule.holds(case, features, knobs)), rows.shape)
                counts.refuse(rule.reason, int((~keep).sum()) * below)
                rows, chunks = rows[keep], chunks[keep]
            if not len(rows):
                continue
            settings = settings_for(space, schedule, overlap)
            if not inputs:
                # Layer tables do not depend on the schedule, so all treatments are computed once for the block.
                costs = work_costs(case, settings, Degrees.of({**work, "mb": mb, "sp": sp[at]}))
                inputs[()] = stage_inputs(costs)
            yield from _evaluate_rows(
                space,
                counts,
                mesh,
                at,
                mb,
                num_microbatches,
                rows,
                chunks,
                shards,
                inputs[()],
                tables[folded],
                settings,
                treatment,
                bound=bound,
            )


def _evaluate_rows(
    space: Space, counts: Counts, mesh: dict[str, Ints], at: Ints, mb: Ints, num_microbatches: Ints, rows: Ints, chunks: Ints,
    shards: Ints, inputs: StageInputs, table: Compositions, settings: Settings, treatment: str, *, bound: bool,
) -> Iterator[Rows]:
    """The layouts of a block under one schedule and treatment."""
    case, features = space.case, space.features
    which = at[rows]
    # pipeline shapes (mesh, chunks) and their shardings: what does not depend on the micro-batch
    (shape_mesh, shape_chunks), shape_of = _distinct_pairs(which, chunks)
    pipelines, pipeline_of = _distinct_pairs(mesh["pp"][shape_mesh], shape_chunks)
    known = [table.number(int(pp), int(vp)) for pp, vp in zip(*pipelines, strict=True)]
    numbers = np.array(known, dtype=np.int64)[pipeline_of]
    composition = table.columns(numbers)
    shape = _take(mesh, shape_mesh)
    parameters = stage_parameters(case, composition, Degrees.of(shape))
    state_at, option = _pairs(len(shape_mesh), np.arange(len(space.shard_options), dtype=np.int64))
    stage = np.array([o.stage for o in space.shard_options], dtype=np.int64)[option]
    group_ranks = shards[option, shape_mesh[state_at]]
    legal = np.ones(len(state_at), dtype=np.bool_)
    uses = np.bincount(shape_of, minlength=len(shape_mesh))
    for rule in rules_of("sharding"):
        knobs = knobs_of(_take(shape, state_at), vp=shape_chunks[state_at], zero=stage, shards=group_ranks,
                         offload=int(bool(space.offload)))
        holds = np.broadcast_to(np.asarray(rule.holds(case, features, knobs)), legal.shape)
        counts.refuse(rule.reason, int(uses[state_at[legal & ~holds]].sum()))
        legal = legal & holds
    flat = np.full(len(state_at), -1, dtype=np.int64)
    state_at, option, stage, group_ranks = state_at[legal], option[legal], stage[legal], group_ranks[legal]
    flat[legal] = np.arange(len(state_at))
    number = flat.reshape(len(shape_mesh), len(space.shard_options))
    if not len(state_at):
        return
    degrees = Degrees.of({**_take(shape, state_at), "vp": shape_chunks[state_at], **sharded(stage, np.maximum(1, group_ranks))})
    state_composition = take_columns(composition, state_at)
    state_parameters = take(parameters, state_at)
    state = state_costs(case, degrees, state_parameters, state_composition, offload=settings.offload)
    static = static_bytes(case, state)
    possible = static.max(axis=0) <= case.capacity_bytes
    options = len(space.shard_options)
    per = max(1, CHUNK_ROWS // options)
    for begin in range(0, len(rows), per):
        part = slice(begin, begin + per)
        piece = np.arange(len(rows))[part]
        states = number[shape_of[piece]]
        counts.legal += int((states >= 0).sum())
        alive = (states >= 0) & (possible[states] if bound else True)
        counts.bounded += int((states >= 0).sum() - alive.sum())
        used = alive.any(axis=1)
        piece, states, alive = piece[used], states[used], alive[used]
        if not len(piece):
            continue
        own = treated(take_columns(composition, shape_of[piece]), TREATMENTS.index(treatment), len(TREATMENTS))
        gathered = inputs.take(rows[piece])
        costs = stage_costs(gathered, own)
        pace = Degrees.of({"pp": mesh["pp"][which[piece]], "vp": chunks[piece], "m": num_microbatches[rows[piece]]})
        pipeline = pipeline_time(case, settings, own, costs, pace, hop_s=gathered.hop_s)
        activation = activation_memory(settings, own, costs, pace, gathered.kinds)
        dynamic = dynamic_bytes(case, activation)
        inner, column = np.nonzero(alive)
        outer = states[inner, column]
        reserved = (static[:, outer] + dynamic[:, inner]).max(axis=0)
        whole = replace(take(degrees, outer), num_microbatches=pace.num_microbatches[inner])
        time = step_time(case, settings, take(pipeline, inner), state.timed(outer), whole, reserved_bytes=reserved)
        counts.evaluated += len(inner)
        counts.fitting += int((reserved <= case.capacity_bytes).sum())
        yield Rows(
            mesh=_take(mesh, which[piece][inner]), mb=mb[rows[piece]][inner], vp=chunks[piece][inner], zero=stage[outer],
            shards=group_ranks[outer], treatment=treatment, schedule=settings.schedule,
            step_s=time.step_s, reserved_bytes=reserved,
        )


def _take(columns: dict[str, Ints], index: Ints) -> dict[str, Ints]:
    return {name: column[index] for name, column in columns.items()}


def _distinct_pairs(left: Ints, right: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """The distinct pairs of two columns, sorted, and which of them each row is; however large, no number runs into the other."""
    base = int(right.max(initial=0)) + 1
    key, inverse = np.unique(left * base + right, return_inverse=True)
    return (key // base, key % base), inverse


def _pairs(rows: int, values: Ints) -> tuple[Ints, Ints]:
    """Every row with every value, row by row."""
    return np.repeat(np.arange(rows, dtype=np.int64), len(values)), np.tile(values, rows)
