"""What is computed again in the backward pass instead of kept: whole layers, parts of layers, or all but products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective
from meshwright.engine.experts import Experts

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from meshwright.domain.layout import Recompute

ATTENTION_OPERATORS = tuple(
    getattr(torch.ops.aten, name).default
    for name in (
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    )
    if hasattr(torch.ops.aten, name)
)
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def recomputed(block: nn.Module, how: Recompute, number: int, *, chunk: int = 0, stage: int = 0) -> nn.Module:
    """The layer, wrapped so that it or modules of it are computed again.

    ``number``: which layer of its chunk it is; ``chunk``, ``stage``: where it stands, for counts per chunk and stage.
    """
    match how:
        case NoRecompute():
            return block
        case Selective():
            return _selective(block, how.modules)
        case Full(layers=None):
            return _again(block)
        case Full(layers=int(count)):
            return _again(block) if number < count else block
        case Full():
            return _again(block) if number < how.layers[chunk][stage] else block  # type: ignore[index]
        case Mixed():
            raise AssertionError("refused before anything starts")


def _again(module: nn.Module, **more: Any) -> nn.Module:
    wrapped: nn.Module = checkpoint_wrapper(module, preserve_rng_state=False, **more)
    return wrapped


def _selective(block: nn.Module, modules: tuple[str, ...]) -> nn.Module:
    attention, feed = (getattr(block, name) for name in ("attention", "feed"))
    if "core_attn" in modules and attention is not None:
        attention.core = _again(attention.get_submodule("core"))
    if "shared_experts" in modules and isinstance(feed, Experts) and feed.shared is not None:
        feed.shared = _again(feed.shared)
    if feed is not None and ("moe" if isinstance(feed, Experts) else "mlp") in modules:
        block.feed = _again(feed)
    return _again(block, context_fn=_by_operator) if "op" in modules else block


def _by_operator() -> Any:
    """Contexts of one forward pass and of its repetition, which count their products anew."""
    return create_selective_checkpoint_contexts(_every_second())  # type: ignore[no-untyped-call]


def _every_second() -> Callable[..., CheckpointPolicy]:
    """torchtitan's policy by operator: attention and every second product are kept, all else is computed again.

    Source:  torchtitan/distributed/activation_checkpoint.py, ``_get_custom_policy``.
    """
    seen = {False: 0, True: 0}

    def policy(context: Any, operator: object, *_: object, **__: object) -> CheckpointPolicy:
        again = bool(context.is_recompute)
        if operator in PRODUCTS:
            seen[again] += 1
        kept = operator in ATTENTION_OPERATORS or (operator in PRODUCTS and seen[again] % 2 == 1)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return policy
