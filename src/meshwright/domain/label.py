"""The compact label of a layout, read and written: ``tp8 pp4 vp2 dp16 mb1 sp zero1 recompute=full:2``.

Words stand in any order. An omitted degree is 1, an omitted ``dp`` follows from the number of devices, and the number
of micro-batches follows from the global batch. ``attention=flash|fused|math`` and ``compile=on|off`` name kernels where
they are not the framework's own. Beyond the contract's words, ``context=KIND`` names the kind of context
parallelism, ``shards=O,G,P`` sets three unequal shard groups, and ``shardnode`` is the data-parallel part of one node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.label_reader import (
    ATTENTION_KERNELS,
    CONTEXT_KINDS,
    DEGREES,
    MAX_ZERO_STAGE,
    OVERLAPS,
    SCHEDULES,
    Reader,
    Shards,
    names,
    of_stage,
    one,
    overlap_of,
)
from meshwright.domain.layout import ContextKind, Grid, Layout, NoRecompute, Overlap, Recompute, overlapping
from meshwright.domain.recompute_label import MODULES, list_word, parse_list, parse_recompute, recompute_word
from meshwright.errors import InputError

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.errors import Message

__all__ = [
    "ATTENTION_KERNELS", "CONTEXT_KINDS", "DEGREES", "MAX_ZERO_STAGE", "MODULES", "OVERLAPS", "SCHEDULES", "label", "label_faults",
    "parse_layout", "parse_list", "parse_recompute", "recompute_word",
]
_NO_RECOMPUTE: Recompute = NoRecompute()
_NO_NAMES: tuple[str, ...] = ()
_RING: ContextKind = "ring"


def label(
    layout: Layout, *, overlap: Overlap | None = None, stage_layers: Grid | None = None, experts: bool = True
) -> str:
    """The label that ``parse_layout`` reads back as this layout.

    What goes unsaid: the framework's ``overlap`` and its own ``stage_layers``, where they are given, and the overlap of what the
    layout does not communicate; without ``experts`` in its model their replicas, too.
    """
    default = overlap if overlap is not None else Overlap()
    degrees = dict(zip(DEGREES, (
        layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.virtual_stages,
        layout.expert_parallel, layout.expert_tensor_parallel, layout.data_parallel, layout.microbatch_sequences,
    ), strict=True))
    words = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1 or name in {"tp", "pp", "dp", "mb"}]
    words += ["sp"] * layout.sequence_parallel
    shards = Shards(layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    words += [f"zero{layout.zero_stage}"]
    size = shards.optimizer
    if shards != of_stage(layout.zero_stage, size):
        words[-1] = f"shards={shards.optimizer},{shards.gradient},{shards.parameter}"
    elif layout.zero_stage and size != layout.data_parallel * layout.context_parallel:
        words += [f"shard{size}"]
    words += [f"recompute={recompute_word(layout.recompute)}"] if layout.recompute != NoRecompute() else []
    implied = "interleaved" if layout.virtual_stages > 1 else "1f1b"
    words += [f"schedule={layout.schedule}"] if layout.schedule != implied else []
    words += [f"context={layout.context_kind}"] if layout.context_kind != "ring" else []
    words += [f"layers={list_word(layout.stage_layers)}"] if layout.stage_layers not in (None, stage_layers) else []
    words += [f"offload={','.join(layout.offload)}"] if layout.offload else []
    words += [f"attention={layout.attention}"] if layout.attention is not None else []
    words += [f"compile={'on' if layout.compiled else 'off'}"] if layout.compiled is not None else []
    heard = overlapping(layout, experts=experts)
    if any(getattr(layout.overlap, name) != getattr(default, name) for name in heard):
        active = [word for word, name in OVERLAPS.items() if name in heard and getattr(layout.overlap, name)]
        words += [f"overlap={','.join(active) or 'none'}"]
    return " ".join(words)


def parse_layout(
    text: str,
    *,
    num_devices: int,
    global_batch_sequences: int,
    devices_per_node: int = 8,
    model: Model | None = None,
    shards_over_context: bool = True,
    overlap: Overlap | None = None,
    max_idle_devices: int = 0,
) -> Layout:
    """Read a label; every fault of it is in the ``InputError``, one line each.

    ``shards_over_context``: ``zeroN`` alone shards over dp*cp, otherwise over dp. ``overlap``: what the framework does
    where the label is silent. ``max_idle_devices``: so many devices may be left unused. ``model`` checks stage layers.
    """
    layout, faults = _read(
        text, num_devices=num_devices, batch=global_batch_sequences, devices_per_node=devices_per_node, model=model,
        shards_over_context=shards_over_context, overlap=overlap, max_idle_devices=max_idle_devices,
    )
    if layout is None:
        raise InputError(faults)
    return layout


def label_faults(
    text: str,
    *,
    num_devices: int | None = None,
    global_batch_sequences: int | None = None,
    devices_per_node: int | None = None,
    model: Model | None = None,
    shards_over_context: bool | None = None,
    max_idle_devices: int = 0,
) -> list[Message]:
    """Everything that is wrong with a label, as far as what is known of its case tells; None is not known."""
    _, faults = _read(
        text, num_devices=num_devices, batch=global_batch_sequences, devices_per_node=devices_per_node, model=model,
        shards_over_context=shards_over_context, overlap=None, max_idle_devices=max_idle_devices,
    )
    return faults


def _read(
    text: str, *, num_devices: int | None, batch: int | None, devices_per_node: int | None, model: Model | None,
    shards_over_context: bool | None, overlap: Overlap | None, max_idle_devices: int,
) -> tuple[Layout | None, list[Message]]:
    """The layout, where everything of its case is known and nothing is wrong, and the faults."""
    reader = Reader(text)
    word = reader.values
    tp, cp, pp, vp, ep, etp, _, mb = (word.get(name, 1) for name in DEGREES)
    dp = reader.data_parallel(tp * cp * pp, num_devices, max_idle_devices)
    microbatches, shards = 0, Shards(1, 1, 1)
    if dp is not None and reader.known("tp", "cp", "ep", "etp"):
        reader.check(
            (tp * cp * dp) % (ep * etp) == 0,
            "label.experts", "ep x etp = {ep} x {etp} does not divide the {ranks} devices of a stage (tp x cp x dp)",
            ep=ep, etp=etp, ranks=tp * cp * dp,
        )
    if dp is not None and batch is not None:
        microbatches, rest = divmod(batch, dp * mb)
        reader.check(
            microbatches > 0 and rest == 0, "label.batch",
            "global batch {batch} is no multiple of dp x mb = {dp} x {mb} = {product}: micro-batches = batch / (dp x mb)",
            batch=batch, dp=dp, mb=mb, product=dp * mb,
        )
    known = reader.known("cp", "zero", "shard") and (shards_over_context is not None or cp == 1)
    if dp is not None and known and (devices_per_node is not None or reader.texts.get("shard") != "node"):
        shards = reader.shards(dp * (cp if shards_over_context else 1), dp * cp, max(1, (devices_per_node or 1) // tp))
    recompute = reader.value("recompute", parse_recompute, _NO_RECOMPUTE)
    placed = reader.value("layers", parse_list, None)
    stage_layers = None
    if reader.known("pp", "vp"):
        recompute = reader.recompute(recompute, pp, vp)
        stage_layers = reader.placed(placed, recompute, pp, vp, model)
    said = reader.value("overlap", overlap_of, overlap if overlap is not None else Overlap())
    offload = reader.value("offload", lambda text: names(text, ("optimizer",), "offload"), _NO_NAMES)
    context_kind = reader.value("context", lambda text: one(text, CONTEXT_KINDS, "context"), _RING)
    schedule = reader.schedule(vp)
    attention = reader.value("attention", lambda text: one(text, ATTENTION_KERNELS, "attention"), None)
    compiled = reader.value("compile", lambda text: one(text, ("on", "off"), "compile") == "on", None)
    if reader.faults or dp is None or batch is None:
        return None, reader.faults
    layout = Layout(
        tensor_parallel=tp, sequence_parallel=word.get("sp", 0) == 1, context_parallel=cp, context_kind=context_kind,
        pipeline_parallel=pp, virtual_stages=vp, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=shards.optimizer, gradient_shards=shards.gradient, parameter_shards=shards.parameter,
        microbatch_sequences=mb, num_microbatches=microbatches, recompute=recompute, schedule=schedule,
        stage_layers=stage_layers, offload=offload, overlap=overlap or Overlap(), attention=attention, compiled=compiled,
    )
    heard = {name: getattr(said, name) for name in overlapping(layout, experts=model is None or model.is_moe)}
    return replace(layout, overlap=replace(layout.overlap, **heard)), []
