"""A bound on what a described model may add up to, so that later arithmetic on counts stays exact in 64 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.attention import NO_ATTENTION
from meshwright.domain.model import Mlp
from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.domain.model import LayerKind, Model

MAX_SIZE = 10**9
"""Largest width or count that a file may state."""
MAX_LAYERS = 10_000
MAX_NUMBER = 1e15
"""Largest fraction, such as a rotary base, that a file may state."""
MAX_PARAMETERS = 10**16


def refuse_giants(model: Model, where: str) -> Model:
    """The model, or an ``InputError`` where its sizes multiply to more than any model has."""
    tables = model.hidden * (model.vocabulary + model.position_table) + sum(each.rows * each.width for each in model.lookups)
    size = max(tables, max(_size(model, kind) for kind in model.kinds) * (model.num_layers + len(model.mtp_kinds)))
    size = max(size, *(tower.parameters for tower in (model.tower, model.vision) if tower is not None), 0)
    if size > MAX_PARAMETERS:
        raise fault("model.giant", "its sizes multiply to {size:.0e} parameters; {limit:.0e} is the limit",
                    path=where, size=size, limit=MAX_PARAMETERS)
    return model


def _size(model: Model, kind: LayerKind) -> int:
    """Parameters of a layer from above, give or take biases and norms."""
    attention, block = kind.attention or NO_ATTENTION, kind.feed_forward
    latent = attention.latent
    ranks = (latent.query_rank or 0) + latent.key_value_rank if latent else 0
    width = attention.query_width + attention.key_width + attention.value_width + attention.output_width
    if isinstance(block, Mlp):
        inner = 3 * block.width
    else:
        inner = 3 * (block.num_experts * block.expert_width + block.shared_width) + block.num_experts
    mixed = 0
    if kind.mixer is not None:
        mixer = kind.mixer
        mixed = mixer.convolved_width + mixer.gate_width + mixer.scalar_width + mixer.value_width + mixer.state_elements
    sides = sum(side.inputs * side.outputs + side.weights for side in kind.sides)
    return (model.hidden + ranks) * (width + ranks + inner + mixed) + sides
