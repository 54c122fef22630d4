"""The model that a row describes, from its own columns."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog import load_model
from meshwright.catalog.model_sheet import model_names
from meshwright.domain.model import Attention, LatentAttention, LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.evidence.rows import nvidia
from meshwright.evidence.rows.columns import shown
from meshwright.evidence.rows.refused import UnreadableError
from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from meshwright.domain.model import PositionEncoding
    from meshwright.evidence.rows.row import Row, Shape

ARCHITECTURE = ("hidden", "n_layers", "n_heads", "ffn_hidden", "vocab")
BLOOM_HEADS = 64
"""Heads where the column cannot hold: "all NHEADS=64 (above too)", bigscience train/tr11-176B-ml/chronicles-prequel.md."""
DEEPSEEK = LatentAttention(query_rank=1536, key_value_rank=512, nope_dim=128, rope_dim=64, value_dim=128)


def model_of(row: Row) -> Model:
    """The model of the columns, or the catalogue's where they are blank and it knows the name."""
    blank = [key for key in ARCHITECTURE if row.cell(key) is None]
    if blank:
        name = model_names().find(row.model)
        if name is None:
            raise UnreadableError("architecture is blank", f"{', '.join(blank)}; {shown(row.model)} is not in the catalogue")
        return load_model(name)
    return replace(_built(row.model, row.shape, row.sequence_tokens or 1), num_mtp_layers=nvidia.said(row).mtp_layers)


@cache
def _built(name: str, shape: Shape, sequence_tokens: int) -> Model:
    hidden, layers, width = shape.hidden or 1, shape.num_layers or 1, shape.ffn_width or 1
    attention, gated = _attention(shape, hidden), bool(shape.gated)
    plain = not gated and shape.attention == "mha"
    dense = LayerKind(attention=attention, feed_forward=Mlp(width=width, gated=gated, bias=plain))
    kinds: tuple[LayerKind, ...] = (dense,)
    pattern = (0,) * layers
    if shape.num_experts:
        expert_width = shape.expert_width or width
        experts = MixtureOfExperts(
            num_experts=shape.num_experts, experts_per_token=shape.experts_per_token or 1, expert_width=expert_width, gated=gated,
            shared_width=(shape.num_shared_experts or 0) * expert_width,
        )
        mixed, first = LayerKind(attention=attention, feed_forward=experts), max(0, shape.num_dense_layers or 0)
        kinds = (dense, mixed) if first else (mixed,)
        pattern = (0,) * first + (len(kinds) - 1,) * (layers - first)
    position: PositionEncoding = "alibi" if name.startswith("bloom") else "learned" if plain else "rope"
    model = Model(
        name=name, hidden=hidden, vocabulary=shape.vocabulary or 1, kinds=kinds, pattern=pattern,
        norm="layer" if plain else "rms", position=position, position_table=sequence_tokens if position == "learned" else 0,
    )
    windowed = nvidia.windowed(model)
    if windowed:
        return windowed
    tied = replace(model, tied_embeddings=True)
    if shape.tied_embeddings is not None or not shape.parameters_billions:
        return tied if shape.tied_embeddings else model
    wanted = shape.parameters_billions * 1e9
    return min((model, tied), key=lambda each: abs(float(total_parameters(each)) - wanted))


def _attention(shape: Shape, hidden: int) -> Attention:
    heads, groups, head_dim = shape.num_heads or 1, shape.num_key_value_heads, shape.head_dim
    if head_dim and head_dim % 1.0:
        heads, groups, head_dim = BLOOM_HEADS, BLOOM_HEADS, None
    if shape.attention == "mla":
        width = DEEPSEEK.nope_dim + DEEPSEEK.rope_dim
        return Attention(num_heads=heads, num_key_value_heads=heads, head_dim=width, latent=DEEPSEEK)
    bias = not shape.gated and shape.attention == "mha"
    return Attention(
        num_heads=heads, num_key_value_heads=groups or heads, head_dim=int(head_dim) if head_dim else hidden // heads,
        query_bias=bias, key_value_bias=bias, output_bias=bias,
    )
