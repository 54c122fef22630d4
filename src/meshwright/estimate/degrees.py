"""The numbers of layouts: one value, made from a layout, from columns of layouts or from the grid's tables."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.arrays import Array, Number, array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.layout import Layout

WORDS = {
    "tensor_parallel": "tp", "sequence_parallel": "sp", "context_parallel": "cp", "pipeline_parallel": "pp",
    "virtual_stages": "vp", "expert_parallel": "ep", "expert_tensor_parallel": "etp", "data_parallel": "dp",
    "optimizer_shards": "optimizer", "gradient_shards": "gradient", "parameter_shards": "parameter",
    "microbatch_sequences": "mb", "num_microbatches": "m",
}
"""Field of ``Layout`` and ``Degrees`` -> word of a table's column: those of a label, and the ranks over which a state is split."""
_degrees = attrgetter(*WORDS)


class Degrees(Struct, frozen=True, kw_only=True):
    """Degrees of layouts; numbers or columns."""

    tensor_parallel: Array
    sequence_parallel: Array
    """1 where it is on."""
    context_parallel: Array
    pipeline_parallel: Array
    virtual_stages: Array
    expert_parallel: Array
    expert_tensor_parallel: Array
    data_parallel: Array
    optimizer_shards: Array
    gradient_shards: Array
    parameter_shards: Array
    microbatch_sequences: Array
    num_microbatches: Array

    @classmethod
    def of(cls, columns: Mapping[str, Number]) -> Degrees:
        """The degrees of columns by word; one that is not given is 1.

        Shapes:  columns broadcast, so that a level of the grid gives its own alone.
        """
        return cls(**{name: array(columns.get(word, 1)) for name, word in WORDS.items()})

    @property
    def world(self) -> Array:
        """Devices in use."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def devices_per_stage(self) -> Array:
        """Devices of a pipeline stage."""
        return self.tensor_parallel * self.context_parallel * self.data_parallel

    @property
    def replicas(self) -> Array:
        """Ranks that hold the same dense parameters."""
        return self.data_parallel * self.context_parallel

    @property
    def expert_data_parallel(self) -> Array:
        """Replicas of an expert."""
        return self.world / (self.expert_tensor_parallel * self.expert_parallel * self.pipeline_parallel)


def degrees_of(layout: Layout) -> Degrees:
    """The degrees of a layout as arrays of no dimension."""
    return Degrees.of({word: getattr(layout, name) for name, word in WORDS.items()})


def columns_of(layouts: Sequence[Layout]) -> dict[str, Array]:
    """The degrees of many layouts as columns by word."""
    columns = np.array([_degrees(layout) for layout in layouts], dtype=np.float64).reshape(-1, len(WORDS)).T
    return dict(zip(WORDS.values(), np.ascontiguousarray(columns), strict=True))


def sharded(stage: Number, ranks: Number) -> dict[str, Array]:
    """Ranks over which a ZeRO stage splits each state, as columns by word: optimizer from stage 1, gradients 2, parameters 3."""
    states = {"optimizer": 1, "gradient": 2, "parameter": 3}
    return {word: np.where(np.asarray(stage) >= least, ranks, 1) for word, least in states.items()}
