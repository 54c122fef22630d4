"""What one rank of the reference step needs, counted from the cost model's own formulas: beside it stands what a dry run finds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective
from meshwright.estimate.costs import vocabulary_rows
from meshwright.estimate.evaluate import evaluate, schedule_of, split_of
from meshwright.perf.attention import attention_flops
from meshwright.perf.ends import head_saved_bytes
from meshwright.perf.messages import (
    ACTIVATION_BYTES,
    STATE_BYTES,
    Message,
    end_messages,
    joined,
    keeps_last_product,
    layer_messages,
    message,
    replicated_gradients,
    unit_messages,
)
from meshwright.perf.mixers import chunk_flops
from meshwright.perf.operators import head_product, layer_products
from meshwright.perf.parameters import embedding_parameters, final_norm_parameters, head_parameters, layer_parameters
from meshwright.perf.schedules import BACKWARD, FORWARD, SCHEDULES, WEIGHT
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout, Recompute
    from meshwright.domain.model import LayerKind
    from meshwright.estimate.evaluate import Evaluation
    from meshwright.perf.operators import WorkShape


class Chunk(Value, frozen=True, kw_only=True):
    """Layers of one chunk of a rank, each with what of it is recomputed (none, core_attn, full), and the ends that it has."""

    layers: tuple[tuple[LayerKind, str], ...]
    first: bool
    last: bool
    messages: int
    """Neighbours on another rank: 0, 1 or 2."""


class RankFigures(Value, frozen=True, kw_only=True):
    """One rank of one step. ``activation_bytes``: kept for backward by all micro-batches in flight, at most."""

    parameters: int
    parameter_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    buffer_bytes: int
    """Messages between stages: PyTorch has a buffer for each micro-batch, in which the input of a later stage lies."""
    product_flops: int
    attention_flops: int
    scan_flops: int
    """Of the recurrences of linear mixers, in chunks."""
    messages: tuple[Message, ...]


def rank_figures(case: Case, layout: Layout, stage: int) -> RankFigures:
    """The figures of a rank on a stage.

    Units:   bytes, FLOP.
    Holds:   what PyTorch shards divides evenly; even routing; the FP32 parameter is its own master copy (FSDP2), sharded as
             gradients are. Whole squares of attention: two products forward, five backward.
    Source:  ``perf``; held to dry runs by tests/engine/test_dry_run_layouts.py.
    """
    constants = replace(case.calibration.constants, expert_headroom_ratio=1.0)
    case = replace(case, calibration=replace(case.calibration, constants=constants))
    found = evaluate(case, layout)
    chunks = chunks_of(case, layout, stage)
    shards = max(layout.gradient_shards, layout.parameter_shards)
    dense, routed = float(found.parameters.dense[stage]), float(found.parameters.experts[stage])
    own = dense / shards + routed / min(shards, layout.expert_data_parallel)
    owned = dense / layout.optimizer_shards + routed / min(layout.optimizer_shards, layout.expert_data_parallel)
    products, attention, scans = _flops(case, layout, found, chunks)
    saved = float(found.activation.activations[stage]) + _boundary_bytes(case, layout, found, chunks, stage)
    return RankFigures(
        parameters=round(own), parameter_bytes=round(STATE_BYTES * own),
        optimizer_bytes=round(case.training.optimizer.state_bytes * owned),
        activation_bytes=round(saved + _head_bytes(case, layout, found, chunks, stage)),
        buffer_bytes=_buffer_bytes(case, layout, found, chunks),
        product_flops=products, attention_flops=attention, scan_flops=scans,
        messages=joined(_messages(case, layout, found, chunks, stage)),
    )


def chunks_of(case: Case, layout: Layout, stage: int) -> tuple[Chunk, ...]:
    """What stands on a stage, chunk by chunk."""
    split, model = split_of(case, layout), case.model
    stages, chunks = len(split[0]), len(split)
    folded = layout.schedule == "dualpipev"
    ranks = [
        stages - 1 - place if folded and chunk % 2 else place for chunk in range(chunks) for place in range(stages)
    ]
    found, begin = [], 0
    for index, rank in enumerate(ranks):
        chunk = index // stages
        end = begin + split[chunk][rank]
        if rank == stage:
            kinds = [model.kinds[model.pattern[layer]] for layer in range(begin, end)]
            layers = tuple((kind, _again(layout.recompute, number, chunk, stage)) for number, kind in enumerate(kinds))
            beside = ranks[max(index - 1, 0) : index] + ranks[index + 1 : index + 2]
            found.append(Chunk(
                layers=layers, first=index == 0, last=index == len(ranks) - 1, messages=sum(other != rank for other in beside)
            ))
        begin = end
    return tuple(found)


def _again(recompute: Recompute, number: int, chunk: int, stage: int) -> str:
    """What of a layer runs again."""
    match recompute:
        case NoRecompute():
            return "none"
        case Selective(modules=modules):
            return "core_attn" if "core_attn" in modules else "none"
        case Full(layers=None):
            return "full"
        case Full(layers=int(count)):
            return "full" if number < count else "none"
        case Full(layers=grid):
            assert isinstance(grid, tuple), "None and a number were before"
            return "full" if number < grid[chunk][stage] else "none"
        case Mixed():
            raise AssertionError("the reference step has no such layouts")


def _hidden_bytes(case: Case, shape: WorkShape) -> float:
    """Hidden states of a micro-batch as they travel between stages."""
    return ACTIVATION_BYTES * float(shape.shard_tokens) * case.model.hidden


def _boundary_bytes(case: Case, layout: Layout, found: Evaluation, chunks: tuple[Chunk, ...], stage: int) -> float:
    """What a pipeline adds to activations in flight: outputs of a chunk are kept; its inputs lie in buffers and do not count."""
    if layout.pipeline_parallel == 1:
        return 0.0
    counts = in_flight(layout, stage)
    hidden = sum(count * ((not chunk.last) - (not chunk.first)) for count, chunk in zip(counts, chunks, strict=True))
    return hidden * _hidden_bytes(case, found.costs.shape)


def in_flight(layout: Layout, stage: int) -> tuple[int, ...]:
    """Micro-batches of each chunk that wait for their backward, when they are most together."""
    schedule = SCHEDULES[schedule_of(layout)]
    order = schedule.order(layout.pipeline_parallel, layout.num_microbatches, num_chunks=layout.virtual_stages)
    held, most = [0] * layout.virtual_stages, (0,) * layout.virtual_stages
    for kind, _, chunk in order.stage(stage):
        held[chunk] += {FORWARD: 1, BACKWARD: -1, WEIGHT: -1}.get(kind, 0)
        if sum(held) > sum(most):
            most = tuple(held)
    return most


def _head_bytes(case: Case, layout: Layout, found: Evaluation, chunks: tuple[Chunk, ...], stage: int) -> float:
    """What the output layer and the loss keep: of one micro-batch, or of all where backwards begin after all forwards.

    Where the backward is split, the output layer's inputs wait for the weight gradients of all micro-batches in flight.
    """
    if not chunks[-1].last:
        return 0.0
    shape = found.costs.shape
    everything = float(head_saved_bytes(case, shape, vocabulary_rows(case, found.degrees.tensor_parallel)))
    if layout.pipeline_parallel == 1:
        return everything
    held = in_flight(layout, stage)[-1]
    if layout.schedule == "gpipe":
        return held * everything
    waiting = held - 1 if SCHEDULES[schedule_of(layout)].splits_backward else 0
    return everything + waiting * float(head_saved_bytes(case, shape, 0.0))


def _buffer_bytes(case: Case, layout: Layout, found: Evaluation, chunks: tuple[Chunk, ...]) -> int:
    """Receive buffers of a stage: hidden states where one is in front, their gradients where one is behind."""
    each = _hidden_bytes(case, found.costs.shape)
    return round(layout.num_microbatches * sum(chunk.messages for chunk in chunks) * each)


def _flops(case: Case, layout: Layout, found: Evaluation, chunks: tuple[Chunk, ...]) -> tuple[int, int, int]:
    """FLOPs of matrix products, of scaled dot products and of recurrences of a step."""
    shape, model, tokens = found.costs.shape, case.model, case.batch.sequence_tokens
    products = attention = scans = 0.0
    for chunk in chunks:
        for kind, again in chunk.layers:
            rows = layer_products(kind, model.hidden, shape)
            once = sum(float(row.flops) for row in rows)
            more = once - (0.0 if keeps_last_product(kind) else float(rows[-1].flops))
            products += 3.0 * once + (more if again == "full" else 0.0)
            block = kind.attention
            if kind.mixer is not None:
                forward, backward = chunk_flops(kind.mixer)
                scans += float(shape.tokens / shape.tensor_parallel) * (forward * (2.0 if again == "full" else 1.0) + backward)
            if block is None:
                continue
            heads = shape.sequences * block.num_heads / (shape.tensor_parallel * shape.context_parallel)
            wide, narrow = (float(attention_flops(tokens**2, heads, *widths)) for widths in (
                (block.head_dim, 0), (0, block.value_dim)))
            runs = 1.0 if again == "none" else 2.0
            attention += runs * (wide + narrow) + 3.0 * wide + 2.0 * narrow
        if chunk.last:
            products += 3.0 * float(head_product(model, shape, vocabulary_rows(case, shape.tensor_parallel)).flops)
    return tuple(round(each * layout.num_microbatches) for each in (products, attention, scans))  # type: ignore[return-value]


def _messages(case: Case, layout: Layout, found: Evaluation, chunks: tuple[Chunk, ...], stage: int) -> Iterator[Message]:
    """Everything that a rank sends or takes part in, in a step."""
    model, shape, number = case.model, found.costs.shape, layout.num_microbatches
    once = layout.pipeline_parallel > 1 or max(layout.gradient_shards, layout.parameter_shards) == 1
    for chunk in chunks:
        for kind, again in chunk.layers:
            yield from (each.times(number) for each in layer_messages(model, kind, shape, recomputed=again))
            yield from _reduced(replicated_gradients(model, kind, shape, element_bytes=_partial_bytes(layout)), number, once)
        yield from (each.times(number) for each in end_messages(model, shape, first=chunk.first, last=chunk.last))
        if chunk.last:
            yield from _reduced(replicated_gradients(model, None, shape, element_bytes=_partial_bytes(layout)), number, once)
        hidden = _hidden_bytes(case, shape)
        for operation in ("send", "recv"):
            yield from message(operation, layout.pipeline_parallel, hidden, number * chunk.messages)
        yield from _sharding(case, layout, chunk)
    ends = model.tied_embeddings and layout.pipeline_parallel > 1 and layout.schedule != "dualpipev"
    if ends and any(chunk.first or chunk.last for chunk in chunks):
        table = model.vocabulary * (model.embedding_width or model.hidden) / layout.tensor_parallel
        yield from message("all-reduce", 2, STATE_BYTES * table / max(layout.gradient_shards, layout.parameter_shards))


def _partial_bytes(layout: Layout) -> int:
    """Bytes of a gradient that tensor ranks add up: FP32 where micro-batches are summed before, else as it comes."""
    summed = max(layout.gradient_shards, layout.parameter_shards) == 1 or layout.pipeline_parallel > 1
    return STATE_BYTES if summed and layout.num_microbatches > 1 else ACTIVATION_BYTES


def _reduced(messages: Iterator[Message], number: int, once: bool) -> Iterator[Message]:
    return (each.times(1 if once else number) for each in messages)


def _sharding(case: Case, layout: Layout, chunk: Chunk) -> Iterator[Message]:
    """Sharded data parallelism of a chunk's layers and ends."""
    model, tp, ep = case.model, layout.tensor_parallel, layout.expert_parallel
    shards, ranks = max(layout.gradient_shards, layout.parameter_shards), layout.data_parallel * layout.context_parallel
    number = 1 if layout.pipeline_parallel > 1 else layout.num_microbatches
    gathers = number * (2 if layout.parameter_shards > 1 and layout.pipeline_parallel == 1 else 1)
    owners = layout.optimizer_shards if shards == 1 else 1
    options = {"gathers": gathers, "scatters": number, "reductions": 1}
    dense = {"shards": shards, "replicas": ranks // shards, "owners": owners, **options}
    apart = tp > 1 or ep > 1
    replicas = ranks * tp // ep
    expert_shards = min(shards, replicas)
    routed = {
        "shards": expert_shards, "replicas": replicas // expert_shards, "owners": min(owners, replicas), **options,
    }
    for kind, _ in chunk.layers:
        counts = layer_parameters(model, kind, tp=tp, ep=ep)
        yield from unit_messages(float(np.asarray(counts.dense if apart else counts.total)), **dense)
        if apart and kind.experts is not None:
            yield from unit_messages(float(np.asarray(counts.routed)), **routed)
    vocabulary = int(vocabulary_rows(case, np.asarray(float(tp))))
    front = float(np.asarray(embedding_parameters(model, tp=tp, vocabulary=vocabulary).dense)) if chunk.first else 0.0
    copied = layout.pipeline_parallel > 1
    back = head_parameters(model, tp=tp, vocabulary=vocabulary, copied=copied) + final_norm_parameters(model)
    behind = float(np.asarray(back.dense)) if chunk.last else 0.0
    if front + behind:  # one unit, but gathered by owners as two
        yield from unit_messages(front + behind, **{**dense, "owners": 1})
    for end in (front, behind):
        if end:
            yield from message("all-gather", owners, STATE_BYTES * end)
