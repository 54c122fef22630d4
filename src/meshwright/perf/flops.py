"""FLOPs of a model and the conventions under which MFU is published."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from meshwright.perf.attention import (
    attention_flops,
    core_pairs,
    core_widths,
    index_flops,
    index_loss_flops,
    is_detached,
)
from meshwright.perf.mixers import recurrence_flops
from meshwright.perf.operators import head_product, index_products, layer_products, work_shape
from meshwright.perf.tower import PASSES, tower_flops

if TYPE_CHECKING:
    from meshwright.domain.model import LayerKind, Model
    from meshwright.perf.operators import WorkShape

Convention = Literal["causal", "full", "megatron"]
CONVENTIONS: tuple[Convention, ...] = ("causal", "full", "megatron")
PADDED: Convention = "megatron"
"""The convention that counts the padded vocabulary."""
ATTENTION_PASSES = 3.0
"""Forward, and twice as much backward."""


class SequenceFlops(Struct, frozen=True, kw_only=True):
    """Forward FLOPs of one sequence: products with weights, the attention core, and the output layer."""

    products: float
    attention: float
    head: float
    indexers: tuple[float, float] = (0.0, 0.0)
    """What training of indexers takes beside passes of the above (``index_work``): trained, and frozen."""
    tower: float = 0.0
    """Of the images in front of it."""
    tower_passes: float = 1.0
    """Three where the tower is trained."""

    @property
    def total(self) -> float:
        """All forward FLOPs."""
        return self.products + self.attention + self.head + self.tower


def layer_flops(
    kind: LayerKind, hidden: int, shape: WorkShape, sequence_tokens: int, *, convention: Convention,
    mean_square: float | None = None,
) -> tuple[float, float]:
    """Forward FLOPs of one layer on a rank for one micro-batch: (products, attention core).

        products 2 sum m n k;   attention 2 pairs b heads / (t c) (d_k + d_v), of the kernel's widths under ``causal``
        linear mixers ``recurrence_flops`` T / t

    Symbols: pairs s^2/2 (causal), s^2 (full, megatron), or the packed and windowed counts under ``causal``; b sequences; t TP;
             c CP.
    Units:   FLOP.
    Holds:   balanced routing; both expert and dense layers.
    Source:  docs/sources.md#flops; Narayanan et al. 2021, appendix.
    """
    products = sum(float(product.flops) for product in layer_products(kind, hidden, shape))
    attention = kind.attention
    causal, core = convention == "causal", 0.0
    if attention is not None:
        square = mean_square if causal else None
        pairs = core_pairs(attention, sequence_tokens, square, causal=causal)
        heads = float(shape.sequences) * attention.num_heads / float(shape.tensor_parallel) / float(shape.context_parallel)
        widths = core_widths(attention) if causal else (attention.head_dim, attention.value_dim)
        core = float(attention_flops(pairs, heads, *widths))
        if attention.indexer is not None:
            core += float(index_flops(attention, sequence_tokens, square) * shape.sequences / shape.context_parallel)
    if kind.mixer is not None:
        core += recurrence_flops(kind.mixer) * float(shape.tokens / shape.tensor_parallel)
    return products, core


def index_work(
    kind: LayerKind, hidden: int, shape: WorkShape, sequence_tokens: int, *, convention: Convention,
    mean_square: float | None = None, weights_frozen: bool = False,
) -> tuple[float, float]:
    """What training a layer's indexer takes beside the passes of all products and of all attention: (products, scores).

    An indexer that learns from its own loss has no gradient of its inputs: two passes of its products (frozen: one) and one of its
    scores, and the work of the loss. Both figures are differences to what ``training_flops`` counts of any layer.

    Units:   FLOP on a rank for one micro-batch.
    Source:  ``perf.attention.index_loss_flops``; Megatron-Bridge training/utils/flop_utils.py, to a tenth of a per cent of the
             figures that it prints of GLM-5.2.
    """
    attention = kind.attention
    if attention is None or not is_detached(attention):
        return 0.0, 0.0
    products = sum(float(product.flops) for product in index_products(attention, hidden, shape))
    share, square = float(shape.sequences / shape.context_parallel), mean_square if convention == "causal" else None
    scores = share * float(index_flops(attention, sequence_tokens, square))
    target, own = (share * float(each) for each in index_loss_flops(attention, sequence_tokens, square))
    loss = 0.0 if weights_frozen else target / float(shape.tensor_parallel) + own
    return -products, loss - (ATTENTION_PASSES - 1.0) * scores


def head_flops(model: Model, shape: WorkShape, vocabulary: float) -> float:
    """Forward FLOPs of the output layer on a rank for one micro-batch, once more for each further token that is predicted.

    Units:   FLOP.
    Source:  ``perf.operators.head_product``.
    """
    return float(head_product(model, shape, vocabulary).flops) * (1 + model.mtp_passes)


@lru_cache(maxsize=64)
def sequence_flops(
    model: Model, sequence_tokens: int, *, convention: Convention, mean_square: float | None = None, vocabulary: float | None = None
) -> SequenceFlops:
    """Forward FLOPs of the model for one sequence.

    Each run of a multi-token-prediction layer counts as its layers, their 2h x h projection, and a further output layer.

    Units:   FLOP.
    Holds:   ``megatron`` counts the padded vocabulary that is passed in; the others the model's own.
    Source:  docs/sources.md#flops.
    """
    products = attention = 0.0
    shape = work_shape(microbatch_sequences=1, sequence_tokens=sequence_tokens)
    by_kind = [
        layer_flops(kind, model.hidden, shape, sequence_tokens, convention=convention, mean_square=mean_square)
        for kind in model.kinds
    ]
    for index in (*model.pattern, *model.mtp_kinds):
        products += by_kind[index][0]
        attention += by_kind[index][1]
    products += model.mtp_passes * 2.0 * sequence_tokens * (2 * model.hidden) * model.hidden
    products += sum(2.0 * sequence_tokens * side.inputs * side.outputs for side in (*model.front, *model.back))
    head = head_flops(model, shape, vocabulary or model.vocabulary)
    trained, frozen = (
        [
            sum(index_work(kind, model.hidden, shape, sequence_tokens, convention=convention, mean_square=mean_square,
                           weights_frozen=weights_frozen))
            for kind in model.kinds
        ]
        for weights_frozen in (False, True)
    )
    order = (*model.pattern, *model.mtp_kinds)
    indexers = (sum(trained[index] for index in order), sum(frozen[index] for index in order))
    tower = model.tower
    return SequenceFlops(
        products=products, attention=attention, head=head, indexers=indexers,
        tower=0.0 if tower is None else tower_flops(tower, sequence_tokens),
        tower_passes=PASSES if tower is not None and tower.trained else 1.0,
    )


def weight_passes(*, weights_frozen: bool = False) -> float:
    """Times that a product with weights is made: forward, gradient of activations, and of weights where they are trained.

    Units:   a count.
    Source:  docs/sources.md#flops.
    """
    return 2.0 if weights_frozen else 3.0


def training_flops(forward: SequenceFlops, *, weights_frozen: bool = False) -> float:
    """Model FLOPs of forward and backward: three times the forward, or twice where weights are frozen.

        6 N + attention * 3;   frozen: 4 N + attention * 3;   what indexers take otherwise, and a tower's forward once or three
        times

    Units:   FLOP per sequence.
    Holds:   no recompute (that is hardware work); adapters of LoRA are below one per cent and left out.
    Source:  docs/sources.md#flops.
    """
    weights = forward.products + forward.head
    work = weight_passes(weights_frozen=weights_frozen) * weights + ATTENTION_PASSES * forward.attention
    return work + forward.indexers[weights_frozen] + forward.tower_passes * forward.tower
