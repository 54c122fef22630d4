"""Families of Hugging Face configurations, one file per idea; each function turns fields into a model."""

from meshwright.readers.architectures import (
    classics,
    convolved,
    current,
    dense,
    experts,
    hybrids,
    late_experts,
    latent,
    latest,
    layered,
    newest,
    older,
    recent_dense,
    recent_experts,
    sparse,
    states,
    variants,
)
from meshwright.readers.architectures.parts import architectures

__all__ = [
    "architectures", "classics", "convolved", "current", "dense", "experts", "hybrids", "late_experts", "latent", "latest",
    "layered", "newest", "older", "recent_dense", "recent_experts", "sparse", "states", "variants",
]
