"""Norms by the model's word for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from meshwright.domain.model import Model

EPSILON = 1e-5


def norm(model: Model, width: int, *, weight: bool = True) -> nn.Module:
    """A norm over the last dimension; ``none`` normalises without weights."""
    if model.norm == "rms":
        return nn.RMSNorm(width, eps=EPSILON, elementwise_affine=weight)
    affine = weight and model.norm != "none"
    return nn.LayerNorm(width, eps=EPSILON, elementwise_affine=affine, bias=model.norm == "layer")
