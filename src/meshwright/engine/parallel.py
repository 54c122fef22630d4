"""A layout laid over a decoder: context, tensor, expert parallelism, recomputation, sharding, in the order that PyTorch wants."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from meshwright.engine.attention import Core, GroupedAttention, LatentAttentionBlock
from meshwright.engine.exchange import exchange
from meshwright.engine.experts import Routed
from meshwright.engine.initial import TIED, fill
from meshwright.engine.recompute import recomputed
from meshwright.engine.tensor import tensor_parallel

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

    from meshwright.domain.layout import Layout
    from meshwright.engine.decoder import Decoder
    from meshwright.engine.mesh import Ranks

HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
"""Products in BF16; parameters, gradients and sums over ranks in FP32."""


def parallelize(
    part: Decoder, layout: Layout, ranks: Ranks, *, sequence_tokens: int, mixed_precision: bool, chunk: int = 0,
    seed: int = 0, device: torch.device | None = None, compiled: bool = False,
) -> nn.Module:
    """The part of a decoder that stands on this rank, spread over the ranks of its stage; in place.

    A part on the meta device gets its values layer by layer, just before a layer is sharded, so that no rank ever holds more than
    its shards and one layer.

    Holds:   gradients are *sums* over ranks of what their losses give: a loss is scaled by 1 / (dp x cp x micro-batches) before
             its backward pass. Then experts, wherever their tokens come from, need no factor of their own.
    """
    where = torch.device("cpu") if device is None else device
    if layout.context_parallel > 1:
        _context_parallel(part, ranks, layout, sequence_tokens // layout.context_parallel)
    if layout.tensor_parallel > 1:
        tensor_parallel(part, ranks.tensor, sequence=layout.sequence_parallel)
    if layout.expert_parallel > 1:
        assert ranks.experts is not None, "the mesh has them"
        _expert_parallel(part, ranks.experts["experts"])
    mixture = any(isinstance(module, Routed) for module in part.modules())
    wraps = mixed_precision or ranks.replicas.size() > 1 or (mixture and ranks.expert_sharers.size() > 1)
    shard = partial(_shard, layout=layout, mixed_precision=mixed_precision) if wraps else None
    for number, (name, block) in enumerate(list(part.blocks.items())):
        fill(block, f"blocks.{name}", seed=seed, device=where)
        wrapped = part.blocks[name] = recomputed(block, layout.recompute, number, chunk=chunk, stage=ranks.place("pp"))
        if compiled:
            _compile(wrapped)
        if shard is not None:
            _shard_layer(wrapped, ranks, shard)
    fill(part, "", seed=seed, device=where, aliases=TIED if part.tied_embeddings else None)
    if compiled and part.head is not None and layout.tensor_parallel == 1:
        part.loss = torch.compile(part.loss)
    if shard is not None:
        shard(part, ranks.sharers)
    return part


def _compile(block: nn.Module) -> None:
    """A dense layer as one graph; of a mixture attention alone, for routing asks how many tokens came."""
    mixture = any(isinstance(module, Routed) for module in block.modules())
    for module in block.modules() if mixture else [block]:
        if not mixture or isinstance(module, GroupedAttention | LatentAttentionBlock):
            module.compile()


def _context_parallel(part: Decoder, ranks: Ranks, layout: Layout, local_tokens: int) -> None:
    """Ulysses: every rank has a slice of the tokens, and around attention a slice of the heads instead."""
    place, group = ranks.place("cp"), ranks.mesh["cp"].get_group()
    for module in part.modules():
        if hasattr(module, "first_token"):
            module.first_token = place * local_tokens  # type: ignore[assignment]
        if isinstance(module, Core):
            module.exchange = partial(swap, group=group)
            module.first_sink = place * (module.all_heads // layout.tensor_parallel // layout.context_parallel)
            module.first_head += module.first_sink


def swap(x: Tensor, to_heads: bool, *, group: ProcessGroup) -> Tensor:
    """All tokens of a slice of the heads for a slice of the tokens of all heads, or back.

    Shapes:  ``[batch, heads, tokens, width]``: ``to_heads`` divides heads by the ranks and multiplies tokens.
    Source:  Jacobs et al. 2023 (DeepSpeed-Ulysses, arXiv 2309.14509).
    """
    size = group.size()
    batch, heads, tokens, width = x.shape
    if to_heads:
        sent = x.reshape(batch, size, heads // size, tokens, width).permute(1, 0, 2, 3, 4).contiguous()
        there = exchange(sent, group)
        return there.permute(1, 2, 0, 3, 4).reshape(batch, heads // size, size * tokens, width)
    sent = x.reshape(batch, heads, size, tokens // size, width).permute(2, 0, 1, 3, 4).contiguous()
    there = exchange(sent, group)
    return there.permute(1, 0, 2, 3, 4).reshape(batch, size * heads, tokens // size, width)


def _expert_parallel(part: Decoder, mesh: DeviceMesh) -> None:
    """Each rank keeps its experts; tokens travel."""
    size, place = mesh.size(), mesh.get_local_rank()
    for module in part.modules():
        if isinstance(module, Routed):
            module.group, module.first = mesh.get_group(), place * (module.num_experts // size)
            for name, weight in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(weight.detach().chunk(size)[place].clone()))


def _shard_layer(block: nn.Module, ranks: Ranks, shard: Callable[[nn.Module, DeviceMesh], None]) -> None:
    """One layer is one unit; routed experts are one of their own where their replicas are other ranks."""
    if ranks.experts is not None:
        for module in block.modules():
            if isinstance(module, Routed):
                shard(module, ranks.expert_sharers)
    shard(block, ranks.sharers)


def _shard(module: nn.Module, mesh: DeviceMesh, *, layout: Layout, mixed_precision: bool) -> None:
    """Fully sharded data parallelism: parameters whole between forward and backward (ZeRO-2) or gathered again (ZeRO-3).

    With one shard it is plain data parallelism (ZeRO-0 and 1): gradients are reduced to every replica. Under a pipeline parameters
    stay whole, else every micro-batch would gather them.
    """
    policy = HALF if mixed_precision else MixedPrecisionPolicy()
    again = layout.parameter_shards > 1 and layout.pipeline_parallel == 1
    sharded: FSDPModule = fully_shard(module, mesh=mesh, reshard_after_forward=again, mp_policy=policy)
    if mesh.size() > 1:  # one rank has nothing to divide by, but would: a copy of all gradients more
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
