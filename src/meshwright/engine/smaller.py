"""A model cut down so that a machine at hand can run it: fewer layers, narrower, fewer experts, fewer words. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.catalog.shrinking import shrink
from meshwright.domain.mixers import GatedDelta, KimiDelta, Lightning, Mamba2
from meshwright.domain.model import Mlp
from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.domain.attention import Attention
    from meshwright.domain.mixers import Mixer
    from meshwright.domain.model import LayerKind, Model

GRAIN = 16
"""Widths are multiples of it."""


def smaller(
    model: Model, *, layers: int | None = None, hidden: int | None = None, experts: int | None = None, vocabulary: int | None = None
) -> Model:
    """The model with what is given replaced. Multi-token prediction is dropped, for the reference step has none.

    ``hidden``: widths and numbers of heads shrink in proportion, heads keep their width and their grouping.
    ``experts``: of every mixture; a token meets at most so many.

    Errors:  InputError where a size is above the model's own or below 1 (of hidden: 16), and experts where there are none.
    """
    if experts is not None and not model.is_moe:
        raise fault("engine.no-experts", "experts={size}: {model} has no experts", size=experts, model=model.name)
    for name, size, most, least in (
        ("hidden", hidden, model.hidden, GRAIN), ("vocabulary", vocabulary, model.vocabulary, 1),
        ("experts", experts, model.experts.num_experts if model.experts else 0, 1),
    ):
        if size is not None and not least <= size <= most:
            raise fault("engine.smaller", "{name}={size} is not within {least}..{most} of {model}",
                        name=name, size=size, least=least, most=most, model=model.name)
    result = replace(shrink(model, layers or model.num_layers), num_mtp_layers=0)
    if hidden is not None:
        ratio = hidden / model.hidden
        kinds = tuple(_narrower(kind, ratio) for kind in result.kinds)
        width = model.embedding_width and _width(model.embedding_width, ratio)
        result = replace(result, hidden=hidden, kinds=kinds, embedding_width=width)
    if experts is not None:
        result = replace(result, kinds=tuple(_fewer(kind, experts) for kind in result.kinds))
    return result if vocabulary is None else replace(result, vocabulary=vocabulary)


def _width(width: int, ratio: float) -> int:
    return max(GRAIN, round(width * ratio / GRAIN) * GRAIN) if width else 0


def _narrower(kind: LayerKind, ratio: float) -> LayerKind:
    block = kind.feed_forward
    if isinstance(block, Mlp):
        block = replace(block, width=_width(block.width, ratio))
    else:
        block = replace(block, expert_width=_width(block.expert_width, ratio), shared_width=_width(block.shared_width, ratio))
    attention, mixer = kind.attention, kind.mixer
    fewer, narrower = attention and _fewer_heads(attention, ratio), mixer and _narrower_mixer(mixer, ratio)
    return replace(kind, attention=fewer, mixer=narrower, feed_forward=block)


def _narrower_mixer(mixer: Mixer, ratio: float) -> Mixer:
    """Fewer groups of heads, as large as they were where that is narrow enough; a mixer that has no heads stays as it is."""
    if isinstance(mixer, GatedDelta):
        keys, heads = _grouped(mixer.key_heads, mixer.value_heads, ratio)
        return replace(mixer, key_heads=keys, value_heads=heads)
    if isinstance(mixer, Mamba2):
        groups, heads = _grouped(mixer.num_groups, mixer.num_heads, ratio)
        return replace(mixer, num_groups=groups, num_heads=heads)
    if isinstance(mixer, KimiDelta | Lightning):
        return replace(mixer, num_heads=max(1, round(mixer.num_heads * ratio)))
    return mixer


def _grouped(few: int, many: int, ratio: float) -> tuple[int, int]:
    """Both numbers in proportion, the first dividing the second."""
    groups = max(1, round(few * ratio))
    return groups, groups * min(many // few, max(1, round(many * ratio / groups)))


def _fewer_heads(attention: Attention, ratio: float) -> Attention:
    keys, heads = _grouped(attention.num_key_value_heads, attention.num_heads, ratio)
    latent = attention.latent
    if latent is not None:
        queries = None if latent.query_rank is None else _width(latent.query_rank, ratio)
        latent = replace(latent, query_rank=queries, key_value_rank=_width(latent.key_value_rank, ratio))
    return replace(attention, num_heads=heads, num_key_value_heads=keys, latent=latent)


def _fewer(kind: LayerKind, experts: int) -> LayerKind:
    block = kind.experts
    if block is None:
        return kind
    smaller_block = replace(
        block, num_experts=experts, experts_per_token=min(block.experts_per_token, experts), num_groups=1, groups_per_token=1
    )
    return replace(kind, feed_forward=smaller_block)
