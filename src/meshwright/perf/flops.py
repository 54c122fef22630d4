"""FLOPs of a model and the conventions under which MFU is published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from meshwright.perf.attention import attended_pairs, attention_flops
from meshwright.perf.operators import head_product, layer_products, work_shape

if TYPE_CHECKING:
    from meshwright.domain.model import LayerKind, Model

Convention = Literal["causal", "full", "megatron"]
CONVENTIONS: tuple[Convention, ...] = ("causal", "full", "megatron")


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceFlops:
    """Forward FLOPs of one sequence: products with weights, the attention core, and the output layer."""

    products: float
    attention: float
    head: float

    @property
    def total(self) -> float:
        """All forward FLOPs."""
        return self.products + self.attention + self.head


def layer_sequence_flops(
    kind: LayerKind, hidden: int, sequence_tokens: int, *, convention: Convention, mean_square: float | None = None
) -> tuple[float, float]:
    """Forward FLOPs of one layer for one sequence: (products, attention core).

        products 2 sum m n k;   attention 2 pairs heads (d_k + d_v)

    Symbols: pairs s^2/2 (causal), s^2 (full, megatron), or the packed and windowed counts under ``causal``.
    Units:   FLOP.
    Holds:   balanced routing; both expert and dense layers.
    Source:  docs/sources.md#flops; Narayanan et al. 2021, appendix.
    """
    shape = work_shape(microbatch_sequences=1, sequence_tokens=sequence_tokens)
    products = sum(float(product.flops) for product in layer_products(kind, hidden, shape))
    attention = kind.attention
    causal = convention == "causal"
    pairs = attended_pairs(
        sequence_tokens, attention.window_tokens if causal else None, mean_square if causal else None, causal=causal
    )
    return products, float(attention_flops(pairs, attention.num_heads, attention.head_dim, attention.value_dim))


def sequence_flops(
    model: Model, sequence_tokens: int, *, convention: Convention, mean_square: float | None = None, vocabulary: float | None = None
) -> SequenceFlops:
    """Forward FLOPs of the model for one sequence.

    Multi-token-prediction layers count as layers of the last kind, their 2h x h projection, and a further output layer.

    Units:   FLOP.
    Holds:   ``megatron`` counts the padded vocabulary that is passed in; the others the model's own.
    Source:  docs/sources.md#flops.
    """
    products = attention = 0.0
    by_kind = [
        layer_sequence_flops(kind, model.hidden, sequence_tokens, convention=convention, mean_square=mean_square)
        for kind in model.kinds
    ]
    for index in (*model.pattern, *([model.pattern[-1]] * model.num_mtp_layers)):
        products += by_kind[index][0]
        attention += by_kind[index][1]
    products += model.num_mtp_layers * 2.0 * sequence_tokens * (2 * model.hidden) * model.hidden
    shape = work_shape(microbatch_sequences=1, sequence_tokens=sequence_tokens)
    head = float(head_product(model, shape, vocabulary or model.vocabulary).flops) * (1 + model.num_mtp_layers)
    return SequenceFlops(products=products, attention=attention, head=head)


def training_flops(forward: SequenceFlops, *, weights_frozen: bool = False) -> float:
    """Model FLOPs of forward and backward: three times the forward, or twice where weights are frozen.

        6 N + attention * 3;   frozen: 4 N + attention * 3

    Units:   FLOP per sequence.
    Holds:   no recompute (that is hardware work); adapters of LoRA are below one per cent and left out.
    Source:  docs/sources.md#flops.
    """
    weights = forward.products + forward.head
    return (2.0 if weights_frozen else 3.0) * weights + 3.0 * forward.attention
