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
from meshwright.evidence.rows.table import whole
from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from meshwright.domain.model import PositionEncoding
    from meshwright.evidence.rows.table import Row

ARCHITECTURE = ("hidden", "n_layers", "n_heads", "ffn_hidden", "vocab")
BLOOM_HEADS = "64"
"""Heads where the column cannot hold: "all NHEADS=64 (above too)", bigscience train/tr11-176B-ml/chronicles-prequel.md."""
DEEPSEEK = LatentAttention(query_rank=1536, key_value_rank=512, nope_dim=128, rope_dim=64, value_dim=128)


def model_of(row: Row) -> Model:
    """The model of the columns, or the catalogue's where they are blank and it knows the name."""
    blank = [key for key in ARCHITECTURE if not row[key]]
    if blank:
        name = model_names().find(row["model"])
        if name is None:
            raise UnreadableError("architecture is blank", f"{', '.join(blank)}; {shown(row['model'])} is not in the catalogue")
        return load_model(name)
    keys = (
        "model", "hidden", "vocab", "n_layers", "n_heads", "n_kv_heads", "head_dim", "ffn_hidden", "gated_mlp", "attention",
        "n_experts", "top_k", "moe_ffn_hidden", "n_shared_experts", "n_dense_layers", "n_params_B", "seq",
        "tied",
    )
    return replace(_built(tuple((key, row[key]) for key in keys)), num_mtp_layers=nvidia.said(row).mtp_layers)


@cache
def _built(columns: tuple[tuple[str, str], ...]) -> Model:
    row = dict(columns)
    attention = _attention(row)
    gated = row["gated_mlp"] == "1"
    plain = not gated and row["attention"] == "mha"
    dense = LayerKind(attention=attention, feed_forward=Mlp(width=whole(row, "ffn_hidden"), gated=gated, bias=plain))
    layers = whole(row, "n_layers")
    kinds: tuple[LayerKind, ...] = (dense,)
    pattern = (0,) * layers
    if row["n_experts"]:
        width = whole(row, "moe_ffn_hidden", whole(row, "ffn_hidden"))
        experts = MixtureOfExperts(
            num_experts=whole(row, "n_experts"), experts_per_token=whole(row, "top_k"), expert_width=width, gated=gated,
            shared_width=whole(row, "n_shared_experts", 0) * width,
        )
        mixed, first = LayerKind(attention=attention, feed_forward=experts), max(0, whole(row, "n_dense_layers", 0))
        kinds = (dense, mixed) if first else (mixed,)
        pattern = (0,) * first + (len(kinds) - 1,) * (layers - first)
    position: PositionEncoding = "alibi" if row["model"].startswith("bloom") else "learned" if plain else "rope"
    model = Model(
        name=row["model"], hidden=whole(row, "hidden"), vocabulary=whole(row, "vocab"), kinds=kinds, pattern=pattern,
        norm="layer" if plain else "rms", position=position, position_table=whole(row, "seq") if position == "learned" else 0,
    )
    windowed = nvidia.windowed(model)
    if windowed:
        return windowed
    tied = replace(model, tied_embeddings=True)
    if row["tied"] or not row["n_params_B"]:
        return tied if row["tied"] == "1" else model
    wanted = float(row["n_params_B"]) * 1e9
    return min((model, tied), key=lambda each: abs(float(total_parameters(each)) - wanted))


def _attention(row: Row) -> Attention:
    if row["head_dim"] and float(row["head_dim"]) % 1.0:
        row = row | {"n_heads": BLOOM_HEADS, "n_kv_heads": BLOOM_HEADS, "head_dim": ""}
    heads = whole(row, "n_heads")
    bias = row["gated_mlp"] != "1" and row["attention"] == "mha"
    if row["attention"] == "mla":
        width = DEEPSEEK.nope_dim + DEEPSEEK.rope_dim
        return Attention(num_heads=heads, num_key_value_heads=heads, head_dim=width, latent=DEEPSEEK)
    return Attention(
        num_heads=heads, num_key_value_heads=whole(row, "n_kv_heads", heads),
        head_dim=whole(row, "head_dim", whole(row, "hidden") // heads), query_bias=bias, key_value_bias=bias, output_bias=bias,
    )
