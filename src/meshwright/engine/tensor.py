"""Tensor and sequence parallelism: heads and widths split over ranks, by PyTorch's styles."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import embedding

from meshwright.engine.attention import Core, GroupedAttention, LatentAttentionBlock
from meshwright.engine.experts import Experts
from meshwright.engine.mixers import split_mixers

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.device_mesh import DeviceMesh

    from meshwright.engine.decoder import Decoder

NORMS = ("attention_norm", "feed_norm", "attention_end", "feed_end")


def tensor_parallel(part: Decoder, mesh: DeviceMesh, *, sequence: bool) -> None:
    """Heads and widths split over the ranks; with ``sequence`` tokens are, too, outside of attention and products. In place.

    Holds:   ranks divide heads, key-value heads, widths and vocabulary; hidden states between layers are local tensors.
    """
    outside = Shard(1) if sequence else Replicate()
    plan = _end_plans(part, outside)
    for name, block in part.blocks.items():
        plan |= {f"blocks.{name}.{key}": style for key, style in _block_plan(block, outside).items()}
    tied = part.head is not None and part.embedding is not None and part.head.output.weight is part.embedding.tokens.weight
    parallelize_module(part, mesh, plan, src_data_rank=None)
    if tied and part.head is not None and part.embedding is not None:
        part.head.output.weight = part.embedding.tokens.weight
    split_mixers(part, mesh)
    for module in part.modules():
        if isinstance(module, Core):
            module.first_head += mesh.get_local_rank() * (module.all_heads // mesh.size())
        if isinstance(module, LatentAttentionBlock):
            module.shared = partial(_summed, mesh=mesh)
        if isinstance(module, GroupedAttention) and module.sinks is not None:
            module.sinks = nn.Parameter(distribute_tensor(module.sinks.detach(), mesh, [Shard(0)], src_data_rank=None))


class Lookup(ParallelStyle):
    """An embedding whose rows are split: each rank looks its own up, and has a gradient of these alone.

    PyTorch's ``RowwiseParallel`` gives every rank the gradient of the whole vocabulary, and keeps it between micro-batches.
    """

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        assert isinstance(module, nn.Embedding), "rows are looked up"
        rows = distribute_tensor(module.weight.detach(), device_mesh, [Shard(0)], src_data_rank=None)
        module.weight = nn.Parameter(rows)
        module.forward = partial(_looked_up, module, mesh=device_mesh, output=self.output)  # type: ignore[method-assign]
        return module


def _looked_up(module: nn.Embedding, tokens: Tensor, *, mesh: DeviceMesh, output: Any) -> Tensor:
    """Hidden states of tokens, of which each rank has those in its own rows."""
    weight: Any = module.weight
    rows = weight.to_local()
    place = tokens - mesh.get_local_rank() * rows.shape[0]
    foreign = (place < 0) | (place >= rows.shape[0])
    found = embedding(place.masked_fill(foreign, 0), rows).masked_fill_(foreign.unsqueeze(-1), 0.0)
    return DTensor.from_local(found, mesh, [Partial()], run_check=False).redistribute(placements=[output]).to_local()


def _summed(x: Tensor, *, mesh: DeviceMesh) -> Tensor:
    """The same values; gradients are summed over the ranks."""
    return DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])


def _end_plans(part: Decoder, outside: Any) -> dict[str, ParallelStyle]:
    """Styles of the embedding and of the head. What follows the lookup sees whole tokens, as in Megatron: they are split last."""
    sequence = outside != Replicate()
    plan: dict[str, ParallelStyle] = {}
    if part.embedding is not None:
        ends = part.embedding
        last = all(each is None for each in (ends.positions, ends.project, ends.norm))
        plan["embedding.tokens"] = Lookup(outside if last else Replicate())
        if sequence and not last:
            plan["embedding"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=outside)
    if part.head is not None:
        for name in ("norm", "project"):
            if sequence and getattr(part.head, name) is not None:
                plan[f"head.{name}"] = SequenceParallel(use_local_output=True)
        plan["head.output"] = ColwiseParallel(input_layouts=outside, output_layouts=Shard(-1), use_local_output=False)
    return plan


def _block_plan(block: nn.Module, outside: Any) -> dict[str, ParallelStyle]:
    """Styles of the modules of one layer."""
    rows = partial(RowwiseParallel, output_layouts=outside)
    plan: dict[str, ParallelStyle] = {}
    if outside != Replicate():
        plan |= {name: SequenceParallel(use_local_output=True) for name in NORMS if getattr(block, name) is not None}
    plan |= _attention_plan(block.attention, outside, rows)
    if isinstance(block.mixer, nn.Module):
        plan["mixer"] = PrepareModuleInput(
            input_layouts=(outside,), desired_input_layouts=(Replicate(),), use_local_output=False
        )
        plan |= {f"mixer.{name}": ColwiseParallel() for name in block.mixer.COLUMNS}  # type: ignore[union-attr]
        plan["mixer.output"] = rows()
    feed = block.feed
    dense, inner = ("feed.shared", feed.shared) if isinstance(feed, Experts) else ("feed", feed)
    if isinstance(inner, nn.Module):
        plan[dense] = PrepareModuleInput(input_layouts=(outside,), desired_input_layouts=(Replicate(),))
        plan |= {f"{dense}.{name}": ColwiseParallel() for name in ("up", "gate") if getattr(inner, name) is not None}
        plan[f"{dense}.down"] = rows()
    if isinstance(feed, Experts):
        plan["feed.router"] = SequenceParallel(sequence_dim=0, use_local_output=True)
        if feed.shared_gate is not None:
            plan["feed.shared_gate"] = SequenceParallel(use_local_output=True)
    return plan


def _attention_plan(attention: Any, outside: Any, rows: Callable[[], ParallelStyle]) -> dict[str, ParallelStyle]:
    """Styles of the modules of attention, where the layer has it."""
    if attention is None:
        return {}
    grouped = isinstance(attention, GroupedAttention)
    plan: dict[str, ParallelStyle] = {"attention": PrepareModuleInput(
        input_layouts=(outside, None), desired_input_layouts=(Replicate(), None), use_local_output=not grouped
    )}
    split = ["query", "key", "value"] if grouped else ["query", "key_value"]
    if grouped and attention.gate is not None:
        split.append("gate")
    plan |= {f"attention.{name}": ColwiseParallel() for name in split}
    plan["attention.output"] = rows()
    if grouped and attention.query_norm is not None:
        heads = SequenceParallel(sequence_dim=1, use_local_output=True)
        plan |= {"attention.query_norm": heads, "attention.key_norm": heads}
    return plan
