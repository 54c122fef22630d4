"""The layout that a row describes, from its own columns and what its source means beside them."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

from meshwright.domain.label import parse_layout
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.evidence.rows.conventions import conventions
from meshwright.evidence.rows.refused import ImpossibleError, UnreadableError
from meshwright.evidence.rows.row_system import cluster_of

if TYPE_CHECKING:
    from meshwright.evidence.rows.row import Row
    from meshwright.evidence.rows.said import Said

NODE = 8
"""Devices of a node over which hybrid sharding shards."""


def layout_of(row: Row, num_layers: int) -> Layout:
    """The layout of a row; stages are as even as possible until ``row_placement.placed`` says otherwise.

    Errors:  ``InputError`` for a label that is none; ``UnreadableError`` for one that contradicts the columns.
    """
    said = row.said
    if said.layout:
        return _labelled(row)
    tp, cp, pp, ep = (row.tensor_parallel or 1, row.context_parallel or 1, row.pipeline_parallel or 1, row.expert_parallel or 1)
    mb = said.microbatch_sequences or row.microbatch_sequences or 1
    blank = max(1, num_layers // pp) if said.layer_per_chunk else 1
    chunks = (said.virtual_stages or row.virtual_stages or blank) if pp > 1 else 1
    devices, sequences = row.num_devices or 1, row.global_batch_sequences or 1
    dp = devices // (tp * cp * pp)
    if dp < 1 or dp * tp * cp * pp != devices:
        raise ImpossibleError("degrees do not multiply to the devices")
    if sequences % (dp * mb):
        raise ImpossibleError("the batch does not split over the replicas")
    shards, stage = _shards(row, tp=tp, cp=cp, dp=dp), row.zero_stage if said.zero_stage is None else said.zero_stage
    return Layout(
        tensor_parallel=tp, context_parallel=cp, pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep,
        sequence_parallel=tp > 1 and (said.sequence_parallel if row.sequence_parallel is None else row.sequence_parallel),
        expert_tensor_parallel=row.expert_tensor_parallel or (tp if said.experts_as_tensor else 1), data_parallel=dp,
        optimizer_shards=shards if stage >= 1 else 1, gradient_shards=shards if stage >= 2 else 1,
        parameter_shards=shards if stage >= 3 else 1,
        microbatch_sequences=mb, num_microbatches=sequences // (dp * mb), recompute=_recompute(said, pp, chunks),
        schedule="interleaved" if chunks > 1 else "1f1b", context_kind=said.context_kind,
        offload=("optimizer",) if said.offloaded_states else (), attention=said.attention,
        overlap=Overlap(
            tensor=said.tensor_overlap and tp > 1, expert=said.expert_overlap, gradient_reduce=said.gradient_overlap,
            parameter_gather=said.parameter_overlap, point_to_point=said.message_overlap,
        ),
    )


LABELLED = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel", "data_parallel", "microbatch_sequences")


def _labelled(row: Row) -> Layout:
    """The layout that the row's label says."""
    layout = parse_layout(row.said.layout, num_devices=row.num_devices or 1, global_batch_sequences=row.global_batch_sequences or 1)
    for name in LABELLED:
        told, meant = getattr(row, name), getattr(layout, name)
        if told not in (None, meant):
            raise UnreadableError("cells contradict each other", f"{name} {told}, but the layout of extra_settings says {meant}")
    return layout


def _shards(row: Row, *, tp: int, cp: int, dp: int) -> int:
    """Ranks over which states are sharded.

    ``fewest``: the least power of two from 8 up at which 16 bytes a parameter take at most 30 % of memory.
    """
    said, ranks = row.said, dp * cp
    if said.shards is not None:
        return said.shards
    if said.sharding == "replicas":
        return dp
    if said.sharding == "node":
        return max(1, min(ranks, NODE // tp))
    if said.sharding == "fewest":
        needed = 16e9 * (row.shape.parameters_billions or 0.0) / (0.3 * cluster_of(row).device.memory_bytes)
        return min(ranks, max(NODE, 1 << ceil(log2(max(needed, 1.0)))))
    return min(ranks, said.max_shards or ranks)


def _recompute(said: Said, stages: int, chunks: int) -> Recompute:
    """What is run again; of a stage, where its first chunk alone is meant."""
    kind, _, rest = said.recompute.partition(":")
    if kind == "selective":
        words = conventions().recompute_words
        return Selective(modules=tuple(words[word] for word in rest.split("+") if word in words) or ("core_attn",))
    if kind != "full":
        return NoRecompute()
    if not rest:
        return Full()
    layers = int(rest)
    return Full(layers=((layers,) * stages, *((0,) * stages for _ in range(chunks - 1))) if said.first_chunk_only else layers)
