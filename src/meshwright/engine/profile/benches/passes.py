"""Memory-bound operations, exactly as the reference step runs them, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.distributed.fsdp  # registers the operators of its copies
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional

from meshwright.engine.decoder import mean_loss
from meshwright.engine.norms import EPSILON
from meshwright.engine.optimizer import OwnedAdamW
from meshwright.engine.positions import rotate
from meshwright.engine.profile.bench import DTYPES, Bench, Call, Place, Timed, number, word
from meshwright.engine.profile.benches.kernels import gradients
from meshwright.engine.profile.traffic import traffic_of

if TYPE_CHECKING:
    Arguments: TypeAlias = Mapping[str, Any]
    Forward: TypeAlias = Callable[[], Any]

HEADS = 8
"""Heads of the tensors that rotary embedding and copies run on; only the width of a head matters to them."""
ROTARY_BASE = 10000.0


def passes(place: Place, arguments: Arguments) -> Bench:
    """One kind of pass, with the bytes and operators of a call as PyTorch dispatches them."""
    kind, backward = word(arguments, "kind"), word(arguments, "direction") == "backward"

    def build() -> Call:
        if kind == "cast":
            return _cast(place, arguments, backward=backward)
        forward, inputs = KINDS[kind](place, arguments)
        return gradients(forward(), inputs) if backward else forward

    if kind == "loss_parallel":
        with loss_parallel():
            within = [_within_loss_parallel(call) for call in place.copies(build, _bytes(arguments))]
        return Bench(parts={"one": Timed(copies=within)})
    copies = place.copies(build, _bytes(arguments))
    counted = traffic_of(copies[0])
    return Bench(parts={"one": Timed(copies=copies)}, values=lambda _: counted)


def _bytes(arguments: Arguments) -> float:
    return 3.0 * number(arguments, "elements") * DTYPES[word(arguments, "dtype")].itemsize


def _shape(arguments: Arguments) -> tuple[int, int]:
    """(Rows, width)."""
    width = number(arguments, "width")
    return number(arguments, "elements") // width, width


def _within_loss_parallel(call: Call) -> Call:
    def within() -> object:
        with loss_parallel():
            return call()

    return within


def _norm(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    rows, width = _shape(arguments)
    module = nn.RMSNorm(width, eps=EPSILON, device=place.device, dtype=torch.bfloat16)
    x = place.filled(1, rows, width, gradient=True)
    return lambda: module(x), (x, module.weight)


def _rotary(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    x = _heads(place, arguments).requires_grad_()
    return lambda: rotate(x, base=ROTARY_BASE), (x,)


def _heads(place: Place, arguments: Arguments) -> Tensor:
    """``[1, heads, tokens, width]``, whose memory is in the order of tokens as products leave it."""
    rows, width = _shape(arguments)
    heads = HEADS if rows % HEADS == 0 else 1
    return place.filled(1, rows // heads, heads * width).view(1, -1, heads, width).transpose(1, 2)


def _gate(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    gate, up = (place.filled(1, *_shape(arguments), gradient=True) for _ in range(2))
    return lambda: functional.silu(gate) * up, (gate, up)


def _residual(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    """The sum; backward: the sum of the two gradients that the stream gets where it forks."""
    x, y = (place.filled(1, *_shape(arguments), gradient=True) for _ in range(2))
    if word(arguments, "direction") == "backward":
        return lambda: (x.view_as(x), x.view_as(x)), (x,)
    return lambda: x + y, (x, y)


def _loss(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    rows, width = _shape(arguments)
    logits = place.filled(1, rows, width, gradient=True)
    targets = torch.randint(width, (1, rows), device=place.device)
    return lambda: mean_loss(logits, targets), (logits,)


def _loss_parallel(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    """``elements`` and ``width`` are those of this rank's part of the vocabulary."""
    rows, width = _shape(arguments)
    ranks = number(arguments, "ranks")
    own = place.filled(1, rows, width, gradient=True)
    targets = torch.randint(width * ranks, (1, rows), device=place.device, generator=torch.Generator(place.device).manual_seed(0))

    def forward() -> Tensor:
        return mean_loss(DTensor.from_local(own, place.mesh(ranks), [Shard(-1)], run_check=False), targets)

    return forward, (own,)


