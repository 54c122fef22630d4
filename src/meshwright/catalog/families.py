"""Families of models that differ in their size alone: ``data/families.yaml``. What a size comes to is ``api.cells.sizes``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from meshwright.catalog.sheets import data_path
from meshwright.errors import fault, nearest
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import structure_shipped
from meshwright.value import Value

FILE = "families.yaml"


class Shape(Value, frozen=True, kw_only=True):
    """Widths and counts of one size."""

    layers: int
    hidden: int
    heads: int
    width: int
    """Of the feed-forward block."""


class Family(Value, frozen=True, kw_only=True):
    """What models of a family share, the shapes that are known, and the rule for other sizes."""

    says: str
    source: str
    vocabulary: int
    tied_below: float
    """Parameters below which the output layer shares the weights of the embedding."""
    head_dim: int
    key_value_heads: int | None
    """None: as many as query heads."""
    aspect: float
    """Hidden width over layers that a shape by the rule comes nearest to."""
    aspect_factor: float
    """How many times more or less it may be."""
    hidden_multiples: tuple[int, ...]
    layers_multiple: int
    within_ratio: float
    """How far the parameters of a shape may be from the size before another multiple is tried."""
    width_per_hidden: float
    width_multiple: int
    known: Mapping[str, Shape]
    """By the size that people call them, as ``8b``."""


class _Document(Value, frozen=True, kw_only=True):
    families: Mapping[str, Family]


@cache
def families() -> Mapping[str, Family]:
    """All families by their names."""
    return structure_shipped(load_shipped(data_path(FILE)), _Document, where=FILE).families


def family(name: str) -> Family:
    """A family by its name.

    Errors:  ``InputError`` that names the known ones.
    """
    known = families()
    if name not in known:
        raise fault("family.unknown", "unknown family {name!r}{hint}", name=name, hint=nearest(name, known))
    return known[name]
