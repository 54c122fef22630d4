"""Messages that one rank of the reference step exchanges: operation, ranks, how many, bytes. Counted, not timed.

What PyTorch's own parallelism sends (DTensor, FSDP2, Ulysses, all-to-all of experts, pipeline stages); the dry run is its oracle.
A payload is the whole tensor of a collective: gathered, or before it is scattered or reduced.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from meshwright.domain.attention import NO_ATTENTION
from meshwright.domain.mixers import GatedDelta
from meshwright.perf.operators import routed_tokens
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshwright.domain.model import LayerKind, Model
    from meshwright.perf.operators import WorkShape

ACTIVATION_BYTES, STATE_BYTES, INDEX_BYTES = 2, 4, 8
"""Of a hidden element and a gathered parameter (BF16), of a gradient or parameter in FP32, of a count of tokens."""


class Message(Value, frozen=True, kw_only=True, order=True):
    """One sort of message of a step; ``payload_bytes`` of all calls together."""

    operation: str
    ranks: int
    calls: int
    payload_bytes: int

    def times(self, count: int) -> Message:
        """So many times over."""
        return Message(
            operation=self.operation, ranks=self.ranks, calls=self.calls * count, payload_bytes=self.payload_bytes * count
        )


def message(operation: str, ranks: float, payload_bytes: float, calls: int = 1) -> Iterator[Message]:
    """``calls`` messages of ``payload_bytes`` each; none where a group is one rank.

    Units:   bytes.
    Source:  none, bookkeeping.
    """
    if ranks > 1 and calls:
        yield Message(operation=operation, ranks=int(ranks), calls=calls, payload_bytes=int(payload_bytes) * calls)


def joined(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages of one operation and group size added up, in order.

    Units:   bytes.
    Source:  none, bookkeeping.
    """
    calls: Counter[tuple[str, int]] = Counter()
    payload: Counter[tuple[str, int]] = Counter()
    for each in messages:
        calls[each.operation, each.ranks] += each.calls
        payload[each.operation, each.ranks] += each.payload_bytes
    return tuple(
        Message(operation=operation, ranks=ranks, calls=number, payload_bytes=payload[operation, ranks])
        for (operation, ranks), number in sorted(calls.items())
    )


def keeps_last_product(kind: LayerKind) -> bool:
    """Whether something behind the last product of a layer keeps its result, so that recomputation must run it again.

    Recomputation stops once everything that is kept has been made: a product whose result is only added is not among it.

    Units:   none.
    Source:  torch.utils.checkpoint, early stop.
    """
    experts = kind.experts
    return kind.norms == 4 or (experts is not None and (not experts.shared_width or experts.shared_gate))


