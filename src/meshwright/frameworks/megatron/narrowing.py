"""What Megatron-LM's features are for a model: a search among what every rule refuses finds nothing of what it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.mixers import GatedDelta
from meshwright.frameworks.megatron.hybrid import PIPES, RECOMPUTES, is_hybrid
from meshwright.frameworks.megatron.sparse import GATHERED, is_sparse

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features

DELTA_CONTEXT = 17
"""First minor version that cuts the sequences of gated delta nets."""


def narrowed(features: Features, minor: int, case: Case, *, chunks: bool = True) -> Features:
    """What is left for a case of what a release can run; ``chunks``: whether hybrids have virtual stages where the core has."""
    model = case.model
    if is_sparse(model):
        features = replace(features, context_kinds=(GATHERED,))
    if minor < DELTA_CONTEXT and any(isinstance(mixer, GatedDelta) for mixer in model.mixers):
        features = replace(features, context_parallel=False)
    if not is_hybrid(model):
        return features
    if minor < PIPES or not chunks:
        features = replace(features, schedules=tuple(each for each in features.schedules if each != "interleaved"))
    if minor < RECOMPUTES:
        features = replace(features, recompute=tuple(each for each in features.recompute if each != "full"))
    return features
