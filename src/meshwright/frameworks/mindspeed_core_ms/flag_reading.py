"""Flags of br_master, and the sections of its ``--yaml-cfg``, as a layout."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap
from meshwright.errors import Message
from meshwright.frameworks.ascend.stages import Split, counts_of, lists_of, recompute_of, said_split, transposed, within_reason
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of, world_of, zero_shards
from meshwright.frameworks.mindspeed_core_ms.flags import ALGORITHMS, own_split
from meshwright.frameworks.mindspeed_llm.model_flags import figures_of
from meshwright.frameworks.settings import Given, Reading, Said, Source

if TYPE_CHECKING:
    from meshwright.domain.layout import ContextKind, Recompute

KINDS: dict[str, str] = {algorithm: kind for kind, algorithm in ALGORITHMS.items()}
YAML_SECTIONS = ("model_parallel", "language_model")
"""Sections of ``--yaml-cfg`` that hold what flags hold."""


def interpret(source: Source, given: Given, release: str) -> Reading:
    """Flags, or the sections of ``--yaml-cfg`` under the same names, as br_master understands them."""
    from meshwright.frameworks.mindspeed_core_ms import surface

    values = Values(source=as_flags(source), surface=surface(), release=release)
    tp, pp, cp, ep, mb = (
        values.degree(f"--{name}-size")
        for name in ("tensor-model-parallel", "pipeline-model-parallel", "context-parallel", "expert-model-parallel", "micro-batch")
    )
    layers = values.int("--num-layers") or (given.model.num_layers if given.model else None)
    vp = values.degree("--virtual-pipeline-model-parallel-size")
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
        kind = KINDS.get(values.text("--context-parallel-algo", "ulysses_cp_algo"), "ring") if cp > 1 else "ring"
        layout = Layout(
            tensor_parallel=tp, sequence_parallel=values.bool("--sequence-parallel") and tp > 1, context_parallel=cp,
            context_kind=cast("ContextKind", kind), pipeline_parallel=pp, virtual_stages=vp, expert_parallel=ep, data_parallel=dp,
            **zero_shards(stage, size), offload=(), microbatch_sequences=mb, num_microbatches=m, recompute=recompute,
            schedule="interleaved" if vp > 1 else "1f1b", stage_layers=said_split(split, layers, 0) if split and layers else split,
            overlap=Overlap(
                gradient_reduce=wrapped and values.bool("--overlap-grad-reduce"),
                parameter_gather=distributed and values.bool("--overlap-param-gather"), tensor=False,
                point_to_point=not values.bool("--no-overlap-p2p-communication"), expert=False,
            ),
        )  # fmt: skip
    said = Said(
        devices=world,
        global_batch_sequences=batch,
        sequence_tokens=values.int("--seq-length"),
        optimizer="adamw",
        precision="bf16" if values.bool("--bf16") else "fp16" if values.bool("--fp16") else None,
        figures=figures_of(values, layers),
    )
    return Reading(framework="mindspeed-core-ms", version=release, source=source, said=said, layout=layout,
                   messages=(*values.messages, *remarks))  # fmt: skip


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
    """Granularity, method and number; or the lists of the YAML."""
    remarks: list[Message] = []
    for name in ("select_recompute", "select_comm_recompute"):
        setting = values.source.settings.get(f"language_model.recompute_config.{name}")
        if setting and setting.value:
            remarks.append(
                Message(
                    "import.select",
                    "{key} has no word in a layout: an estimate counts it as kept",
                    {"key": setting.key},
                    setting.place,
                )
            )
    lists = lists_of(values.source.value("language_model.recompute_config.recompute"))
    if lists is not None:
        counts = transposed(lists) if chunks > 1 and len({len(row) for row in lists}) == 1 else lists
        return recompute_of(counts, split), remarks
    granularity, number = values.text("--recompute-granularity"), values.int("--recompute-num-layers")
    if granularity == "selective" or values.bool("--recompute-activations"):
        remarks.append(
            Message(
                "import.select",
                "{key} has no word in a layout: with flash attention it recomputes the MLP's activation function",
                {"key": "--recompute-granularity selective"},
            )
        )
    if granularity != "full":
        return NoRecompute(), remarks
    if values.text("--recompute-method") == "uniform" or number is None:
        return Full(), remarks
    return (recompute_of(counts_of(Full(layers=number), split), split) if split else Full(layers=number)), remarks
