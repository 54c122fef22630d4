"""Which layouts of a grid are legal, level by level: a rule is asked once for each distinct key that it looks at, and counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, structs

from meshwright.search.rules import knobs_of, rules_of
from meshwright.search.space import mesh_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.search.space import Space

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


class Counts(Struct):
    """How many layouts were legal, evaluated, left out by a bound, and refused by which rule."""

    legal: int = 0
    evaluated: int = 0
    bounded: int = 0
    fitting: int = 0
    """Of the evaluated those that fit."""
    possible: int = 0
    """Of the legal those whose states alone do not exceed the memory."""
    rejected: Counter[str] | None = None

    def refuse(self, reason: str, number: int) -> None:
        """Count layouts that a rule refused."""
        if self.rejected is None:
            self.rejected = Counter()
        if number:
            self.rejected[reason] += number


class Pairs(Struct, frozen=True, kw_only=True):
    """Every mesh with every micro-batch that divides its batch, mesh by mesh."""

    mesh: Ints
    """Which mesh."""
    place: Ints
    """Which of the micro-batches of the space."""
    num_microbatches: Ints
    pipeline: Ints
    """Which of the distinct (pp, m)."""

    def where(self, index: Ints | Bools) -> Pairs:
        """Chosen ones."""
        return Pairs(
            mesh=self.mesh[index], place=self.place[index], num_microbatches=self.num_microbatches[index],
            pipeline=self.pipeline[index],
        )


class Legal(Struct, frozen=True, kw_only=True):
    """The legal layouts of a grid, as a table for each level; a layout is a pair, a chunk count, a treatment and a sharding."""

    mesh: dict[str, Ints]
    pairs: Pairs
    pipelines: dict[str, Bools]
    """By schedule: ``[treatment of the space, (pp, m), chunk count of the space]``."""
    shards: Ints
    """Ranks of every sharding option per mesh, ``[option, mesh]``."""
    shardings: Bools
    """``[mesh, option]``."""
    number: int
    """How many layouts there are."""
    treatments: tuple[str, ...]
    """Of the tables of pipelines."""

    def only(self, pairs: Pairs, *, treatments: int) -> Legal:
        """The layouts of some pairs, under so many treatments that are selective recomputation each."""
        own = self.treatments.index("selective")
        pipelines = {name: np.repeat(table[[own]], treatments, axis=0) for name, table in self.pipelines.items()}
        return self._of(pairs, pipelines, ("selective",) * treatments)

    def where(self, pairs: Pairs) -> Legal:
        """The layouts of some pairs."""
        return self._of(pairs, self.pipelines, self.treatments)

    def _of(self, pairs: Pairs, pipelines: dict[str, Bools], treatments: tuple[str, ...]) -> Legal:
        used, mesh = np.unique(pairs.mesh, return_inverse=True)
        below = sum(np.asarray(table.sum(axis=(0, 2))) for table in pipelines.values())
        uses = np.bincount(mesh, weights=np.asarray(below)[pairs.pipeline], minlength=len(used)).astype(np.int64)
        return Legal(
            mesh=take(self.mesh, used), pairs=structs.replace(pairs, mesh=mesh), pipelines=pipelines, shards=self.shards[:, used],
            shardings=self.shardings[used], number=int(uses @ self.shardings[used].sum(axis=1)),
            treatments=treatments,
        )


def take(columns: dict[str, Ints], index: Ints | Bools) -> dict[str, Ints]:
    """Chosen rows of columns."""
    return {name: column[index] for name, column in columns.items()}


def distinct_pairs(left: Ints, right: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """The distinct pairs of two columns, sorted, and which of them each row is; however large, no number runs into the other."""
    base = int(right.max(initial=0)) + 1
    key, inverse = np.unique(left * base + right, return_inverse=True)
    return (key // base, key % base), inverse


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


def legal_meshes(space: Space, counts: Counts) -> dict[str, Ints]:
    """Meshes that no mesh rule refuses; the layouts below refused ones are counted by reason."""
    mesh = mesh_grid(space)
    for rule in rules_of("mesh"):
        knobs = knobs_of(mesh, sp=sequence_parallel(space, mesh["tp"]), context=space.context_kind)
        keep = np.broadcast_to(np.asarray(rule.holds(space.case, space.features, knobs)), mesh["tp"].shape)
        counts.refuse(rule.reason, int((~keep).sum()) * space.children)
        mesh = take(mesh, keep)
    return mesh


def legal_layouts(space: Space, counts: Counts) -> Legal | None:
    """The legal layouts of a grid; all that are refused are counted by the first rule that does. None where there are none.

    Holds:   rules of micro-batches look at degrees and the micro-batch; those of pipelines at pp, m, chunks, schedule and
             treatment; those of sharding at degrees, stage, ranks and offload.
    """
    mesh = legal_meshes(space, counts)
    if not len(mesh["tp"]):
        return None
    pairs = _legal_pairs(space, mesh, counts)
    (pp, m), pipeline = distinct_pairs(mesh["pp"][pairs.mesh], pairs.num_microbatches)
    pairs = Pairs(mesh=pairs.mesh, place=pairs.place, num_microbatches=pairs.num_microbatches, pipeline=pipeline)
    pipelines = _legal_pipelines(space, pp, m, np.bincount(pipeline, minlength=len(pp)), counts)
    below = sum(np.asarray(table.sum(axis=(0, 2))) for table in pipelines.values())
    uses = np.bincount(pairs.mesh, weights=np.asarray(below)[pipeline], minlength=len(mesh["tp"])).astype(np.int64)
    shards = shard_ranks(space, mesh)
    shardings = _legal_shardings(space, mesh, shards, uses, counts)
    return Legal(
        mesh=mesh, pairs=pairs, pipelines=pipelines, shards=shards, shardings=shardings, number=int(uses @ shardings.sum(axis=1)),
        treatments=space.treatments,
    )


def _legal_pairs(space: Space, mesh: dict[str, Ints], counts: Counts) -> Pairs:
    sizes = np.array(space.microbatches, dtype=np.int64)
    per_mesh = space.children // max(1, len(sizes))
    at = np.repeat(np.arange(len(mesh["tp"]), dtype=np.int64), len(sizes))
    place = np.tile(np.arange(len(sizes), dtype=np.int64), len(mesh["tp"]))
    for rule in rules_of("microbatch"):
        keep = np.asarray(rule.holds(space.case, space.features, knobs_of(take(mesh, at), mb=sizes[place])))
        counts.refuse(rule.reason, int((~keep).sum()) * per_mesh)
        at, place = at[keep], place[keep]
    m = space.case.batch.global_batch_sequences // (mesh["dp"][at] * sizes[place])
    return Pairs(mesh=at, place=place, num_microbatches=m, pipeline=np.zeros_like(at))


def _legal_pipelines(space: Space, pp: Ints, m: Ints, pairs: Ints, counts: Counts) -> dict[str, Bools]:
    """Tables of the distinct (pp, m), each of which so many pairs have."""
    chunks = np.array(space.chunks, dtype=np.int64)
    shape = (len(pp), len(chunks))
    below = len(space.shard_options) * pairs[:, None]
    mesh: dict[str, Any] = dict.fromkeys(("tp", "cp", "dp", "ep", "etp")) | {"pp": pp[:, None]}  # a rule that looks at None fails
    tables: dict[str, Bools] = {}
    for schedule in space.schedules:
        every = []
        for treatment in space.treatments:
            legal = np.ones(shape, dtype=np.bool_)
            for rule in rules_of("pipeline"):
                knobs = knobs_of(mesh, mb=None, m=m[:, None], vp=chunks, schedule=schedule, treatment=treatment)
                holds = np.asarray(rule.holds(space.case, space.features, knobs))
                counts.refuse(rule.reason, int((below * (legal & ~holds)).sum()))
                legal &= holds
            every.append(legal)
        tables[schedule] = np.stack(every)
    return tables


def _legal_shardings(space: Space, mesh: dict[str, Ints], shards: Ints, uses: Ints, counts: Counts) -> Bools:
    """Of every mesh the sharding options that are legal; so many layouts of each use them."""
    legal = np.ones((len(uses), len(space.shard_options)), dtype=np.bool_)
    columns = {name: column[:, None] for name, column in mesh.items()}
    stages = np.array([option.stage for option in space.shard_options], dtype=np.int64)
    for rule in rules_of("sharding"):
        knobs = knobs_of(columns, zero=stages, shards=shards.T, offload=int(bool(space.offload)))
        holds = np.broadcast_to(np.asarray(rule.holds(space.case, space.features, knobs)), legal.shape)
        counts.refuse(rule.reason, int(uses @ (legal & ~holds).sum(axis=1)))
        legal = legal & holds
    return legal