def layer_messages(model: Model, kind: LayerKind, shape: WorkShape, *, recomputed: str) -> Iterator[Message]:
    """Tensor, context and expert parallelism of one layer and one micro-batch, forward and backward, gradients of weights aside.

        TP + SP  per block: gather and scatter, forward and backward;   TP  an all-reduce forward and backward
        CP       queries, keys, values there and the output back, forward and backward
        EP       counts, tokens there and back, forward and backward

    Symbols: ``recomputed`` none, core_attn or full: what runs again.
    Units:   bytes.
    Holds:   Ulysses; even routing; hidden states in BF16.
    Source:  torch.distributed.tensor.parallel; Jacobs et al. 2023 (arXiv 2309.14509); dry runs.
    """
    tp, cp, ep = int(shape.tensor_parallel), int(shape.context_parallel), int(shape.expert_parallel)
    tokens, full = int(shape.tokens), recomputed == "full"
    hidden = ACTIVATION_BYTES * tokens * model.hidden
    experts = kind.experts
    blocks = kind.mixes + (kind.has_block and (experts is None or experts.shared_width > 0))
    last = blocks - 1 if blocks > 1 and not keeps_last_product(kind) else blocks
    if shape.sequence_shards > 1:
        yield from message("all-gather", tp, hidden, (3 if full else 2) * blocks)
        yield from message("reduce-scatter", tp, hidden, 2 * blocks + (last if full else 0))
    else:
        yield from message("all-reduce", tp, hidden, 2 * blocks + (last if full else 0))
    attention, mixer = kind.attention or NO_ATTENTION, kind.mixer
    if mixer is not None:
        into = mixer.convolved_width + mixer.gate_width + mixer.scalar_width
        yield from message("all-to-all", cp, ACTIVATION_BYTES * tokens * into // tp, 3 if full else 2)
        yield from message("all-to-all", cp, ACTIVATION_BYTES * tokens * mixer.value_width // tp, 3 if full else 2)
    sent = [] if kind.attention is None else [
        ACTIVATION_BYTES * tokens * width // tp for width in (attention.query_width, attention.key_width, attention.value_width)
    ]
    for payload in sent:
        yield from message("all-to-all", cp, payload, 2 if recomputed == "none" else 3)
    if kind.attention is not None:
        yield from message("all-to-all", cp, ACTIVATION_BYTES * tokens * attention.output_width // tp, 3 if full else 2)
    if experts is not None:
        routed = ACTIVATION_BYTES * float(routed_tokens(experts, shape)) * model.hidden
        yield from message("all-to-all", ep, INDEX_BYTES * experts.num_experts, 2 if full else 1)
        yield from message("all-to-all", ep, routed, 6 if full else 4)


def replicated_gradients(model: Model, kind: LayerKind | None, shape: WorkShape, *, element_bytes: int) -> Iterator[Message]:
    """Gradients of weights that every tensor rank has whole and saw its own tokens with: norms, routers. No ``kind``: last norm.

    Units:   bytes.
    Holds:   sequence parallelism; without it every rank sees all tokens. Heads are split likewise under query-key norms.
    Source:  torch.distributed.tensor: Partial to Replicate before gradients are reduced.
    """
    tp = int(shape.tensor_parallel)
    tensors = {"rms": 1, "layer": 2, "layer-no-bias": 1, "none": 0}[model.norm]
    sharded = shape.sequence_shards > 1
    if kind is None:
        if sharded and model.final_norm:
            yield from message("all-reduce", tp, element_bytes * model.hidden, tensors)
        return
    if sharded:
        yield from message("all-reduce", tp, element_bytes * model.hidden, tensors * kind.norms)
    attention, experts = kind.attention, kind.experts
    if isinstance(kind.mixer, GatedDelta):  # the norm that all its heads share
        yield from message("all-reduce", tp, element_bytes * kind.mixer.value_dim, 1)
    if attention is not None and attention.query_key_norm == "head" and attention.query_key_norm_weight:
        yield from message("all-reduce", tp, element_bytes * attention.head_dim, 2 * tensors)
    if experts is not None:
        yield from message("all-reduce", tp, element_bytes * model.hidden * experts.num_experts)
        if experts.router_bias:
            yield from message("all-reduce", tp, element_bytes * experts.num_experts)
        if experts.shared_gate:
            yield from message("all-reduce", tp, element_bytes * model.hidden)


def end_messages(model: Model, shape: WorkShape, *, first: bool, last: bool) -> Iterator[Message]:
    """Tensor parallelism of embedding, output layer and loss, one micro-batch.

        embedding  scatter forward, gather backward (SP), or all-reduce forward
        head       gather forward, scatter backward (SP), or all-reduce backward;   loss: maximum, sum, and the target's share

    Units:   bytes.
    Holds:   token embeddings alone in front (no position table, projection or norm); the loss over a split vocabulary, in FP32.
    Source:  torch.distributed.tensor.parallel: RowwiseParallel of an embedding, loss_parallel.
    """
    tp, tokens = int(shape.tensor_parallel), int(shape.tokens)
    hidden = ACTIVATION_BYTES * tokens * model.hidden
    if shape.sequence_shards > 1:
        yield from message("all-gather", tp, hidden, first + last)
        yield from message("reduce-scatter", tp, hidden, first + last)
    else:
        yield from message("all-reduce", tp, hidden, first + last)
    yield from message("all-reduce", tp, STATE_BYTES * tokens, 3 * last)


def unit_messages(
    elements: float, *, shards: int, replicas: int, owners: int, gathers: int, scatters: int, reductions: int
) -> Iterator[Message]:
    """Sharded data parallelism of one unit (a layer, or the ends) over a step.

        gathers x all-gather(2 P) over K;   scatters x reduce-scatter(4 P) over K;   reductions x all-reduce(4 P / K) over R
        ZeRO-1: all-gather(4 P) over the owners of slices

    Symbols: P ``elements`` of the rank before sharding; K ``shards``; R ``replicas`` of shards.
    Units:   bytes.
    Holds:   rows of every parameter divide by K, elements by the owners; gathered in BF16, reduced in FP32.
    Source:  torch.distributed.fsdp.fully_shard.
    """
    yield from message("all-gather", shards, ACTIVATION_BYTES * elements, gathers)
    yield from message("reduce-scatter", shards, STATE_BYTES * elements, scatters)
    yield from message("all-reduce", replicas, STATE_BYTES * elements / shards, reductions)
    yield from message("all-gather", owners, STATE_BYTES * elements)
