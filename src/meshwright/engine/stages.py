"""Which layers of a model stand on which stage of a pipeline, as PyTorch's schedules number stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.estimate.split import even_split

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One chunk of a rank: its number among all stages of the schedule, and its layers."""

    chunk: int
    index: int
    """The stage as schedules number it: 0 has the embedding."""
    stages: int
    """Stages of the schedule in all: ranks of the pipeline x chunks."""
    layers: range

    @property
    def first(self) -> bool:
        """Whether the embedding is here."""
        return self.index == 0

    @property
    def last(self) -> bool:
        """Whether the head is here."""
        return self.index == self.stages - 1


def folded(layout: Layout) -> bool:
    """Whether chunks run back and forth over the ranks (a V), or always from the first rank to the last."""
    return layout.schedule == "dualpipev"


def places(model: Model, layout: Layout, stage: int) -> tuple[Place, ...]:
    """The chunks of one rank of the pipeline.

    Holds:   layers follow the order of stages; ``layout.stage_layers`` says how many, else as even as possible.
    Source:  torch.distributed.pipelining: rank r of P has stages r + jP, or r and 2P - 1 - r in a V.
    """
    ranks, chunks = layout.pipeline_parallel, layout.virtual_stages
    split = layout.stage_layers or even_split(model.num_layers, ranks, chunks)
    found, begin = [], 0
    for index in range(ranks * chunks):
        chunk, place = divmod(index, ranks)
        rank = ranks - 1 - place if folded(layout) and chunk % 2 else place
        end = begin + split[chunk][rank]
        if rank == stage:
            found.append(Place(chunk=chunk, index=index, stages=ranks * chunks, layers=range(begin, end)))
        begin = end
    return tuple(found)
