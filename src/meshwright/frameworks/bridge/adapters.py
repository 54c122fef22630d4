"""Modules of Megatron-Bridge that carry adapters, and the projections that they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.domain.training import Lora

DENSE_BLOCKS = ("*.mlp.linear_fc1", "*.mlp.linear_fc2")
"""The feed-forward blocks of a mixture's dense layers: a bare name would mean those of experts, too, which carry none as predicted.

Source: Megatron-Bridge peft/utils.py wildcard_match, on ``decoder.layers.0.mlp.linear_fc1``; one without a match is a warning.
"""
PROJECTIONS = {
    "linear_qkv": ("query", "key", "value"), "linear_q_proj": ("query",), "linear_q_down_proj": ("query",),
    "linear_q_up_proj": ("query",), "linear_kv_down_proj": ("key", "value"), "linear_kv_up_proj": ("key", "value"),
    "linear_proj": ("output",), "linear_fc1": ("mlp",), "linear_fc2": ("mlp",), **dict.fromkeys(DENSE_BLOCKS, ("mlp",)),
}
"""Module, as ``peft.target_modules`` names it -> the projections that it is."""


def modules_of(lora: Lora, model: Model) -> list[str]:
    """The modules that carry a plan's adapters: of latent attention its own, of a mixture only dense blocks."""
    latent = model.attention.latent
    if latent is None:
        attention: tuple[str, ...] = ("linear_qkv",)
    else:
        queries = ("linear_q_down_proj", "linear_q_up_proj") if latent.query_rank else ("linear_q_proj",)
        attention = (*queries, "linear_kv_down_proj", "linear_kv_up_proj")
    blocks = DENSE_BLOCKS if model.is_moe else ("linear_fc1", "linear_fc2")
    wanted = set(lora.targets)
    return [module for module in (*attention, "linear_proj", *blocks) if wanted & set(PROJECTIONS[module])]
