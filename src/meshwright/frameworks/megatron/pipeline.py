"""How layers lie on pipeline stages, in the ways in which Megatron-LM can be told."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from meshwright.errors import fault
from meshwright.plan.split import Split, default_split

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.megatron.flags import Arguments


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


def add_pipeline(arguments: Arguments, case: Case, layout: Layout) -> None:
    """Append the arguments that place the layers."""
    arguments.add("--pipeline-model-parallel-size", layout.pipeline_parallel)
    if layout.pipeline_parallel == 1:
        return
    split = split_of(case, layout)
    if layout.virtual_stages > 1:
        arguments.add("--microbatch-group-size-per-virtual-pipeline-stage", layout.pipeline_parallel)
        arguments.add_if(not layout.overlap.point_to_point, "--no-overlap-p2p-communication")
    if is_even(split):
        if layout.virtual_stages > 1:
            arguments.add("--num-virtual-stages-per-pipeline-rank", layout.virtual_stages)
    elif arguments.version.minor >= 13:
        arguments.add("--pipeline-model-parallel-layout", layout_string(split, case.model.num_mtp_layers))
    else:
        _add_ends(arguments, layout, split)


def _add_ends(arguments: Arguments, layout: Layout, split: Split) -> None:
    """First and last stage by their own counts: all that versions before the layout string have."""
    first, last = split[0][0], split[-1][-1]
    middle = {count for chunk in split for count in chunk[1:-1]}
    even_ends = all(chunk[0] == first and chunk[-1] == last for chunk in split)
    if len(middle) > 1 or not even_ends:
        raise fault(
            "megatron.split", "this split of layers needs a layout string, which Megatron-LM has from core 0.13 on; "
            "the target is {version}: only the first and the last stage may differ", version=arguments.version.name,
        )  # fmt: skip
    if layout.virtual_stages > 1:
        arguments.add("--num-virtual-stages-per-pipeline-rank", layout.virtual_stages)
    arguments.add("--decoder-first-pipeline-num-layers", first * len(split))
    # Both counts leave nothing between them on two stages, which 0.12 divides by.
    arguments.add_if(layout.pipeline_parallel > 2, "--decoder-last-pipeline-num-layers", last * len(split))
