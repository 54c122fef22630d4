"""Stacks whose layers are of several kinds: the words and letters by which configurations name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.model import LayerKind, Model
from meshwright.errors import did_you_mean
from meshwright.readers.architectures.parts import layer_pattern
from meshwright.text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.model import NormKind, PositionEncoding
    from meshwright.readers.fields import Fields

ATTENTION, LINEAR, DENSE, EXPERTS = "attention", "linear", "dense", "experts"
KINDS = {
    "full_attention": ATTENTION, "attention": ATTENTION, "linear_attention": LINEAR, "mamba": LINEAR, "mamba2": LINEAR,
    "recurrent": LINEAR, "conv": LINEAR, "mlp": DENSE, "moe": EXPERTS,
}
"""Words of ``layer_types`` and ``layers_block_type``, those of transformers before 5 among them."""
LETTERS = {"M": LINEAR, "*": ATTENTION, "-": DENSE, "E": EXPERTS}
"""Letters of Megatron's hybrid pattern."""


def stack_words(fields: Fields, name: str, count: int | None, words: Mapping[str, str]) -> list[str] | None:
    """What each layer is, from a list of words or a text of letters; None where it is absent or faulty.

    ``count``: how many layers there must be; None: the list itself says so.
    """
    value = fields.data.get(name)
    if value is None:
        return None
    listed = list(value) if isinstance(value, (str, list)) else None
    if listed is None or not all(isinstance(word, str) for word in listed):
        fields.fault(name, "config.words", "{value} is not a list of words", value=shown(value))
        return None
    odd = next((word for word in listed if word not in words), None)
    if odd is not None:
        fields.fault(
            name, "config.layer-kind",
            "layer kind {odd} is not described{hint}; known: {known}. A model of other layers is described in YAML by what they "
            "mix tokens with (attention, mixer) and their block: docs/adding-a-model.md, Layers that differ otherwise",
            odd=shown(odd), hint=did_you_mean(odd, words), known=", ".join(words),
        )
        return None
    if count is not None and len(listed) != count:
        fields.fault(name, "config.length", "has {length} entries for {count} layers", length=len(listed), count=count)
        return None
    return [words[word] for word in listed]


def of_layers(
    fields: Fields,
    layers: Sequence[LayerKind],
    *,
    hidden: int,
    norm: NormKind = "rms",
    position: PositionEncoding = "rope",
    tied: bool = False,
    mtp_layers: int = 0,
    mtp: Sequence[LayerKind] = (),
) -> Model:
    """A model from its layers in order; ``mtp``: layers of one multi-token-prediction layer where they are not like the last."""
    kinds, pattern = layer_pattern([*layers, *mtp])
    return Model(
        name="",
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        kinds=kinds,
        pattern=pattern[: len(layers)],
        norm=norm,
        position=position,
        num_mtp_layers=mtp_layers,
        mtp_pattern=pattern[len(layers) :],
        tied_embeddings=fields.flag("tie_word_embeddings", default=tied),
        max_sequence=fields.optional_size("max_position_embeddings", "model_max_length"),
    )


def mtp_count(fields: Fields) -> int:
    """Multi-token-prediction layers, under the names that families give them."""
    return fields.count("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", default=0, minimum=0)
