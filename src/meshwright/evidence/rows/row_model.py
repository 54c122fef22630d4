"""The model that a row describes, from its own columns and what its source means by blank ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog import load_model, models
from meshwright.catalog.model_sheet import model_names
from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.evidence.rows.columns import shown
from meshwright.evidence.rows.refused import UnreadableError
from meshwright.perf.operators import is_plain
from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from meshwright.domain.model import PositionEncoding
    from meshwright.evidence.rows.row import Row, Shape

ARCHITECTURE = {
    "hidden": "hidden", "n_layers": "num_layers", "n_heads": "num_heads", "ffn_hidden": "ffn_width", "vocab": "vocabulary",
}
"""Columns without which nothing can be built -> fields."""


def model_of(row: Row) -> Model:
    """The model of the columns, or the catalogue's where they are blank and it knows the name."""
    shape, said = completed(row), row.said
    blank = [column for column, name in ARCHITECTURE.items() if getattr(shape, name) is None]
    if blank:
        name = model_names().find(row.model)
        if name is None:
            raise UnreadableError("architecture is blank", f"{', '.join(blank)}; {shown(row.model)} is not in the catalogue")
        return load_model(name)
    if known := beyond_columns(row, shape):
        return replace(known, num_mtp_layers=said.mtp_layers)
    model = _built(row.model, shape, said.latent_of, said.position, said.tied_embeddings, row.sequence_tokens or 1)
    return replace(model, num_mtp_layers=said.mtp_layers)


def beyond_columns(row: Row, shape: Shape) -> Model | None:
    """The catalogue's model of the row's name, where it has what no column says: linear mixers, sparse or gated attention.

    Errors: ``UnreadableError`` where a column says another size than the model has.
    """
    name = model_names().find(row.model)
    if name is None or not is_beyond_columns(known := load_model(name)):
        return None
    experts = known.experts
    pairs = {
        "n_layers": (shape.num_layers, known.num_layers), "hidden": (shape.hidden, known.hidden),
        "vocab": (shape.vocabulary, known.vocabulary), "n_heads": (shape.num_heads, known.attention.num_heads),
        "n_experts": (shape.num_experts or None, experts and experts.num_experts),
        "top_k": (shape.experts_per_token or None, experts and experts.experts_per_token),
    }
    for column, (told, meant) in pairs.items():
        if told is not None and told != meant:
            raise UnreadableError("cells contradict each other", f"{column} {told}, but {known.name} has {meant}")
    return known


def is_beyond_columns(model: Model) -> bool:
    """Whether a model has more than columns can say."""
    return bool(model.mixers) or any(not is_plain(each) or each.selected_tokens for each in model.attentions)


def completed(row: Row) -> Shape:
    """The shape with the blanks filled whose value its source leaves to a documented default, and without idle layers."""
    shape, said, layers = row.shape, row.said, row.shape.num_layers
    if said.idle_layers:
        if len({each for each in said.idle_layers if each < (layers or 0)}) < len(said.idle_layers):
            raise UnreadableError("cells contradict each other", f"idle layers {said.idle_layers} of n_layers {layers}")
        layers = (layers or 0) - len(said.idle_layers)
    width = shape.hidden * said.ffn_per_hidden if shape.hidden and said.ffn_per_hidden else None
    heads, groups, head_dim = shape.num_heads, shape.num_key_value_heads, shape.head_dim
    if said.num_heads:
        heads, groups, head_dim = said.num_heads, said.num_heads, None
    return replace(
        shape, num_layers=layers, ffn_width=shape.ffn_width or width, vocabulary=shape.vocabulary or said.vocabulary,
        gated=shape.gated if said.gated is None else said.gated, num_heads=heads, num_key_value_heads=groups, head_dim=head_dim,
        num_dense_layers=shape.num_dense_layers if said.num_dense_layers is None else said.num_dense_layers,
    )


@cache
def _built(name: str, shape: Shape, latent_of: str, told: str, ties: bool | None, sequence_tokens: int) -> Model:
    hidden, layers, width = shape.hidden or 1, shape.num_layers or 1, shape.ffn_width or 1
    attention, gated = _attention(shape, hidden, latent_of), bool(shape.gated)
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
    position: PositionEncoding = "alibi" if told == "alibi" else "learned" if plain else "rope"
    model = Model(
        name=name, hidden=hidden, vocabulary=shape.vocabulary or 1, kinds=kinds, pattern=pattern,
        norm="layer" if plain else "rms", position=position, position_table=sequence_tokens if position == "learned" else 0,
    )
    if known := told_by_name(model):
        return known
    tied = replace(model, tied_embeddings=True)
    if ties is not None or not shape.parameters_billions:
        return tied if ties else model
    wanted = shape.parameters_billions * 1e9
    return min((model, tied), key=lambda each: abs(float(total_parameters(each)) - wanted))


def _attention(shape: Shape, hidden: int, latent_of: str) -> Attention:
    heads = shape.num_heads or 1
    if latent_of and (latent := load_model(latent_of).attention.latent):
        return Attention(num_heads=heads, num_key_value_heads=heads, head_dim=latent.nope_dim + latent.rope_dim, latent=latent)
    bias = not shape.gated and shape.attention == "mha"
    return Attention(
        num_heads=heads, num_key_value_heads=shape.num_key_value_heads or heads,
        head_dim=int(shape.head_dim) if shape.head_dim else hidden // heads,
        query_bias=bias, key_value_bias=bias, output_bias=bias,
    )


def told_by_name(model: Model) -> Model | None:
    """The catalogue's model of the same name and shapes, if some of its layers attend to a window or norm their queries and keys;
    with the row's vocabulary."""
    if model.name not in models():
        return None
    known = load_model(model.name)

    def shape(each: Model) -> tuple[object, ...]:
        parts = {
            (kind.attention and (kind.attention.num_heads, kind.attention.num_key_value_heads, kind.attention.head_dim),
             kind.feed_forward.num_inputs,
             kind.experts and (kind.experts.num_experts, kind.experts.experts_per_token, kind.experts.expert_width))
            for kind in each.kinds
        }
        return each.hidden, each.num_layers, parts

    more = any(each.window_tokens or each.query_key_norm != "none" for each in known.attentions)
    return replace(known, vocabulary=model.vocabulary) if more and shape(known) == shape(model) else None
