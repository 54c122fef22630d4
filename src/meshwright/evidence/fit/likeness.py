"""How alike layouts are: what one run's error says of another's, for ``tune`` and for a few own runs alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.layout import Layout

    Floats = NDArray[np.float64]

KNOBS = ("tp", "cp", "pp", "vp", "ep", "etp", "mb", "sp", "zero", "recompute", "offload")
"""What ``words`` says of a layout."""


def words(layout: Layout) -> list[float]:
    """Degrees as log2, what has no size as numbers that differ by one."""
    degrees = (
        layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.virtual_stages, layout.expert_parallel,
        layout.expert_tensor_parallel, layout.microbatch_sequences,
    )
    kinds = {"NoRecompute": 0.0, "Selective": 1.0, "Mixed": 1.5, "Full": 2.0}
    return [
        *(math.log2(each) for each in degrees), float(layout.sequence_parallel), float(layout.zero_stage),
        kinds[type(layout.recompute).__name__], float(len(layout.offload)),
    ]


def distance(said: Floats) -> Floats:
    """Doublings, and differences of kind, between layouts: the sum over their words.

    Shapes:  ``[n, f] -> [n, n]``.
    """
    return np.asarray(np.abs(said[:, None, :] - said[None, :, :]).sum(axis=2))


def likeness(said: Floats, reach: float) -> Floats:
    """How alike layouts are.

        k_ij = exp(-sum over words |w_i - w_j| / reach)

    Shapes:  ``[n, f] -> [n, n]``; 1 on the diagonal.
    Holds:   positive semidefinite: a product of Laplace kernels.
    """
    return np.asarray(np.exp(-distance(said) / reach))
