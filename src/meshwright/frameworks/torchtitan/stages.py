"""Where torchtitan puts the layers of a pipeline, and how a split is said to it (``distributed/pipeline_parallel.py``)."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.layout import Schedule

Split: TypeAlias = "tuple[tuple[int, ...], ...]"
SINGLE = frozenset({"1f1b", "gpipe"})
"""Schedules with one stage on each rank."""
FOLDED = frozenset({"dualpipev"})
"""Schedules whose second chunk runs back from the last rank to the first."""
_FIRST, _LAST = "parallelism.pipeline_parallel_first_stage_less_layers", "parallelism.pipeline_parallel_last_stage_less_layers"
_PER_STAGE, _PARTS = "parallelism.pipeline_parallel_layers_per_stage", "parallelism.module_fqns_per_model_part"
SPLIT_KEYS = (_FIRST, _LAST, _PER_STAGE, _PARTS)


def generated(num_stages: int, num_layers: int, first: int, last: int) -> list[int] | None:
    """Layers of each stage in the model's order, with so many fewer on the first and the last; None where it refuses."""
    share, extra = divmod(num_layers + first + last, num_stages)
    if num_stages == 1:
        return [num_layers]
    if share == 0 or first > share or last > share:
        return None
    counts, left = [], num_layers
    for stage in range(num_stages):
        wanted = share + (stage < extra) - (first if stage == 0 else last if stage == num_stages - 1 else 0)
        counts.append(min(wanted, left))
        left -= counts[-1]
    return counts


def in_order(split: Split, schedule: Schedule) -> list[int]:
    """Layers of each stage in the model's order from ``[chunk][stage]``."""
    rows = [row[::-1] if schedule in FOLDED and chunk % 2 else row for chunk, row in enumerate(split)]
    return [count for row in rows for count in row]


def by_chunk(counts: Sequence[int], stages: int, schedule: Schedule) -> Split:
    """``[chunk][stage]`` from layers in the model's order."""
    rows = [tuple(counts[start : start + stages]) for start in range(0, len(counts), stages)]
    return tuple(row[::-1] if schedule in FOLDED and chunk % 2 else row for chunk, row in enumerate(rows))


def split_keys(split: Split, schedule: Schedule, head: str) -> Mapping[str, object]:
    """The keys that give a split: weights of the ends where they are enough, else the modules of every part.

    ``head``: name of the output layer.
    """
    counts, stages = in_order(split, schedule), len(split[0])
    places, layers = len(counts), sum(counts)
    usual = len(split) == (1 if schedule in SINGLE else 2)
    for first, last in ((0, 0), (1, 1)):
        per_stage = ceil((layers + first + last) / places)
        if generated(places, layers, first, last) != counts or (not usual and ceil((layers + first + last) / per_stage) != places):
            continue
        if schedule not in SINGLE and places < 2 * stages:
            continue
        return {_FIRST: first, _LAST: last, **({} if usual else {_PER_STAGE: per_stage})}
    return {_PARTS: modules(counts, head)}


def modules(counts: Sequence[int], head: str) -> list[list[str]]:
    """Names of the modules of each part."""
    parts, start = [], 0
    for count in counts:
        parts.append([f"layers.{layer}" for layer in range(start, start + count)])
        start += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", head]
    return parts


def layers_of(part: object) -> list[int] | None:
    """The layers that a part names; None where it is no list of names."""
    if not isinstance(part, (list, tuple)) or not all(isinstance(name, str) for name in part):
        return None
    numbers = [name.removeprefix("layers.") for name in part if name.startswith("layers.")]
    return [int(number) for number in numbers] if all(number.isdecimal() for number in numbers) else None
