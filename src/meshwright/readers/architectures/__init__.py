"""Families of Hugging Face configurations, one file per idea; each function turns fields into a model."""

from meshwright.readers.architectures import (
    current,
    dense,
    experts,
    hybrids,
    late_experts,
    latent,
    latest,
    layered,
    older,
    recent_dense,
    recent_experts,
    sparse,
)
from meshwright.readers.architectures.parts import architectures

__all__ = [
    "architectures", "current", "dense", "experts", "hybrids", "late_experts", "latent", "latest", "layered", "older",
    "recent_dense", "recent_experts", "sparse",
]
