"""The knobs that a repair may turn: which values each takes from a layout, and what turning it does to the arithmetic.

The global batch, the sequence and the numerics are no knobs. Data parallelism, the number of micro-batches, the size of a full
shard group, the schedule that chunks ask for, and sequence parallelism where tensor parallelism comes or goes follow from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshwright.domain.label import recompute_word
from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.estimate.split import default_split
from meshwright.search.refine import MODULE_SETS
from meshwright.search.rules import context_kinds, sequence_parallel_unasked
from meshwright.search.space import MAX_VIRTUAL_STAGES, divisors

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from meshwright.domain.balance import Grid
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Recompute, Risk
    from meshwright.domain.model import Model
    from meshwright.search.repair.wishes import Value

ALL = 0
"""The shard group of all data-parallel ranks, however many there are."""
MOST_COUNTS = 32
"""Counts of recomputed layers (full:k) that are tried: all of them up to here, then a spread of as many."""


@dataclass(frozen=True, slots=True)
class Ends:
    """A split in which the first and the last chunk hold so many layers fewer than an even one gives them."""

    first: int
    last: int


ENDS = tuple(
    Ends(first, last)
    for first, last in ((0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0), (1, 1), (1, 2), (2, 1), (2, 2), (0, -1), (1, -1), (2, -2))
)
"""Ends of a pipeline that hold the embedding, the output layer, or most micro-batches in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A knob with its values from one layout; the first is the one it has."""

    word: str
    field: str
    risk: Risk
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What values are drawn from."""

    case: Case
    features: Features
    layout: Layout
    world: int
    """Devices that the run is to have."""
    splits: tuple[Grid, ...] = ()
    """Splits of the layout's own pipeline that are worth trying."""
    recomputes: tuple[Recompute, ...] = ()
    """Ways of recomputing stage by stage, for the layout's own pipeline."""


def knobs(given: Given, frozen: Collection[str] = ()) -> tuple[Knob, ...]:
    """Every knob with its values; one that is frozen, or that the framework does not have, keeps the one it has."""
    case, features, layout = given.case, given.features, given.layout
    degrees = divisors(given.world)
    experts = degrees if case.model.is_moe and features.expert_parallel else ()
    expert_tensors = degrees if case.model.is_moe and features.expert_tensor_parallel else ()
    chunks = range(1, MAX_VIRTUAL_STAGES + 1) if features.pipeline_parallel else ()
    offload = ((), ("optimizer",)) if features.optimizer_offload else ((),)
    parallel: Sequence[Any] = (False, True) if layout.sequence_parallel or sequence_parallel_unasked(case, features) else ()
    kinds = context_kinds(case.model, features)
    mean: Risk = "approximate" if case.model.is_moe else "equivalent"  # balance losses are means of a micro-batch
    table: tuple[tuple[str, str, Risk, Any, Sequence[Any]], ...] = (
        ("tp", "tensor_parallel", "equivalent", layout.tensor_parallel, degrees if features.tensor_parallel else ()),
        ("cp", "context_parallel", "equivalent", layout.context_parallel, degrees if kinds else ()),
        ("pp", "pipeline_parallel", "equivalent", layout.pipeline_parallel, degrees if features.pipeline_parallel else ()),
        ("vp", "virtual_stages", "exact", layout.virtual_stages, chunks),
        ("ep", "expert_parallel", "equivalent", layout.expert_parallel, experts),
        ("etp", "expert_tensor_parallel", "equivalent", layout.expert_tensor_parallel, expert_tensors),
        ("mb", "microbatch_sequences", mean, layout.microbatch_sequences, divisors(case.batch.global_batch_sequences)),
        ("zero", "optimizer_shards", "exact", layout.zero_stage, _zero_stages(given)),
        ("shard", "optimizer_shards", "exact", shard_group(given), (ALL, *degrees[1:-1]) if features.partial_sharding else ()),
        ("sp", "sequence_parallel", "equivalent", layout.sequence_parallel, parallel),
        ("recompute", "recompute", "exact", layout.recompute, recomputes(given)),
        ("offload", "offload", "equivalent", layout.offload, offload),
        (
            "layers",
            "stage_layers",
            "exact",
            layout.stage_layers,
            (None, *given.splits, *ENDS) if features.uneven_stages else (None,),
        ),
        ("schedule", "schedule", "exact", family(layout.schedule), [family(name) for name in features.schedules]),
        ("context", "context_kind", "equivalent", layout.context_kind, kinds),
    )
    return tuple(
        Knob(word=word, field=field, risk=risk, values=tuple(dict.fromkeys((now, *(() if word in frozen else values)))))
        for word, field, risk, now, values in table
    )


