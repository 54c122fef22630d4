"""Rotary positions of a configuration: their base and the share of a head that they turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.readers.architectures.parts import architectures

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.readers.fields import Fields

_BASES = {
    "mixtral": 1e6, "phimoe": 1e6, "gpt_oss": 150_000.0, "gemma3_text": 1e6, "llama4_text": 500_000.0, "olmo3": 500_000.0,
    "smollm3": 2e6, "ernie4_5": 500_000.0, "ernie4_5_moe": 500_000.0, "minimax_m2": 5e6, "hy_v3": 11_158_840.0,
    "solar_open": 1e6, "ministral3": 1e6, "cohere": 500_000.0, "bitnet": 500_000.0, "flex_olmo": 500_000.0, "zaya": 5e6,
    "muse_spark_text": 500_000.0,
}
"""Bases that the classes of transformers take where a file names none, and that are not 10000; by model type."""
_RATIOS = {
    "zaya": 0.5, "phi": 0.5, "persimmon": 0.5, "stablelm": 0.25,
    "gpt_neox": 0.25, "nemotron": 0.5, "glm4_moe": 0.5, "chatglm": 0.5, "glm4": 0.5, "minimax_m2": 0.5, "bailing_moe_v2": 0.5,
}
"""Shares that a file need not name, by model type; ChatGLM's is written in its code alone."""


def with_rotary(model: Model, fields: Fields, key: str) -> Model:
    """The model with base and share: as keys of the file, or in ``rope_parameters`` (by kind of layer or for all)."""
    if model.position != "rope":
        return model
    base, ratio = (_default(key, table, usual) for table, usual in ((_BASES, 10_000.0), (_RATIOS, 1.0)))
    inner = fields.inner("rope_parameters")
    for kind in ("full_attention", "hybrid", "sliding_attention"):
        if inner.has(kind):
            inner = inner.inner(kind)
            break
    base = fields.number("rope_theta", "rotary_emb_base", default=inner.number("rope_theta", default=base))
    share = inner.number("partial_rotary_factor", default=ratio, maximum=1.0)
    ratio = fields.number("partial_rotary_factor", "rotary_pct", default=share, maximum=1.0)
    if architectures[key] is architectures["chatglm"]:
        base *= fields.number("rope_ratio", default=1.0)
    if architectures[key] is architectures["gptj"]:
        ratio = min(1.0, fields.size("rotary_dim", default=64) / model.attention.head_dim)
    return replace(model, rotary_base=base, rotary_ratio=1.0 if model.attention.latent else ratio)


def _default(key: str, table: dict[str, float], usual: float) -> float:
    """The entry of the model type that is read like this architecture."""
    return next((value for name, value in table.items() if architectures[name] is architectures[key]), usual)
