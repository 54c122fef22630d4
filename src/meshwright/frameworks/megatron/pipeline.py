"""How layers lie on pipeline stages, in the ways in which Megatron-LM can be told."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from meshwright.estimate.split import Split, default_split
from meshwright.frameworks.megatron.hybrid import PIPES, is_hybrid, letters_of_a_layer, pattern

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.megatron.flags import Version


def split_of(case: Case, layout: Layout) -> Split:
    """The layers of every chunk and stage; where the layout is silent, as the plan counts them."""
    if layout.stage_layers is not None:
        return layout.stage_layers
    return default_split(case, layout.pipeline_parallel, layout.virtual_stages)


def is_even(split: Split) -> bool:
    """Whether every chunk of every stage has the same number of layers."""
    return len({count for chunk in split for count in chunk}) == 1


def layout_string(split: Split, num_mtp_layers: int = 0) -> str:
    """Megatron's layout string: ``E`` embedding, ``t`` layer, ``m`` multi-token prediction, ``L`` loss, ``|`` stages.

    >>> layout_string(((19, 21, 21, 19),))
    'Et*19|(t*21|)*2t*19L'
    >>> layout_string(((1, 2), (2, 1)), num_mtp_layers=1)
    'Et|(t*2|)*2tmL'
    """
    cells = [_times("t", count) for chunk in split for count in chunk]
    cells[0] = "E" + cells[0]
    cells[-1] += _times("m", num_mtp_layers) + "L"
    runs = [(cell, len(list(run))) for cell, run in groupby(f"{cell}|" for cell in cells)]
    return "".join(cell if count == 1 else f"({cell})*{count}" for cell, count in runs).removesuffix("|")


def _times(letter: str, count: int) -> str:
    """A letter ``count`` times, in the short form."""
    return letter * count if count < 2 else f"{letter}*{count}"


def pipeline_arguments(case: Case, layout: Layout, version: Version) -> Values:
    """The flags that place the layers; what is off is None or False.

    Holds:   a split that needs a layout string is only asked of versions that have it (``megatron.split``).
    """
    split, virtual = split_of(case, layout), layout.virtual_stages > 1
    values: dict[str, object] = hybrid_pattern(case, layout, version)
    if layout.pipeline_parallel == 1:
        return values
    if virtual:
        values["--microbatch-group-size-per-virtual-pipeline-stage"] = layout.pipeline_parallel
        values["--no-overlap-p2p-communication"] = not layout.overlap.point_to_point
    if is_hybrid(case.model) and (version.minor >= PIPES or is_even(split)):
        return values
    if is_even(split):
        values["--num-virtual-stages-per-pipeline-rank"] = layout.virtual_stages if virtual else None
    elif version.minor >= 13 and not is_hybrid(case.model):
        values["--pipeline-model-parallel-layout"] = layout_string(split, case.model.mtp_passes)
    else:
        values["--num-virtual-stages-per-pipeline-rank"] = layout.virtual_stages if virtual else None
        blocks = letters_of_a_layer(case.model) or 1
        values["--decoder-first-pipeline-num-layers"] = split[0][0] * len(split) * blocks
        # Both counts leave nothing between them on two stages, which core 0.12 divides by.
        last = split[-1][-1] * len(split) * blocks
        values["--decoder-last-pipeline-num-layers"] = last if layout.pipeline_parallel > 2 else None
    return values


def hybrid_pattern(case: Case, layout: Layout, version: Version) -> dict[str, object]:
    """The pattern of a hybrid, which says its stages, too, where the version reads ``|``; nothing for other models."""
    if not is_hybrid(case.model):
        return {}
    staged = version.minor >= PIPES and layout.pipeline_parallel > 1
    text = pattern(case.model, split_of(case, layout) if staged else None)
    return {"--hybrid-layer-pattern" if version.minor >= PIPES else "--hybrid-override-pattern": text}


def only_ends_differ(split: Split) -> bool:
    """Whether the first and the last stage have counts of their own and all others one, in every chunk the same."""
    first, last = split[0][0], split[-1][-1]
    middle = {count for chunk in split for count in chunk[1:-1]}
    return len(middle) <= 1 and all(chunk[0] == first and chunk[-1] == last for chunk in split)
