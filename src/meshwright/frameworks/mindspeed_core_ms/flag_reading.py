"""Flags of br_master, and the sections of its ``--yaml-cfg``, as a layout."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Selective
from meshwright.errors import Message
from meshwright.frameworks.ascend.recompute_lists import LISTS, recompute_of_lists
from meshwright.frameworks.ascend.stages import (
    Split,
    counts_of,
    lists_of,
    recompute_of,
    said_split,
    shape_of,
    transposed,
    within_reason,
)
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of, world_of, zero_shards
from meshwright.frameworks.keys import told
from meshwright.frameworks.mindspeed_core_ms.flags import KEYS, own_split
from meshwright.frameworks.mindspeed_core_ms.writing import CELLS, COMM, FLASH_SELECTS, PLAIN_SELECTS
from meshwright.frameworks.mindspeed_llm.model_flags import figures_of
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.domain.layout import Recompute

UNTESTED = "hybarid_cp_algo"
"""A choice of ``--context-parallel-algo`` that no code tests: keys and values are passed around as without it."""
YAML_SECTIONS = ("model_parallel", "language_model")
"""Sections of ``--yaml-cfg`` that hold what flags hold."""
YAML_LISTS = "language_model.recompute_config"


def interpret(source: Source, given: Given, release: str) -> Reading:
    """Flags, or the sections of ``--yaml-cfg`` under the same names, as br_master understands them."""
    from meshwright.frameworks.mindspeed_core_ms import surface

    values = Values(source=as_flags(source), surface=surface(), release=release)
    tp, pp, cp, ep, mb = (
        told(KEYS, values, knob)
        for knob in ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "microbatch_sequences")
    )
    layers = values.int("--num-layers") or (given.model.num_layers if given.model else None)
    vp = told(KEYS, values, "virtual_stages")
    per_chunk = values.int("--num-layers-per-virtual-pipeline-stage")
    if per_chunk and layers and pp > 1:
        vp = max(1, layers // pp // per_chunk)
    layers, pp, vp = within_reason(values, layers, pp, vp)
    split = _split(values, layers, pp, vp)
    world = world_of(values, given)
    dp = data_parallel_of(values, world, tp * cp * pp)
    batch = values.int("--global-batch-size") or given.global_batch_sequences or (mb * dp if dp else None)
    m = microbatches_of(values, batch, mb, dp)
    recompute, remarks = _recompute(values, split, vp)
    level, distributed = values.text("--zero-level"), values.bool("--use-distributed-optimizer")
    wrapped = not level or distributed
    stage = (3 if level == "z3" else 1) if distributed else {"z1": 1, "z2": 2, "z3": 3}.get(level, 0)
    wanted = values.int("--zero_shard_size", -1) or -1
    size = wanted if distributed and dp and 1 < wanted <= dp and dp % wanted == 0 else (dp or 1) * cp
    layout = None
    if dp is not None and m is not None and not values.messages:
        ring = cp == 1 or values.text("--context-parallel-algo") == UNTESTED
        layout = Layout(
            tensor_parallel=tp, sequence_parallel=told(KEYS, values, "sequence_parallel") and tp > 1, context_parallel=cp,
            context_kind="ring" if ring else told(KEYS, values, "context_kind"),
            pipeline_parallel=pp, virtual_stages=vp, expert_parallel=ep, data_parallel=dp,
            **zero_shards(stage, size), offload=(), microbatch_sequences=mb, num_microbatches=m, recompute=recompute,
            schedule="interleaved" if vp > 1 else "1f1b", stage_layers=said_split(split, layers, 0) if split and layers else split,
            attention=None if values.bool("--use-flash-attn") else "math", compiled=None,
            overlap=Overlap(
                gradient_reduce=wrapped and told(KEYS, values, "overlap.gradient_reduce"),
                parameter_gather=distributed and told(KEYS, values, "overlap.parameter_gather"), tensor=False,
                point_to_point=told(KEYS, values, "overlap.point_to_point"), expert=False,
            ),
        )
    said = Said(
        devices=world,
        global_batch_sequences=batch,
        sequence_tokens=values.int("--seq-length"),
        optimizer="adamw",
        precision="bf16" if values.bool("--bf16") else "fp16" if values.bool("--fp16") else None,
        figures=figures_of(values, layers),
    )
    return Reading(framework="mindspeed-core-ms", version=release, source=source, said=said, layout=layout,
                   messages=(*values.messages, *remarks))


def as_flags(source: Source) -> Source:
    """YAML keys under the names of the flags that they stand for."""
    renamed = dict(source.settings)
    for key, setting in source.settings.items():
        section, dot, name = key.partition(".")
        if not key.startswith("-") and "recompute_config" not in key and (not dot or section in YAML_SECTIONS):
            flag = "--zero_shard_size" if (name or key) == "zero_shard_size" else "--" + (name or key).replace("_", "-")
            value = json.dumps(setting.value) if isinstance(setting.value, list) else setting.value
            renamed.setdefault(flag, replace(setting, key=flag, value=value))
    return replace(source, settings=renamed)


def _split(values: Values, layers: int | None, stages: int, chunks: int) -> Split | None:
    """The split: as listed (``[stage][chunk]``), or as the framework splits."""
    lists = lists_of(values.get("--num-layer-list")) if values.has("--num-layer-list") else None
    if values.has("--num-layer-list") and lists is None:
        values.note("--num-layer-list", "setting.list", "{key} is no list of counts by stage", key="--num-layer-list")
    if lists is not None:
        return transposed(lists) if chunks > 1 and len({len(row) for row in lists}) == 1 else lists
    return own_split(layers, stages, chunks) if layers and layers >= stages * chunks else None


def _recompute(values: Values, split: Split | None, chunks: int) -> tuple[Recompute, list[Message]]:
    """Granularity, method and number; or the lists of the YAML, each by what it recomputes."""
    selects, settings = selected(values), values.source.settings
    lists = {name: found for name in LISTS if (found := _list(values, name, chunks)) is not None}
    granularity, number = values.text("--recompute-granularity"), values.int("--recompute-num-layers")
    selective = granularity == "selective" or values.bool("--recompute-activations")
    remarks = []
    asked = next((key for key in (f"{YAML_LISTS}.select_recompute", "--recompute-granularity", "--recompute-activations")
                  if key in settings), "")
    if asked and not selects and (selective or any(map(any, lists.get("select_recompute", ())))):
        remarks.append(Message("import.select", "{key} recomputes nothing: with flash attention it takes the MLP's activation, "
                               "which is no Cell", {"key": asked}, settings[asked].place))
    if lists and split is not None and all(shape_of(counts) == shape_of(split) for counts in lists.values()):
        zeros = tuple((0,) * len(row) for row in split)
        full, select, comm = (lists.get(name, zeros) for name in LISTS)
        words = {COMM: comm} | ({selects: select} if selects else {})
        return recompute_of_lists(full, words, split, behind_full=True), remarks
    if LISTS[0] in lists:
        return recompute_of(lists[LISTS[0]], split), remarks
    if selective:
        return (Selective(modules=(selects,)) if selects else NoRecompute()), remarks
    if granularity != "full":
        return NoRecompute(), remarks
    if values.text("--recompute-method") == "uniform" or number is None:
        return Full(), remarks
    return (recompute_of(counts_of(Full(layers=number), split), split) if split else Full(layers=number)), remarks


def _list(values: Values, name: str, chunks: int) -> Split | None:
    """A list of the YAML, ``[stage][chunk]``, as counts by chunk and stage; None where there is none."""
    lists = lists_of(values.source.value(f"{YAML_LISTS}.{name}"))
    if lists is None or any(count < 0 for row in lists for count in row):
        return None
    return transposed(lists) if chunks > 1 and shape_of(lists) is not None else lists


def selected(values: Values) -> str:
    """The module that selective recomputation recomputes; empty where it has no effect."""
    if not values.bool("--use-flash-attn"):
        return PLAIN_SELECTS
    named = any(values.bool(flag) for flag in ("--swiglu", "--fused-swiglu", "--silu", "--squared-relu"))
    return "" if named or values.text("--activation-func", "gelu") not in CELLS else FLASH_SELECTS
