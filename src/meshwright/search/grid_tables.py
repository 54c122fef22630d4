"""What the layouts of a grid are gathered from: work by degrees and micro-batch, pipelines, states by mesh and sharding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.estimate.combine import StateTimes, state_costs
from meshwright.estimate.costs import Alike, Settings, work_costs
from meshwright.estimate.degrees import Degrees, sharded
from meshwright.estimate.memory import static_bytes, step_bytes
from meshwright.estimate.split import Composition, Uneven, compose, default_split, stack
from meshwright.estimate.stages import stage_costs, stage_inputs, stage_parameters, treated, treated_as, under, untreated
from meshwright.estimate.tables import Table
from meshwright.perf.arrays import array
from meshwright.perf.arrays import take as take_columns
from meshwright.perf.placement import crossing
from meshwright.search.legal_grid import distinct_pairs, sequence_parallel, take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Overlap
    from meshwright.estimate.stages import StageInputs, Treated
    from meshwright.search.legal_grid import Legal, Pairs
    from meshwright.search.space import Space

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

WORK_ROWS = 16384
"""Distinct degrees and micro-batches whose layers are computed at a time: bounds the memory of what they are made from."""


def settings_for(space: Space, schedule: str, overlap: Overlap) -> Settings:
    """Settings of the grid under a schedule: every treatment of the space's codes, of which a layout has one."""
    return Settings(
        schedule=schedule, treatments=space.recomputes, overlap=overlap,
        context_kind=space.context_kind, offload=bool(space.offload),
        compiled=space.compiled, attention=space.attention,
    )


class Work(Struct, frozen=True, kw_only=True):
    """What one micro-batch costs, for each distinct key."""

    shared: Table[StageInputs]
    """Inputs that are the same under every treatment."""
    treated: Table[Treated]
    """The others, for each treatment and key: columns treatment by treatment."""
    keys: int
    key: Ints
    """Of every pair that was asked about."""
    whole_s: Floats
    """All layers and both ends, forward and backward, ``[treatment, key]``."""

    def take(self, pair: Ints, treatment: Ints) -> StageInputs:
        """The inputs of pairs, by their places among those asked about, under treatments by their codes: each has one alone."""
        key = self.key[pair]
        return treated_as(self.shared.take(key), self.treated.take(treatment * self.keys + key))


class Keyed(Struct, frozen=True, kw_only=True):
    """Meshes by what layers know of them: neither schedule nor stages nor replicas, but for how a hop crosses domains."""

    key: Ints
    """Of every mesh."""
    mesh: dict[str, Ints]
    """Of every key a mesh that has it."""
    plain: Ints
    """Of every key what layers without experts know of it."""


def keyed(space: Space, legal: Legal) -> Keyed:
    """The meshes of a grid by their keys."""
    mesh = legal.mesh
    crossed = crossing(array(mesh["tp"] * mesh["cp"] * mesh["dp"]), array(mesh["pp"]), space.case.cluster)
    _, crosses = np.unique(crossed, return_inverse=True)
    _, plain = distinct_pairs(distinct_pairs(mesh["tp"], mesh["cp"])[1], crosses)
    _, experts = distinct_pairs(mesh["ep"], mesh["etp"])
    (own, _), key = distinct_pairs(plain, experts)
    first = np.zeros(len(own), dtype=np.int64)
    first[key[::-1]] = np.arange(len(key))[::-1]
    return Keyed(key=key, mesh=take(mesh, first), plain=own)


def work_of(space: Space, known: Keyed, settings: Settings, pairs: Pairs) -> Work:
    """The table of some pairs of the meshes that are ``known``."""
    (own, place), key = distinct_pairs(known.key[pairs.mesh], pairs.place)
    columns = {**take(known.mesh, own), "mb": np.array(space.microbatches, dtype=np.int64)[place]}
    columns["sp"] = sequence_parallel(space, columns["tp"])
    plain = known.plain[own] * len(space.microbatches) + place
    whole = stack([compose(space.case.model, default_split(space.case, 1, 1))], len(space.case.model.kinds))
    whole_s = np.empty((len(settings.treatments), len(own)))
    shared_rows = treated_rows = np.empty((0, 0))
    for begin in range(0, len(own), WORK_ROWS):
        columns_of_part = slice(begin, begin + WORK_ROWS)
        part = {name: column[columns_of_part] for name, column in columns.items()}
        inputs = stage_inputs(work_costs(space.case, settings, Degrees.of(part), _alike(space.case, plain[columns_of_part])))
        shared = Table(untreated(inputs), len(part["tp"]))
        for treatment in range(len(settings.treatments)):
            others = Table(treated(inputs, treatment), len(part["tp"]))
            if not begin + treatment:
                shared_rows = np.empty((len(shared.rows), len(own)))
                treated_rows = np.empty((len(others.rows), *whole_s.shape))
            treated_rows[:, treatment, columns_of_part] = others.rows
            every = stage_costs(under(inputs, treatment), whole)
            whole_s[treatment, columns_of_part] = every.forward_s[0] + every.backward_s[0]
        shared_rows[:, columns_of_part] = shared.rows
    return Work(
        shared=shared.of(shared_rows), treated=others.of(treated_rows.reshape(len(treated_rows), -1)), keys=len(own), key=key,
        whole_s=whole_s,
    )


def _alike(case: Case, keys: Ints) -> Alike | None:
    """Which columns have one key of what is no matter of experts; None where no layer is without them."""
    if all(kind.experts for kind in case.model.kinds):
        return None
    _, one, like = np.unique(keys, return_index=True, return_inverse=True)
    return Alike(one=one, like=like)


