"""Counts by chunk and stage, ``[chunk][stage]``: layers, and layers that are recomputed, from and to users' lists."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Grid, Mixed, NoRecompute, Selective, full_of, mixed
from meshwright.estimate.split import default_split, even_split

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout, Recompute
    from meshwright.domain.model import Model
    from meshwright.frameworks.compose import Values

Split = Grid
MAX_LIST_CHARACTERS = 10_000
MAX_PLACES = 16_384
"""Chunks of all stages: more than any cluster has. A file with more is not split, so that it costs no memory."""
MAX_LAYERS = 100_000


def plain_split(num_layers: int, num_mtp_layers: int, stages: int, chunks: int) -> Split:
    """What ``stage_layers=None`` means: as even as possible, multi-token-prediction layers counted on the last chunk."""
    if not num_mtp_layers or stages * chunks == 1:
        return even_split(num_layers, stages, chunks)
    *first, last = even_split(num_layers + num_mtp_layers, stages, chunks)
    if last[-1] < num_mtp_layers:
        return even_split(num_layers, stages, chunks)
    return (*first, (*last[:-1], last[-1] - num_mtp_layers))


def within_reason(values: Values, layers: object, stages: int, chunks: int) -> tuple[int | None, int, int]:
    """Layers, stages and chunks of a file; absurd ones are noted and read as none and one."""
    if isinstance(layers, int) and layers > MAX_LAYERS:
        values.refuse("import.layers", "{layers} layers are more than any model has", layers=layers)
        layers = None
    if stages * chunks > MAX_PLACES:
        values.refuse(
            "import.stages", "{stages} stages of {chunks} chunks are more than any cluster has", stages=stages, chunks=chunks
        )
        stages = chunks = 1
    return (layers if isinstance(layers, int) else None), stages, chunks


def split_of(case: Case, layout: Layout) -> Split:
    """Layers by chunk and stage of a layout, whether it says them or not."""
    return layout.stage_layers or default_split(case, layout.pipeline_parallel, layout.virtual_stages)


def said_split(split: Split, model_layers: int, num_mtp_layers: int) -> Split | None:
    """A split as a layout says it: None where it is what None means."""
    stages, chunks = len(split[0]), len(split)
    return None if split == plain_split(model_layers, num_mtp_layers, stages, chunks) else split


def counts_of(recompute: Recompute, split: Split) -> Split:
    """How many layers of each chunk and stage are recomputed in full."""
    match recompute:
        case Full(layers=None):
            return split
        case Full(layers=int(first)):
            return tuple(tuple(min(first, count) for count in chunk) for chunk in split)
        case Full(layers=tuple(counts)):
            return counts
        case Mixed(parts=((Full(), counts), *_)):
            return counts
        case _:
            return tuple(tuple(0 for _ in chunk) for chunk in split)


def recompute_of(counts: Split, split: Split | None) -> Recompute:
    """Counts as a layout says them: nothing, all layers, the first few of each chunk, or a list."""
    if split is None:
        return Full(layers=counts) if any(map(any, counts)) else NoRecompute()
    return full_of(counts, split)


def normal_stages(case: Case, layout: Layout) -> Layout:
    """The layout with its split and its recompute counts in the form in which they are read back."""
    split, model = split_of(case, layout), case.model
    recompute = layout.recompute
    match recompute:
        case Full() if shape_of(counts_of(recompute, split)) == shape_of(split):
            recompute = recompute_of(counts_of(recompute, split), split)
        case Selective(modules=modules):
            recompute = Selective(modules=tuple(sorted(set(modules))))
        case Mixed(parts=parts) if all(shape_of(counts) == shape_of(split) for _, counts in parts):
            recompute = mixed(parts, split)
    return replace(layout, stage_layers=said_split(split, model.num_layers, model.num_mtp_layers), recompute=recompute)


def shape_of(lists: Split) -> tuple[int, int] | None:
    """Chunks and stages of a rectangular list; None where it is ragged."""
    widths = {len(row) for row in lists}
    return (len(lists), widths.pop()) if len(widths) == 1 else None


def flat_or_nested(lists: Split, chunks: int) -> list[object]:
    """A list as users write it: ``[4, 5, 5, 4]``, or with chunks ``[[2, 2], [3, 2]]``."""
    return [list(row) for row in lists] if chunks > 1 else list(lists[0])


def lists_of(value: object) -> Split | None:
    """Counts from a list, a list of lists, or the text of one; None where it is no such thing. A flat list is one row."""
    if isinstance(value, str):
        if len(value) > MAX_LIST_CHARACTERS:
            return None
        try:
            value = json.loads(value.replace("(", "[").replace(")", "]"))
        except ValueError:
            return None
    if not isinstance(value, (list, tuple)) or not value:
        return None
    rows = value if all(isinstance(row, (list, tuple)) for row in value) else [value]
    if not all(type(count) is int and abs(count) < 10**9 for row in rows for count in row) or not all(rows):
        return None
    return tuple(tuple(row) for row in rows)


def transposed(lists: Split) -> Split:
    """``[stage][chunk]`` for ``[chunk][stage]`` and back."""
    return tuple(zip(*lists, strict=True))


def layer_starts(split: Split) -> Split:
    """The first layer of each chunk and stage, in the order in which chunks follow each other."""
    starts, at = [], 0
    for row in split:
        begins = []
        for count in row:
            begins.append(at)
            at += count
        starts.append(tuple(begins))
    return tuple(starts)


def experts_everywhere(model: Model) -> bool:
    """Whether no layer is dense in a mixture of experts."""
    return all(kind.experts is not None for kind in model.kinds)
