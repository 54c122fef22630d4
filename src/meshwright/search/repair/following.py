"""What follows from the values of a candidate, and which candidates are legal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.layout import Full, Mixed
from meshwright.search.legality import knobs_of_layout
from meshwright.search.repair.candidates import Settled, distinct, named_schedule, place_of, split_value
from meshwright.search.repair.knobs import ALL, shard_ranks
from meshwright.search.rules import RULES, Knobs, sequence_parallel_unasked

if TYPE_CHECKING:
    from meshwright.domain.layout import Grid, Recompute
    from meshwright.search.repair.candidates import Bools, Codes, Ints
    from meshwright.search.repair.knobs import Given, Knob


def settle(given: Given, table: tuple[Knob, ...], codes: Codes) -> Settled:
    """Candidates whose devices, batch and lists come out even, with what follows from their values.

    dp = devices / (tp cp pp), micro-batches = batch / (dp mb). A full shard group stays full, a smaller one stays where it divides;
    what had no ranks to shard over gets the distributed optimizer.
    """
    case, features, layout = given.case, given.features, given.layout
    settled = Settled(given, table, codes, {})
    n: dict[str, Ints] = {}
    for word in ("tp", "cp", "pp", "vp", "ep", "etp", "mb", "zero", "shard", "sp"):
        values = np.array([int(value) for value in table[place_of(table, word)].values], dtype=np.int64)
        n[word] = values[settled.code(word)]
    parts, batch = n["tp"] * n["cp"] * n["pp"], case.batch.global_batch_sequences
    n["dp"] = given.world // parts
    share = n["dp"] * n["mb"]
    n["m"] = batch // np.maximum(share, 1)
    right = (n["dp"] * parts == given.world) & (n["m"] * share == batch) & (share > 0)
    right &= (n["tp"] * n["cp"] * n["dp"]) % (n["ep"] * n["etp"]) == 0
    able = sequence_parallel_unasked(case, features)
    if layout.tensor_parallel == 1:
        n["sp"] = np.where(settled.code("sp") == 0, int(able), n["sp"])
    n["sp"] = np.where(n["tp"] > 1, n["sp"], 0)
    right &= _shards(given, settled, n)
    right &= (n["pp"] * n["vp"] <= case.model.num_layers) & ((n["cp"] > 1) | (settled.code("context") == 0))
    settled = Settled(given, table, codes, n).take(right)
    return settled.take(_shapely(settled))


def _shards(given: Given, settled: Settled, n: dict[str, Ints]) -> Bools:
    """The three shard groups, and where an edit of them means something."""
    features, layout = given.features, given.layout
    before = shard_ranks(features, layout.data_parallel, layout.context_parallel)
    ranks = n["dp"] * (n["cp"] if features.shards_over_context else 1)

    def followed(shards: int) -> Ints:
        if shards == 1:
            return np.ones_like(ranks)
        return np.where((ranks % shards == 0) & (shards != before), shards, ranks)

    zero, edited = settled.code("zero") > 0, settled.code("shard") > 0
    stage = n["zero"]
    plain = given.case.training.optimizer.name in features.plain_optimizers
    if before == 1 and 1 in features.zero_stages and not plain:
        stage = np.where(zero, stage, np.maximum(stage, 1))
    group = np.where(edited & (n["shard"] != ALL), n["shard"], ranks)
    group = np.where(edited | (layout.optimizer_shards == 1), group, followed(layout.optimizer_shards))
    divides = (ranks % np.maximum(group, 1) == 0) & (group <= ranks)
    kept = ~zero & ~edited & (before > 1)
    for level, (name, shards) in enumerate(
        (("optimizer", layout.optimizer_shards), ("gradient", layout.gradient_shards), ("parameter", layout.parameter_shards)), 1
    ):
        n[name] = np.where(kept, followed(shards), np.where(stage >= level, group, 1))
    n["zero"] = np.where(n["parameter"] > 1, 3, np.where(n["gradient"] > 1, 2, np.where(n["optimizer"] > 1, 1, 0)))
    return np.asarray(~edited | (divides & (stage > 0)))


def _shapely(settled: Settled) -> Bools:
    """Where lists of layers, and of recomputed ones, have the shape of their pipeline."""
    keys = (settled.numbers["pp"], settled.numbers["vp"], settled.code("layers"), settled.code("recompute"))
    first, inverse = distinct(keys)
    layers, recomputes = (settled.table[place_of(settled.table, word)].values for word in ("layers", "recompute"))
    right = np.zeros(len(first), dtype=np.bool_)
    for column, (pp, vp, split, treated) in enumerate(zip(*(key[first].tolist() for key in keys), strict=True)):
        try:
            split_value(settled.given.case, layers[split], pp, vp)
        except ValueError:
            continue
        right[column] = all((len(grid), len(grid[0])) == (vp, pp) for grid in grids(recomputes[treated]))
    return right[inverse]


def grids(recompute: Recompute) -> tuple[Grid, ...]:
    """The lists by chunk and stage that a treatment holds."""
    match recompute:
        case Mixed(parts=parts):
            return tuple(grid for _, grid in parts)
        case Full(layers=tuple() as grid):
            return (grid,)
    return ()


def legal(settled: Settled) -> Settled:
    """Candidates that no rule of layouts refuses (``search.legality.layout_refusals``, on columns)."""
    given, n = settled.given, settled.numbers
    keep = np.ones(len(settled), dtype=np.bool_)
    schedules, kinds, treatments = (
        settled.table[place_of(settled.table, word)].values for word in ("schedule", "context", "recompute")
    )
    words = np.array([knobs_of_layout(replace(given.layout, recompute=value)).treatment for value in treatments])
    treated = words[settled.code("recompute")] if len(settled) else words[:0]
    chunked = n["vp"] > 1
    offloads = settled.table[place_of(settled.table, "offload")].values
    moved = np.array([int(bool(value)) for value in offloads])[settled.code("offload")]
    for s, schedule in enumerate(schedules):
        for c, kind in enumerate(kinds):
            for word in dict.fromkeys(words.tolist()):
                for several in (False, True):
                    rows = np.flatnonzero(
                        (settled.code("schedule") == s) & (settled.code("context") == c) & (treated == word) & (chunked == several)
                    )
                    if not len(rows):
                        continue
                    for rule in RULES:
                        asked = _knobs(n, rows, named_schedule(schedule, 2 if several else 1), str(word), kind, moved)
                        holds = np.broadcast_to(np.asarray(rule.holds(given.case, given.features, asked)), rows.shape)
                        keep[rows[~holds]] = False
                        rows = rows[holds]
    return settled.take(keep)


def _knobs(n: dict[str, Ints], rows: Ints, schedule: str, treatment: str, kind: str, offload: Ints) -> Knobs:
    return Knobs(
        tp=n["tp"][rows], cp=n["cp"][rows], pp=n["pp"][rows], dp=n["dp"][rows], ep=n["ep"][rows], etp=n["etp"][rows],
        mb=n["mb"][rows], m=n["m"][rows], vp=n["vp"][rows], schedule=schedule, treatment=treatment, zero=n["zero"][rows],
        shards=n["optimizer"][rows], sp=n["sp"][rows], context=kind, offload=offload[rows],
    )
