"""A layout laid over a decoder: context, tensor, expert parallelism, recomputation, sharding, in the order that PyTorch wants."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.nn.functional import all_to_all_single as exchange
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.engine.attention import Core, GroupedAttention
from meshwright.engine.experts import Experts

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from meshwright.domain.layout import Layout
    from meshwright.engine.decoder import Decoder
    from meshwright.engine.mesh import Ranks

ATTENTION_OPERATORS = tuple(
    getattr(torch.ops.aten, name).default
    for name in (
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    )
    if hasattr(torch.ops.aten, name)
)  # fmt: skip


def parallelize(part: Decoder, layout: Layout, ranks: Ranks, *, sequence_tokens: int, mixed_precision: bool) -> nn.Module:
    """The part of a decoder that stands on this rank, spread over the ranks of its stage.

    Holds:   in place; the result of a step equals that of one process, up to rounding.
    """
    local_tokens = sequence_tokens // layout.context_parallel
    if layout.context_parallel > 1:
        _context_parallel(part, ranks, local_tokens)
    if layout.tensor_parallel > 1:
        _tensor_parallel(part, layout, ranks)
    if ranks.experts is not None:
        _expert_parallel(part, ranks.experts)
    _recompute(part, layout)
    _shard(part, layout, ranks, mixed_precision=mixed_precision)
    return part


def _context_parallel(part: Decoder, ranks: Ranks, local_tokens: int) -> None:
    """Ulysses: every rank has a slice of the tokens, and around attention a slice of the heads instead."""
    first, group = ranks.place("cp") * local_tokens, ranks.mesh["cp"].get_group()
    if part.embedding is not None:
        part.embedding.first_token = first
    for module in part.modules():
        if hasattr(module, "first_token"):
            module.first_token = first
        if isinstance(module, Core):
            module.exchange = partial(swap, group=group)


def swap(x: Tensor, to_heads: bool, *, group: ProcessGroup) -> Tensor:
    """All tokens of a slice of the heads for a slice of the tokens of all heads, or back.

    Shapes:  ``[batch, heads, tokens, width]``: ``to_heads`` divides heads by the ranks and multiplies tokens.
    Source:  Jacobs et al. 2023 (DeepSpeed-Ulysses, arXiv 2309.14509).
    """
    size = group.size()
    batch, heads, tokens, width = x.shape
    if to_heads:
        sent = x.reshape(batch, size, heads // size, tokens, width).permute(1, 0, 2, 3, 4).contiguous()
        there = exchange(torch.empty_like(sent), sent, group=group)
        return there.permute(1, 2, 0, 3, 4).reshape(batch, heads // size, size * tokens, width)
    sent = x.reshape(batch, heads, size, tokens // size, width).permute(2, 0, 1, 3, 4).contiguous()
    there = exchange(torch.empty_like(sent), sent, group=group)
    return there.permute(1, 0, 2, 3, 4).reshape(batch, size * heads, tokens // size, width)


def _tensor_parallel(part: Decoder, layout: Layout, ranks: Ranks) -> None:
    """Heads and widths split over the tensor ranks; with sequence parallelism tokens are, too, outside of attention and products."""
    mesh, sequence = ranks.mesh["tp"], layout.sequence_parallel
    outside = Shard(1) if sequence else Replicate()
    rows = partial(RowwiseParallel, output_layouts=outside)
    plan: dict[str, ParallelStyle] = {}
    if part.embedding is not None:
        plan["embedding.tokens"] = rows(input_layouts=Replicate())
        for name in ("project", "norm"):
            if sequence and getattr(part.embedding, name) is not None:
                plan[f"embedding.{name}"] = SequenceParallel(use_local_output=True)
    if part.head is not None:
        if sequence and part.head.norm is not None:
            plan["head.norm"] = SequenceParallel(use_local_output=True)
        plan["head.output"] = ColwiseParallel(input_layouts=outside, output_layouts=Shard(-1), use_local_output=False)
    for name, block in part.blocks.items():
        plan |= {f"blocks.{name}.{key}": style for key, style in _block_plan(block, outside, rows).items()}
    parallelize_module(part, mesh, plan)
    for module in part.modules():
        if isinstance(module, Core):
            module.first_head = ranks.place("tp") * (module.all_heads // layout.tensor_parallel)


def _block_plan(block: nn.Module, outside: Any, rows: Any) -> dict[str, ParallelStyle]:
    """Styles of the modules of one layer."""
    gathered = {"input_layouts": (outside,), "desired_input_layouts": (Replicate(),)}
    plan: dict[str, ParallelStyle] = {}
    if outside != Replicate():
        for name in ("attention_norm", "feed_norm", "attention_end", "feed_end"):
            if getattr(block, name) is not None:
                plan[name] = SequenceParallel(use_local_output=True)
    attention = block.attention
    plan["attention"] = PrepareModuleInput(input_layouts=(outside, None), desired_input_layouts=(Replicate(), None))
    plan["attention.query"] = ColwiseParallel()
    plan["attention.output"] = rows()
    if isinstance(attention, GroupedAttention):
        plan |= {"attention.key": ColwiseParallel(), "attention.value": ColwiseParallel()}
        if attention.query_norm is not None:
            plan |= {f"attention.{name}": SequenceParallel(sequence_dim=1, use_local_output=True) for name in ("query_norm", "key_norm")}
    else:
        plan["attention.key_value"] = ColwiseParallel()
    feed = block.feed
    dense = "feed.shared" if isinstance(feed, Experts) else "feed"
    if not isinstance(feed, Experts) or feed.shared is not None:
        plan[dense] = PrepareModuleInput(**gathered)
        plan[f"{dense}.up"] = ColwiseParallel()
        plan[f"{dense}.down"] = rows()
        inner = feed.shared if isinstance(feed, Experts) else feed
        if inner.gate is not None:
            plan[f"{dense}.gate"] = ColwiseParallel()
    if isinstance(feed, Experts) and outside != Replicate():
        plan["feed.router"] = SequenceParallel(sequence_dim=0, use_local_output=True)
        if feed.shared_gate is not None:
            plan["feed.shared_gate"] = SequenceParallel(use_local_output=True)
    return plan


def _expert_parallel(part: Decoder, mesh: Any) -> None:
    """Each rank keeps its experts; tokens travel."""
    size, place = mesh["experts"].size(), mesh.get_local_rank("experts")
    for module in part.modules():
        if isinstance(module, Experts):
            module.group = mesh["experts"].get_group()
            for name in ("up", "gate", "down", "up_bias", "gate_bias", "down_bias"):
                weight = getattr(module, name)
                if weight is not None:
                    setattr(module, name, nn.Parameter(weight.detach().chunk(size)[place].clone()))


def _recompute(part: Decoder, layout: Layout) -> None:
    """Recomputation of whole layers, or of attention alone."""
    for number, (name, block) in enumerate(list(part.blocks.items())):
        match layout.recompute:
            case NoRecompute():
                continue
            case Full(layers=None):
                part.blocks[name] = checkpoint_wrapper(block, preserve_rng_state=False)
            case Full(layers=int(first)):
                if number < first:
                    part.blocks[name] = checkpoint_wrapper(block, preserve_rng_state=False)
            case Selective(modules=("core_attn",)):
                block.attention.core = checkpoint_wrapper(block.attention.core, preserve_rng_state=False)
            case Selective(modules=("mlp",)):
                block.feed = checkpoint_wrapper(block.feed, preserve_rng_state=False)
            case Selective():
                context = partial(create_selective_checkpoint_contexts, _keep_products)
                part.blocks[name] = checkpoint_wrapper(block, preserve_rng_state=False, context_fn=context)


def _keep_products(_: object, operator: object, *__: object, **___: object) -> CheckpointPolicy:
    """Products and attention are kept, everything else is computed again."""
    kept = operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, *ATTENTION_OPERATORS)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def _shard(part: Decoder, layout: Layout, ranks: Ranks, *, mixed_precision: bool) -> None:
    """Fully sharded data parallelism: parameters whole between forward and backward (ZeRO-2) or gathered again (ZeRO-3)."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed_precision else MixedPrecisionPolicy()
    again = layout.parameter_shards > 1
    mesh = ranks.replicas
    both = mesh.size()
    for block in part.blocks.values():
        for module in block.modules():
            if isinstance(module, Experts) and ranks.experts is not None:
                fully_shard(module, mesh=ranks.experts["replicas"], reshard_after_forward=again, mp_policy=policy)
                module.set_gradient_divide_factor(float(both))
        fully_shard(block, mesh=_own(mesh, layout), reshard_after_forward=again, mp_policy=policy)
    fully_shard(part, mesh=_own(mesh, layout), reshard_after_forward=again, mp_policy=policy)


def _own(mesh: Any, layout: Layout) -> Any:
    """The sharding mesh: one dimension where all replicas share, two where groups of them do."""
    return mesh["shard"] if mesh["replicate"].size() == 1 else mesh


_ = replicate
