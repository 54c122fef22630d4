"""The layout that a row describes, from its own columns, and where its framework places the layers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.estimate.split import cost_split, fill_split
from meshwright.evidence.rows import ascend, nvidia
from meshwright.evidence.rows.conventions import conventions
from meshwright.evidence.rows.refused import ImpossibleError
from meshwright.evidence.rows.row_system import cluster_of

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.estimate.split import Split
    from meshwright.evidence.rows.row import Row


def layout_of(row: Row, num_layers: int) -> Layout:
    """The layout of the columns; stages are as even as possible until ``placed`` says otherwise."""
    tp, cp, pp, ep = (row.tensor_parallel or 1, row.context_parallel or 1, row.pipeline_parallel or 1, row.expert_parallel or 1)
    mb, chunks = row.microbatch_sequences or 1, row.virtual_stages or (max(1, num_layers // pp) if nvidia.packed(row) else 1)
    devices, sequences = row.num_devices or 1, row.global_batch_sequences or 1
    if row.model in (known := conventions().micro_batches) and row.framework_version.startswith("2021"):
        mb, chunks = known[row.model]
    chunks = chunks if pp > 1 else 1
    dp = devices // (tp * cp * pp)
    if dp < 1 or dp * tp * cp * pp != devices:
        raise ImpossibleError("degrees do not multiply to the devices")
    if sequences % (dp * mb):
        raise ImpossibleError("the batch does not split over the replicas")
    framework = row.framework
    old = framework == "nemo" and row.framework_version[:5] < "25.04"
    etp = row.expert_tensor_parallel or (tp if old and ep > 1 else 1)
    shards, zero = dp * cp, row.zero
    if framework == "nanotron":
        shards = dp
    if zero == "hsdp":
        shards = max(1, min(shards, 8 // tp))
    if framework in ("maxtext", "paxml"):
        shards = nvidia.shards(row, dp * cp, cluster_of(row).device.memory_bytes)
    named = re.search(r"zero1 group size=(\d+)", row.notes)
    if named:
        shards = int(named[1])
    bridge = framework in ("nemo", "megatron-bridge")
    if ascend.is_megatron(row) or ascend.is_mindspore(row):
        overlap, again = ascend.overlap(row), ascend.recompute(row, pp, chunks)
    else:
        overlap, again = _overlap(row, tensor=bridge and tp > 1), _recompute(row.recompute)
    return Layout(
        tensor_parallel=tp, context_parallel=cp,
        sequence_parallel=tp > 1 and (bridge if row.sequence_parallel is None else row.sequence_parallel),
        pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=shards if zero in ("1", "2", "3", "fsdp", "hsdp") else 1,
        gradient_shards=shards if zero in ("2", "3", "fsdp", "hsdp") else 1,
        parameter_shards=shards if zero in ("3", "fsdp", "hsdp") else 1,
        microbatch_sequences=mb, num_microbatches=sequences // (dp * mb), recompute=again,
        schedule="interleaved" if chunks > 1 else "1f1b",
        overlap=overlap, context_kind=ascend.context_kind(row),
    )


def placed(row: Row, given: Row, model: Model, layout: Layout) -> Layout:
    """The layout with its layers where the row or its framework puts them; ``given`` is the row before blanks were filled."""
    stages, chunks, layers = layout.pipeline_parallel, layout.virtual_stages, layout.stage_layers
    if row.framework == "nanotron" and stages > 1:
        layers = cost_split(model, stages)
    if told := nvidia.said(row).layout:
        split = nvidia.layers_of(told, stages, chunks)
        layers = split if split and sum(map(sum, split)) == model.num_layers else None
    if "type:transformer|embedding" in row.notes and stages > 1:
        layers = _embedding_slots(model.num_layers, stages)
    if ascend.is_megatron(row):
        layers = ascend.stage_layers(given, stages, chunks)
    layout = replace(layout, stage_layers=layers)
    if row.framework == "nanotron" and (reason := _refused_by_nanotron(layout)):
        raise ImpossibleError(reason)
    return layout


def _refused_by_nanotron(layout: Layout) -> str | None:
    """Why nanotron cannot run a layout, whatever its memory; ``cost_split`` says where its blocks stand.

    Norm, output layer, cast and loss follow the last layer, each rank ending with the block that passes its share of the
    cost: two ranks behind the output layer at most get a block, and those have no parameters, which DDP (ZeRO-0) refuses.
    """
    if layout.num_microbatches < layout.pipeline_parallel - 1:
        return "nanotron asserts at least PP - 1 micro-batches"
    behind = layout.stage_layers[0].count(0) - 1 if layout.stage_layers else 0
    if behind > 2:
        return "nanotron leaves a stage without any block"
    if behind > 0 and layout.zero_stage == 0 and layout.data_parallel > 1:
        return "DDP refuses a stage without parameters"
    return None


def _embedding_slots(num_layers: int, stages: int) -> Split:
    """Megatron-DeepSpeed's partition by transformer and embedding layers: both ends count as a layer each."""
    (counts,) = fill_split(num_layers + 2, stages)
    return ((counts[0] - 1, *counts[1:-1], counts[-1] - 1),)


def _recompute(text: str) -> Recompute:
    if text.startswith("full"):
        return Full()
    if text == "selective(op)":
        return Selective(modules=("core_attn", "op"))
    if text.startswith("selective"):
        named = text.partition(":")[2].replace("norm+act+shared_expert", "layernorm+moe_act+shared_experts")
        known = {"core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts"}
        return Selective(modules=tuple(word for word in named.split("+") if word in known) or ("core_attn",))
    return NoRecompute()


def _overlap(row: Row, *, tensor: bool) -> Overlap:
    off = "no comm overlap" in row.notes
    return Overlap(
        tensor=tensor, expert=nvidia.said(row).expert_overlap, gradient_reduce=not off, parameter_gather=not off,
        point_to_point=not off,
    )
