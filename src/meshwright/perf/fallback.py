"""Attention whose back end nobody chose: when the fused kernels have no answer, and what the score matrix costs then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.model import NO_ATTENTION
from meshwright.perf.elementwise import memory_bound_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.model import LayerKind
    from meshwright.perf.arrays import Array
    from meshwright.perf.operators import WorkShape


def falls_back(kind: LayerKind, case: Case, shape: WorkShape) -> NDArray[np.bool_]:
    """Whether the fused kernels of a framework that chooses by itself have no answer for the attention of a layer.

        sinks, or packed documents under context parallelism without latent attention

    Shapes:  the columns of ``shape``.
    Units:   yes or no.
    Holds:   Transformer Engine, unless a recipe names the back end; other reasons (head sizes) are not known to cost as much.
    Source:  Transformer Engine dot_product_attention/utils.py get_attention_backend; Megatron-Bridge verification cards.
    """
    attention = kind.attention or NO_ATTENTION
    packed = case.batch.mean_square_document_tokens is not None and attention.latent is None
    return np.asarray((shape.context_parallel > 1.0) & packed | attention.sinks)


def fallback_attention_s(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """Forward and backward of an attention core that fell back: every score of the square passes through memory.

        f q h s^2 / c   forward, twice that backward, over the memory bandwidth

    Symbols: f ``fallback_score_bytes``; q sequences; h heads of the rank; s tokens; c context parallelism. No window, mask or
             document saves anything.
    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   s.
    Holds:   time alone: what such a core keeps is the implementation's as if it were fused.
    Source:  ``Constants.fallback_score_bytes``.
    """
    heads = shape.sequences * (kind.attention or NO_ATTENTION).num_heads / shape.tensor_parallel
    scores = heads * np.square(float(case.batch.sequence_tokens)) / shape.context_parallel
    constants = case.calibration.constants
    forward = memory_bound_s(constants.fallback_score_bytes * scores, case.cluster.device, constants)
    return forward, 2.0 * forward
