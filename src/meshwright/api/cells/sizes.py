"""Models of a size: the shape that a family is known to have at it, or one by its rule (``catalog/data/families.yaml``)."""

from __future__ import annotations

import re
from functools import cache
from math import log
from typing import TYPE_CHECKING

from meshwright.catalog.families import Family, Shape, family
from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.errors import fault
from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,3})?)([mbt])")
_FACTOR = {"m": 1e6, "b": 1e9, "t": 1e12}
LEAST, MOST = 100e6, 20e12
"""Parameters of a model of a size: fewer train nowhere, and nobody has more."""
MOST_HIDDEN = 131_072


def size(word: str) -> str:
    """``8B`` as ``8b``, where it is a size that a model may have.

    Errors:  ``InputError`` for anything else.
    """
    tight = word.strip().lower()
    found = _SIZE.fullmatch(tight)
    if found is None:
        raise fault("size.form", "{word!r} is no size: write it as in 700m, 8b or 1.5t", word=word[:40])
    if not LEAST <= parameters_of(tight) <= MOST:
        raise fault("size.range", "{word} is not within 100m and 20t", word=word)
    return tight


def parameters_of(word: str) -> float:
    """The parameters that a size says."""
    return float(word[:-1]) * _FACTOR[word[-1]]


@cache
def model_of(word: str, name: str) -> Model:
    """The model of a size in a family.

    Holds:   a known size has its own shape; any other the one that the rule of the family says.
    Errors:  ``InputError`` where it says none.
    """
    own, wanted = family(name), parameters_of(word)
    tied = wanted < own.tied_below
    if word in own.known:
        return _built(word, name, own, own.known[word], tied=tied)

    def away(model: Model) -> float:
        return abs(log(float(total_parameters(model)) / wanted))

    every: list[Model] = []
    for multiple in own.hidden_multiples:
        found = [_built(word, name, own, shape, tied=tied) for shape in _shapes(own, multiple, wanted, tied=tied)]
        if near := [each for each in found if away(each) <= log(1 + own.within_ratio)]:
            return min(near, key=lambda each: abs(log(each.hidden / each.num_layers / own.aspect)))
        every += found
    if not every:
        raise fault("size.none", "no shape of the family {name} has about {word} parameters", name=name, word=word)
    return min(every, key=away)


def _shapes(own: Family, multiple: int, wanted: float, *, tied: bool) -> Iterator[Shape]:
    """Shapes by the rule, of each hidden width the one with the parameters nearest to what is wanted."""
    step = own.layers_multiple
    for hidden in range(multiple, MOST_HIDDEN + 1, multiple):
        heads = hidden // own.head_dim
        if hidden % own.head_dim or heads % (own.key_value_heads or 1):
            continue
        width = -(-round(hidden * own.width_per_hidden) // own.width_multiple) * own.width_multiple
        one, two = (
            float(total_parameters(_built("", "", own, Shape(layers=layers, hidden=hidden, heads=heads, width=width), tied=tied)))
            for layers in (step, 2 * step)
        )
        layers = step * max(1, round((wanted - (2 * one - two)) / (two - one)))
        if own.aspect / own.aspect_factor <= hidden / layers <= own.aspect * own.aspect_factor:
            yield Shape(layers=layers, hidden=hidden, heads=heads, width=width)


def _built(word: str, name: str, own: Family, shape: Shape, *, tied: bool) -> Model:
    attention = Attention(
        num_heads=shape.heads, num_key_value_heads=own.key_value_heads or shape.heads, head_dim=shape.hidden // shape.heads,
    )
    return Model(
        name=f"{name}-{word}", hidden=shape.hidden, vocabulary=own.vocabulary,
        kinds=(LayerKind(attention=attention, feed_forward=Mlp(width=shape.width)),), pattern=(0,) * shape.layers,
        tied_embeddings=tied, source=own.source,
    )