class Compositions:
    """Compositions of pipeline shapes (pp, chunks) as a table; which layers are treated how is the column's own business."""

    def __init__(self, case: Case, pp: Ints, chunks: Ints, *, folded: bool) -> None:
        """The table of so many shapes."""
        shapes = zip(pp.tolist(), chunks.tolist(), strict=True)
        items = [compose(case.model, default_split(case, *shape), folded=folded) for shape in shapes]
        stacked = stack(items, len(case.model.kinds))
        self._uneven = stacked.uneven
        self._table = Table(structs.replace(stacked, uneven=None), len(items))

    def take(self, index: Ints) -> Composition:
        """The compositions of chosen shapes."""
        taken, uneven = self._table.take(index), self._uneven
        return taken if uneven is None else structs.replace(taken, uneven=Uneven(layers=uneven.layers, split=uneven.split[index]))


class Sharded(Struct, frozen=True, kw_only=True):
    """What a layout's step needs of its mesh, chunks and sharding."""

    degrees: Degrees
    times: StateTimes


class States(Struct, frozen=True, kw_only=True):
    """Shapes (mesh, chunks) of a block under one schedule and their legal shardings: what does not depend on the micro-batch."""

    shape: Ints
    """By mesh and place of the chunk count, ``[mesh, chunks]``; -1 where no layout has it."""
    pipelines: Compositions
    pipeline_of: Ints
    """Of every shape."""
    number: Ints
    """Columns of the table by shape and sharding option, ``[shape, option]``; -1 where that is not legal. Meshes that differ in
    how their ranks are split into context and data parallelism share them: of the degrees these two are those of one such mesh."""
    table: Table[Sharded]
    zero: Ints
    shards: Ints
    static: Floats
    """Reserved bytes by row of stages, ``[row, state]``."""
    step: Floats
    """Reserved bytes that the optimizer step needs beside these, when activations are gone, ``[row, state]``."""
    fullest: Floats
    """The most of a row, with no micro-batch in flight."""
    apart_s: Floats
    """Of a step what neither the micro-batch nor overlap changes: optimizer and tied embedding."""


def states_of(space: Space, legal: Legal, meshes: Ints, used: Bools, settings: Settings) -> States | None:
    """The states of some meshes; ``used``: whether a layout has a chunk count, ``[mesh, chunks]``. None where nothing is legal."""
    case = space.case
    at, place = np.nonzero(used)
    shape = np.full(used.shape, -1, dtype=np.int64)
    shape[at, place] = np.arange(len(at))
    mesh, chunks = take(legal.mesh, meshes[at]), np.array(space.chunks, dtype=np.int64)[place]
    (pp, vp), pipeline_of = distinct_pairs(mesh["pp"], chunks)
    legal_here = legal.shardings[meshes[at]]
    state_at, option = np.nonzero(legal_here)
    if not len(state_at):
        return None
    _, alike = distinct_pairs(_as_states_know(space, take(legal.mesh, meshes))[at], pipeline_of)
    shapes, of_shape = _first_of(alike)
    states, of_state = _first_of(alike[state_at] * legal_here.shape[1] + option)
    number = np.full(legal_here.shape, -1, dtype=np.int64)
    number[state_at, option] = of_state
    state_at, option = state_at[states], option[states]
    pipelines = Compositions(case, pp, vp, folded=settings.schedule == "dualpipev")
    parameters = stage_parameters(case, pipelines.take(pipeline_of[shapes]), Degrees.of(take(mesh, shapes)))
    zero = np.array([each.stage for each in space.shard_options], dtype=np.int64)[option]
    shards = legal.shards[option, meshes[at][state_at]]
    degrees = Degrees.of({**take(mesh, state_at), "vp": chunks[state_at], **sharded(zero, np.maximum(1, shards))})
    state = state_costs(
        case, degrees, take_columns(parameters, of_shape[state_at]), pipelines.take(pipeline_of[state_at]),
        offload=settings.offload,
    )
    static = np.ascontiguousarray(static_bytes(case, state))
    step = np.ascontiguousarray(np.broadcast_to(step_bytes(case, state), static.shape))
    return States(
        shape=shape, pipelines=pipelines, pipeline_of=pipeline_of, number=number,
        table=Table(Sharded(degrees=degrees, times=state.times), len(state_at)), zero=zero, shards=shards, static=static, step=step,
        fullest=(static + step).max(axis=0),
        apart_s=np.broadcast_to(state.times.optimizer_s + state.times.tied_s, len(state_at)),
    )


def _as_states_know(space: Space, mesh: dict[str, Ints]) -> Ints:
    """Numbers that meshes share whose states are the same: of context and data parallelism these know the product, which the others
    leave of the devices, and whether there are groups of context ranks; all, where states are not sharded over these."""
    context = mesh["cp"] > 1 if space.features.shards_over_context else mesh["cp"]
    _, dense = distinct_pairs(mesh["tp"], mesh["pp"])
    _, experts = distinct_pairs(mesh["ep"], mesh["etp"])
    return distinct_pairs(distinct_pairs(dense, experts)[1], context.astype(np.int64))[1]


def _first_of(keys: Ints) -> tuple[Ints, Ints]:
    """Where each of some small numbers stands first, and of every place which of these it is like."""
    first = np.full(int(keys.max()) + 1, -1, dtype=np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]
    there = first >= 0
    return first[there], (np.cumsum(there) - 1)[keys]
