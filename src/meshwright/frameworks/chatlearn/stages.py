"""Layers on stages, as ChatLearn hands them to its Megatron-LM: the layout string, or first and last counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.errors import InputError
from meshwright.estimate.split import Split
from meshwright.frameworks.megatron.pipeline import is_even, layout_string, split_of
from meshwright.frameworks.megatron.stages import unrolled

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model


def stage_string(case: Case, layout: Layout) -> str | None:
    """The layout string, where stages are interleaved or differ; None where an even split says it."""
    split = split_of(case, layout)
    if layout.pipeline_parallel == 1 or (layout.virtual_stages == 1 and plain(split, case.model) is None):
        return None
    return layout_string(split)


def split_of_string(text: str, stages: int) -> Split | None:
    """Layers by chunk and stage of a layout string; None where it is none for so many stages.

    >>> split_of_string("Et*2|(t|)*2t*2L", 2)
    ((2, 1), (1, 2))
    >>> split_of_string("Et|t|tL", 2) is None
    True
    """
    try:
        cells = unrolled(text)
    except InputError:
        return None
    if len(cells) % stages:
        return None
    counts = [cell.count("t") for cell in cells]
    return tuple(tuple(counts[chunk : chunk + stages]) for chunk in range(0, len(counts), stages))


def split_of_ends(num_layers: int, stages: int, first: int | None, last: int | None) -> Split | None:
    """Layers by stage where only the ends are given; None where the rest does not divide.

    >>> split_of_ends(61, 16, 3, 2)
    ((3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2),)
    >>> split_of_ends(10, 2, 4, None)
    ((4, 6),)
    """
    middle = stages - (first is not None) - (last is not None)
    rest = num_layers - (first or 0) - (last or 0)
    if rest < 0 or (rest % middle if middle else rest):
        return None
    each = rest // middle if middle else 0
    ends = ([] if first is None else [first]), ([] if last is None else [last])
    return (tuple(ends[0] + [each] * middle + ends[1]),)


def plain(split: Split, model: Model | None) -> Split | None:
    """None where all stages are alike, which a plan takes by itself, but for a model with layers of multi-token prediction."""
    return None if is_even(split) and not (model and model.num_mtp_layers) else split