def _embedding(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    rows, width = _shape(arguments)
    vocabulary = number(arguments, "vocabulary")
    table = place.filled(vocabulary, width, gradient=True)
    tokens = torch.randint(vocabulary, (1, rows), device=place.device)
    return lambda: functional.embedding(tokens, table), (table,)


def _cast(place: Place, arguments: Arguments, *, backward: bool) -> Call:
    """Sharded parameters to BF16; backward: their gradients to FP32."""
    x = place.filled(*_shape(arguments), dtype="bf16" if backward else "fp32")
    target = torch.float32 if backward else torch.bfloat16
    return lambda: x.to(target)


def _copy(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    """Heads back to columns of rows of tokens, as behind attention and around an exchange of heads."""
    rows, width = _shape(arguments)
    heads = HEADS if rows % HEADS == 0 else 1
    x = place.filled(1, heads, rows // heads, width)
    return lambda: x.transpose(1, 2).flatten(2), (x,)


def _adam(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    parameter = nn.Parameter(place.filled(*_shape(arguments), dtype="fp32"))
    parameter.grad = place.filled(*_shape(arguments), dtype="fp32")
    optimizer = OwnedAdamW([[("one", parameter)]], lambda _: None)

    def step() -> Tensor:
        optimizer.step()
        return parameter

    step()  # makes the states
    return step, (parameter,)


def _router(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    """Scores ``[tokens, experts]`` to the weights of two experts, and their order (``engine.experts.Experts``)."""
    scores = place.filled(*_shape(arguments))

    def forward() -> tuple[Tensor, ...]:
        top, chosen = scores.float().topk(2, dim=-1)
        weights = top.softmax(dim=-1)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=scores.shape[-1])
        return weights, order, counts

    return forward, (scores,)


def _permute(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    """Rows to their experts and the sum of what comes back; ``elements`` are those of the tokens, before they are repeated."""
    rows, width = _shape(arguments)
    often = number(arguments, "experts_per_token")
    x = place.filled(rows, width, gradient=True)
    shares = place.filled(rows * often, dtype="fp32", gradient=True)
    order = torch.randint(number(arguments, "experts"), (rows * often,), device=place.device).argsort(stable=True)
    return lambda: permuted(x, shares, order, often), (x, shares)


def permuted(x: Tensor, shares: Tensor, order: Tensor, often: int) -> Tensor:
    """``engine.experts.Experts.forward`` without router and experts: a test holds both together.

    Shapes:  x ``[tokens, hidden]``, shares ``[tokens x often]``, order the same, of the pairs of tokens and experts by expert.
    """
    rows = x[order // often]
    scaled = rows * shares[order, None].to(rows.dtype)
    return torch.zeros_like(x).index_add(0, order // often, scaled)


def _gathered(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    """What FSDP2 copies around an all-gather: the own shard into a new buffer, and everybody's rows into whole parameters."""
    rows, width = _shape(arguments)
    ranks = number(arguments, "ranks")
    shard, everybody = place.filled(rows * width // ranks), place.filled(ranks, rows * width // ranks)

    def copies() -> tuple[Tensor, Tensor]:
        buffer = shard.new_empty(rows * width)
        buffer[: shard.numel()].copy_(shard)
        whole = shard.new_empty(rows, width)
        torch.ops.fsdp.split_with_sizes_copy(everybody, [shard.numel()], dim=1, out=[whole.view(ranks, -1)])
        return buffer, whole

    return copies, (shard,)


def _scattered(place: Place, arguments: Arguments) -> tuple[Forward, tuple[Tensor, ...]]:
    """What FSDP2 copies before a reduce-scatter: gradients in BF16 into a new buffer in FP32, rank by rank."""
    gradient, ranks = place.filled(*_shape(arguments)), number(arguments, "ranks")

    def copy() -> Tensor:
        buffer = gradient.new_empty(gradient.numel(), dtype=torch.float32)
        torch.ops.fsdp.chunk_cat([gradient], dim=0, num_chunks=ranks, out=buffer.view(ranks, -1))
        return buffer

    return copy, (gradient,)


KINDS: Mapping[str, Callable[[Place, Arguments], tuple[Forward, tuple[Tensor, ...]]]] = {
    "norm": _norm, "rotary": _rotary, "gate": _gate, "residual": _residual, "loss": _loss, "loss_parallel": _loss_parallel,
    "embedding": _embedding, "copy": _copy, "adam": _adam, "router": _router, "permute": _permute,
    "gathered": _gathered, "scattered": _scattered,
}
"""Kind -> its forward pass, and what gradients are taken of. ``cast`` has none."""
