"""Families of Hugging Face configurations, one file per idea; each function turns fields into a model."""

from meshwright.readers.architectures import dense, experts, latent, older, recent_dense, recent_experts
from meshwright.readers.architectures.parts import architectures

__all__ = ["architectures", "dense", "experts", "latent", "older", "recent_dense", "recent_experts"]