def family(schedule: str) -> str:
    """1F1B and the interleaved schedule are one choice: the number of chunks tells them apart."""
    return "1f1b" if schedule == "interleaved" else schedule


def shard_ranks(features: Features, data_parallel: int, context_parallel: int) -> int:
    """Ranks over which a full shard group splits."""
    return data_parallel * (context_parallel if features.shards_over_context else 1)


def shard_group(given: Given) -> int:
    """The shard group of the layout: ``ALL``, or its size where it is smaller."""
    layout = given.layout
    ranks = shard_ranks(given.features, layout.data_parallel, layout.context_parallel)
    return ALL if layout.optimizer_shards in (1, ranks) else layout.optimizer_shards


def _zero_stages(given: Given) -> tuple[int, ...]:
    plain = given.case.training.optimizer.name in given.features.plain_optimizers
    return (0,) if plain else given.features.zero_stages


def recomputes(given: Given) -> tuple[Recompute, ...]:
    """Ways of recomputing, least first: none, modules, the first k layers of a chunk, all."""
    features, layout, model = given.features, given.layout, given.case.model
    found: list[Recompute] = [NoRecompute()] if "none" in features.recompute else []
    if "selective" in features.recompute:
        had = layout.recompute.modules if isinstance(layout.recompute, Selective) else ()
        sets = [features.selective_default, *MODULE_SETS, *((*had, *(m for m in more if m not in had)) for more in MODULE_SETS)]
        able = [each for each in sets if set(each) <= {*features.selective_modules, *had} and has_modules(model, each)]
        found += [Selective(modules=modules) for modules in dict.fromkeys(able)]
    if "full" in features.recompute:
        if features.recompute_first_layers:
            found += [Full(layers=k) for k in counts(largest_chunk(given))]
        found.append(Full())
    return (*found, *given.recomputes)


def has_modules(model: Model, modules: Collection[str]) -> bool:
    """Whether a model has the modules that are named."""
    latent = any(each.latent for each in model.attentions)
    dense = any(kind.experts is None for kind in model.kinds)
    has = {"mla_up_proj": latent, "moe": model.is_moe, "moe_act": model.is_moe, "mlp": dense}
    return all(has.get(module, True) for module in modules)


def largest_chunk(given: Given) -> int:
    """Layers of the largest chunk that the layout has."""
    layout = given.layout
    places = layout.pipeline_parallel * layout.virtual_stages
    if places > given.case.model.num_layers:
        return 1
    split = layout.stage_layers or default_split(given.case, layout.pipeline_parallel, layout.virtual_stages)
    return max(map(max, split))


def counts(largest: int) -> tuple[int, ...]:
    """Counts of recomputed layers short of all: every one where they are few, else a spread.

    >>> counts(4)
    (1, 2, 3)
    """
    if largest <= MOST_COUNTS:
        return tuple(range(1, largest))
    return tuple(sorted({round(largest * share / MOST_COUNTS) for share in range(1, MOST_COUNTS)}))


def idea(knob: Knob, code: int) -> tuple[str, object]:
    """What a value is a degree of: the knob, or one set of modules that are recomputed."""
    value = knob.values[code]
    return knob.word, (value if isinstance(value, Selective) else type(value).__name__) if knob.word == "recompute" else None


def shown(knob: Knob, value: Any, layout: Layout) -> Value:
    """A value as the label says it; ``layout`` is the one that has it, where the value follows it."""
    match knob.word:
        case "recompute":
            return recompute_word(value)
        case "offload":
            return ",".join(value) or "none"
        case "shard":
            return layout.optimizer_shards
        case "layers":
            return "even" if layout.stage_layers is None else list_word(layout.stage_layers)
        case _:
            return value  # type: ignore[no-any-return]


def list_word(lists: Grid) -> str:
    """Counts as ``[a,b;c,d]``."""
    return f"[{';'.join(','.join(map(str, chunk)) for chunk in lists)}]"
