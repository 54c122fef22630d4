"""A vision tower on the first stage: what its images cost there, what they keep, and its FLOPs."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.domain.attention import Attention
from meshwright.domain.layout import Overlap
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.perf.activations import saved_bytes
from meshwright.perf.arrays import Array, array
from meshwright.perf.attention import attention_flops, core_pairs
from meshwright.perf.layer import layer_time
from meshwright.perf.operators import Product, layer_products, work_shape
from meshwright.perf.parameters import layer_parameters
from meshwright.perf.placement import layer_groups
from meshwright.perf.product_times import accumulation_s, product_s
from meshwright.perf.seconds import Seconds, seconds

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.tower import Tower
    from meshwright.perf.arrays import Number
    from meshwright.perf.operators import WorkShape

IDLE = Overlap()
"""Nothing of a tower is split, so that there is nothing to run it beside."""
JOINED_BYTES = 6.0
"""Per patch and channel: queries, keys and values are slices of one tensor, so that values keep all of it, and the output is copied
before it is projected."""
NORM_BYTES = 8.0
"""Per patch and channel of a layer: both RMS norms of towers with gated blocks keep FP32 and what they multiply with a weight,
where a kernel of its own keeps its 16-bit input."""
MERGER_BYTES = 4.0
"""Per token and column of what projects images: input and output of both its products, 2 bytes each."""
PASSES = 3.0
"""Forward, and twice as much backward, where the tower is trained."""


class TowerCosts(Struct, frozen=True, kw_only=True):
    """What the images of one micro-batch cost on every rank of the first stage."""

    forward: Seconds
    backward: Seconds
    saved_bytes: Array
    transient_bytes: Array
    """Of one layer, with nothing kept: what a frozen tower holds while it runs."""


def tower_kind(tower: Tower) -> LayerKind:
    """One layer of a tower: attention both ways, and a block.

    Units:   heads, elements.
    Source:  ``domain.tower``.
    """
    attention = Attention(
        num_heads=tower.num_heads, num_key_value_heads=tower.num_heads, head_dim=max(1, tower.hidden // tower.num_heads),
        causal=False,
    )
    return LayerKind(attention=attention, feed_forward=Mlp(width=tower.block_width, gated=tower.gated))


@lru_cache(maxsize=64)
def tower_model(tower: Tower) -> Model:
    """The layers of a tower as a model, so that the formulas of layers hold for them.

    Units:   layers, elements.
    Source:  ``domain.tower``.
    """
    return Model(name=tower.name, hidden=tower.hidden, vocabulary=1, kinds=(tower_kind(tower),), pattern=(0,) * tower.layers)


def looks(tower: Tower, sequence_tokens: float) -> tuple[tuple[int, float], ...]:
    """Layers, and the patches that look at each other there: an image, no larger than all of a sequence, or a window.

    Units:   layers, patches.
    Source:  transformers: Qwen2_5_VisionTransformerPretrainedModel (window_size, fullatt_block_indexes).
    """
    image = max(1.0, min(float(tower.image_patches), sequence_patches(tower, sequence_tokens)))
    if tower.window_patches is None:
        return ((tower.layers, image),)
    window = min(float(tower.window_patches), image)
    return tuple(each for each in ((tower.whole_layers, image), (tower.layers - tower.whole_layers, window)) if each[0])


def sequence_patches(tower: Tower, sequence_tokens: float) -> float:
    """Patches of the images of one sequence.

        r s g

    Symbols: r share of image tokens; s tokens of the sequence; g patches that become one token.
    Units:   patches.
    Source:  ``domain.tower``; transformers: spatial_merge_size (Qwen), mm_tokens_per_image (Gemma 3), pixel_shuffle_ratio.
    """
    return tower.image_ratio * sequence_tokens * tower.merged


def projected(tower: Tower, microbatch_sequences: Number, sequence_tokens: float) -> Product:
    """Patch embedding, what merges patches, and the projection, as one product of their weights.

        tokens r s b;   weights P - L P_layer

    Shapes:  the micro-batches'.
    Units:   elements.
    Holds:   patches are embedded once each and not once a token, which is less than 2 % of a tower's work.
    Source:  transformers: patch_embed and merger of each family, whose weights ``readers.towers`` counts.
    """
    of_layers = int(layer_parameters(tower_model(tower), tower_kind(tower)).total) * tower.layers
    inner = tower.hidden * tower.merged
    rows = array(microbatch_sequences) * tower.image_ratio * sequence_tokens
    columns = max(1.0, (tower.parameters - of_layers) / inner)
    return Product(
        name="projection of images", part="side", rows=rows, columns=array(columns), inner=array(inner), groups=array(1.0),
        module="", low_precision=False,
    )


def _shape(tower: Tower, microbatch_sequences: Number, sequence_tokens: float, patches: float) -> WorkShape:
    """The images (or windows) of a micro-batch as sequences of their patches, whole on every rank."""
    images = array(microbatch_sequences) * sequence_patches(tower, sequence_tokens) / patches
    return work_shape(microbatch_sequences=images, sequence_tokens=patches)


def tower_flops(tower: Tower, sequence_tokens: int) -> float:
    """Forward FLOPs of the images of one sequence.

        sum over layers 2 m n k + 4 a^2 H d images;   projection 2 r s (P - L P_layer)

    Symbols: a patches that look at each other; H d heads and their width; r s tokens of images; P, P_layer weights.
    Units:   FLOP.
    Source:  ``perf.flops.layer_flops``, attention over the whole square: patches look both ways.
    """
    kind, total = tower_kind(tower), 0.0
    attention = kind.attention
    assert attention is not None
    for layers, patches in looks(tower, sequence_tokens):
        shape = _shape(tower, 1.0, sequence_tokens, patches)
        products = sum(float(product.flops) for product in layer_products(kind, tower.hidden, shape))
        pairs = core_pairs(attention, patches, None)
        core = attention_flops(pairs, shape.sequences * attention.num_heads, attention.head_dim, attention.head_dim)
        total += layers * (products + float(core))
    return total + float(projected(tower, 1.0, sequence_tokens).flops)


def tower_costs(tower: Tower, case: Case, microbatch_sequences: Number, devices_per_stage: Array) -> TowerCosts:
    """Seconds and kept bytes of a tower for the images of one micro-batch.

        frozen  F, nothing kept
        trained F and B of every layer, and what each of them keeps: as a layer of the model, and (j + n) a h;
                its projection p r s b c

    Symbols: j ``JOINED_BYTES``, n ``NORM_BYTES``, p ``MERGER_BYTES``; a h patches by channels; r s b tokens, c columns of
             ``projected``.
    Shapes:  the micro-batches'.
    Units:   s and bytes.
    Holds:   every tensor and context rank of the first stage runs all of it, in the base data type and without recomputation
             (Megatron-Bridge gives its stage a tower of transformers as it is); its gradients are reduced with the stage's.
    Source:  ``perf.layer``, ``perf.activations``; hooks on saved tensors of transformers' towers (tests/perf/test_tower.py);
             NVIDIA-NeMo/Megatron-Bridge models/qwen_vl/modeling_qwen25_vl.py.
    """
    precision = replace(
        case.training.precision, gemm_dtype=case.training.precision.base_dtype, saved_input_bytes=2.0, cast_passes=0.0
    )
    training = replace(case.training, precision=precision, task="sft", lora=None)  # adapters stand in the model alone
    model, tokens = tower_model(tower), float(case.batch.sequence_tokens)
    alone = layer_groups(1, 1, 1, 1, devices_per_stage, 1, case.cluster)
    forward = backward = seconds()
    saved = transient = array(0.0)
    for layers, patches in looks(tower, tokens):
        batch = replace(
            case.batch, sequence_tokens=max(1, round(patches)), mean_square_document_tokens=None, packing=None
        )
        own = replace(case, model=model, batch=batch, training=training)
        shape = _shape(tower, microbatch_sequences, tokens, patches)
        time = layer_time(model.kinds[0], own, shape, alone, overlap=IDLE, context_kind="all-gather")
        forward, backward = forward.plus(time.forward.times(layers)), backward.plus(time.backward.times(layers))
        kept = saved_bytes(
            model.kinds[0], tower.hidden, patches, shape, implementation=case.implementation, precision=precision
        )
        kept = kept + (JOINED_BYTES + (NORM_BYTES if tower.gated else 0.0)) * shape.tokens * tower.hidden
        saved, transient = saved + layers * kept, np.maximum(transient, kept)
    last = projected(tower, microbatch_sequences, tokens)
    own = replace(case, training=training)
    forward = forward.plus(seconds(compute=product_s(last, own, "forward")))
    if not tower.trained:
        return TowerCosts(forward=forward, backward=seconds(), saved_bytes=array(0.0), transient_bytes=transient)
    behind = product_s(last, own, "input") + product_s(last, own, "weight") + accumulation_s(last, own)
    backward = backward.plus(seconds(compute=behind))
    saved = saved + MERGER_BYTES * last.rows * last.columns
    return TowerCosts(forward=forward, backward=backward, saved_bytes=saved, transient_bytes=transient)
