"""Knobs finer than the grid, tried on its best: first k layers recomputed, shard groups, modules, uneven stages, kinds of CP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.estimate.evaluate import split_of
from meshwright.estimate.many import price_many
from meshwright.estimate.split import even_split
from meshwright.search.finalists import Candidate
from meshwright.search.legality import layout_refusals
from meshwright.search.rules import context_kinds
from meshwright.search.space import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.layout import Layout
    from meshwright.estimate.known_work import KnownWork
    from meshwright.search.finalists import Finalists
    from meshwright.search.space import Space

BASES = 20
"""Grid layouts of each pool that are refined."""
MESHES = 60
"""Meshes and micro-batches of which the recomputation is tried."""
MODULE_SETS: tuple[tuple[str, ...], ...] = (
    ("layernorm",),
    ("moe_act",),
    ("mlp",),
    ("moe_act", "layernorm"),
    ("mla_up_proj",),
    ("mla_up_proj", "moe_act", "layernorm"),
    ("moe",),
    ("mla_up_proj", "moe"),
    ("mlp_act",),
    ("comm",),
    ("comm", "mlp_act"),
)


def refine(space: Space, finalists: Finalists, *, bases: int = BASES, work: KnownWork | None = None) -> list[Candidate]:
    """Neighbours of the best ``bases`` layouts of each pool, evaluated; those that fit, with the grid's own among them.

    ``work``: what micro-batches of the case cost, as far as that was asked before.

    Holds:   only knobs that are not pinned and that the framework has. Of every other mesh among those that fit recomputation is
             tried: a mesh that is slow where it recomputes everything may be the one that has room to recompute little.
    """
    best = finalists.best
    chosen = [layout for pool in (best, *finalists.near) for layout in _unlike(pool)[:bases]]
    found = around(space, chosen)
    if space.pins.recompute is None:
        others = [base for base in _unlike(best, chunks=False)[:MESHES] if base not in chosen]
        selective = selectives(space)
        more = (layout for base in others for layout in _recomputes(space, base, selective))
        found = list(dict.fromkeys([*found, *more]))
    return [*best, *fitting(space, found, known={candidate.layout for candidate in best}, after=finalists.seen, work=work)]


def _unlike(pool: Sequence[Candidate], *, chunks: bool = True) -> list[Layout]:
    """The first of each mesh, micro-batch and number of chunks: recomputation and sharding are what is tried around them.

    ``chunks``: whether numbers of chunks are told apart, or only one from several.
    """
    once: dict[tuple[int, ...], Layout] = {}
    for each in pool:
        own = each.layout
        key = (
            own.tensor_parallel, own.context_parallel, own.pipeline_parallel,
            own.virtual_stages if chunks else min(own.virtual_stages, 2), own.expert_parallel, own.expert_tensor_parallel,
            own.microbatch_sequences,
        )
        once.setdefault(key, own)
    return list(once.values())


def around(space: Space, bases: Sequence[Layout]) -> list[Layout]:
    """Neighbours of some layouts, each once."""
    tried = Tried(selective=selectives(space))
    return list(dict.fromkeys(layout for base in bases for layout in variants(space, base, tried)))


def fitting(
    space: Space, found: Sequence[Layout], *, known: set[Layout], after: int, work: KnownWork | None = None
) -> list[Candidate]:
    """Of some layouts those that fit and are not known yet, evaluated; ``after``: where the enumeration has ended."""
    if not found:
        return []
    capacity_bytes = space.case.capacity_bytes
    _, mean_s, reserved = price_many(space.case, found, work)
    own = ((number, found[number]) for number in np.flatnonzero(reserved <= capacity_bytes).tolist())
    return [
        Candidate(layout=layout, step_s=float(mean_s[number]), reserved_bytes=float(reserved[number]), order=after + number)
        for number, layout in own if layout not in known
    ]


class Tried(Struct):
    """What was tried around other layouts before, and what is tried around all."""

    selective: tuple[Selective, ...]
    """Recomputations of modules, as ``selectives`` lists them."""

    plain: set[Layout] = field(default_factory=set)
    """Layouts, as they are without recomputation, whose recomputation was varied."""
    meshes: dict[tuple[object, ...], bool] = field(default_factory=dict)
    """Whether a mesh is legal under a kind of context parallelism, whatever runs on it."""


def variants(space: Space, base: Layout, tried: Tried) -> Iterator[Layout]:
    """Every neighbour of a layout that the framework can express; what was ``tried`` before grows."""
    features, pins = space.features, space.pins
    shapes = [base, *(uneven(space, base) if features.uneven_stages else ())]
    for shape in shapes:
        yield shape
        plain = replace(shape, recompute=NoRecompute())
        if pins.recompute is None and plain not in tried.plain:
            tried.plain.add(plain)
            yield from _recomputes(space, shape, tried.selective)
    if pins.shard is None and features.partial_sharding and base.optimizer_shards > 1:
        yield from _shardings(space, base)
    if base.context_parallel > 1 and pins.cp_kind is None:
        for kind in context_kinds(space.case.model, features):
            other = replace(base, context_kind=kind)
            if kind != base.context_kind and _legal_mesh(space, other, tried):
                yield other


def _legal_mesh(space: Space, layout: Layout, tried: Tried) -> bool:
    """Whether no rule refuses the mesh of a layout."""
    mesh = (
        layout.tensor_parallel, layout.sequence_parallel, layout.context_parallel, layout.context_kind, layout.pipeline_parallel,
        layout.data_parallel, layout.expert_parallel, layout.expert_tensor_parallel,
    )
    if mesh not in tried.meshes:
        tried.meshes[mesh] = not layout_refusals(space.case, space.features, layout, level="mesh")
    return tried.meshes[mesh]


def _recomputes(space: Space, base: Layout, selective: Sequence[Selective]) -> Iterator[Layout]:
    features = space.features
    if "full" in features.recompute and features.recompute_first_layers:
        largest = max(max(row) for row in split_of(space.case, base))
        yield from (replace(base, recompute=Full(layers=k)) for k in _steps(largest))
    yield from (replace(base, recompute=each) for each in selective)
    if not isinstance(base.recompute, NoRecompute):
        yield replace(base, recompute=NoRecompute())


def selectives(space: Space) -> tuple[Selective, ...]:
    """Recomputations of modules that the framework has."""
    return tuple(Selective(modules=each) for each in module_sets(space)) if "selective" in space.features.recompute else ()


def module_sets(space: Space) -> list[tuple[str, ...]]:
    """Those of ``MODULE_SETS`` whose modules the framework recomputes and the model has."""
    model = space.case.model
    latent = any(each.latent for each in model.attentions)
    dense = any(kind.experts is None for kind in model.kinds)
    kept = not space.case.implementation.gathers_again
    needs = {"mla_up_proj": latent, "moe": model.is_moe, "moe_act": model.is_moe, "mlp": dense, "mlp_act": dense, "comm": kept}
    able = {module for module in space.features.selective_modules if needs.get(module, True)}
    return [modules for modules in MODULE_SETS if able.issuperset(modules)]


def _steps(largest: int) -> Sequence[int]:
    """Counts of recomputed layers to try: all up to eight, then a spread."""
    if largest <= 9:
        return range(1, largest)
    return sorted({*range(1, 6), *(round(largest * share / 8) for share in range(1, 8))})


def over_other_ranks(space: Space, base: Layout, *, work: KnownWork | None = None) -> list[Candidate]:
    """A layout and the same over other shard groups, as far as they fit; none where groups are pinned or the framework has one."""
    if space.pins.shard is not None or not space.features.partial_sharding or base.optimizer_shards == 1:
        return []
    return fitting(space, [base, *_shardings(space, base)], known=set(), after=0, work=work)


def _shardings(space: Space, base: Layout) -> Iterator[Layout]:
    ranks = base.data_parallel * (base.context_parallel if space.features.shards_over_context else 1)
    for shards in divisors(ranks):
        if shards in (1, base.optimizer_shards):
            continue
        yield replace(
            base, optimizer_shards=shards, gradient_shards=shards if base.gradient_shards > 1 else 1,
            parameter_shards=shards if base.parameter_shards > 1 else 1,
        )


def uneven(space: Space, base: Layout) -> Iterator[Layout]:
    """Splits that take one to three layers from the last stage (output layer), the first (embedding), or both.

    Holds:   none is the split that goes without saying: it would be the same layout under two names.
    """
    stages, layers = base.pipeline_parallel, space.case.model.num_layers
    if stages < 3 or base.virtual_stages > 1 or layers < 2 * stages:
        return
    unsaid = split_of(space.case, replace(base, stage_layers=None))
    for first, last in ((0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 0)):
        even = even_split(layers, stages, 1)[0]
        begin, end = even[0] - first, even[-1] - last
        if begin < 1 or end < 1:
            continue
        middle = even_split(layers - begin - end, stages - 2, 1)[0]
        if ((begin, *middle, end),) != unsaid:
            yield replace(base, stage_layers=((begin, *middle, end),))
