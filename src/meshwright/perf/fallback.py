"""Attention whose back end nobody chose, where the fused kernels may have no answer: what the score matrix costs then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.attention import NO_ATTENTION
from meshwright.perf.elementwise import memory_bound_s

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.model import LayerKind
    from meshwright.perf.arrays import Array
    from meshwright.perf.operators import WorkShape


def fallback_attention_s(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """Forward and backward of an attention core that fell back: every score of the square passes through memory.

        f q h s^2 / c   forward, twice that backward, over the memory bandwidth

    Symbols: f ``fallback_score_bytes``; q sequences; h heads of the rank; s tokens; c context parallelism. No window, mask or
             document saves anything.
    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   s.
    Holds:   layers with sinks, which the fused kernels of older releases lack; time alone: what such a core keeps is the
             implementation's as if it were fused. Packed documents and context parallelism never come here: the unfused core of
             Transformer Engine takes neither.
    Source:  Transformer Engine dot_product_attention/utils.py get_attention_backend; ``Constants.fallback_score_bytes``.
    """
    heads = shape.sequences * (kind.attention or NO_ATTENTION).num_heads / shape.tensor_parallel
    scores = heads * np.square(float(case.batch.sequence_tokens)) / shape.context_parallel
    constants = case.calibration.constants
    forward = memory_bound_s(constants.fallback_score_bytes * scores, case.cluster.device, constants)
    return forward, 2.0 * forward
