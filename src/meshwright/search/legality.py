"""Whether one layout is legal: the rules of the grid, asked about a layout."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from meshwright.domain.label import CONTEXT_KINDS, MODULES, SCHEDULES
from meshwright.domain.launch import OFF
from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective
from meshwright.estimate.evaluate import schedule_of, split_of
from meshwright.search.rules import Knobs, refusals

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.rules import Level


def knobs_of_layout(layout: Layout) -> Knobs:
    """A layout as the rules see it."""

    match layout.recompute:
        case NoRecompute():
            treatment = "none"
        case Selective():
            treatment = "selective"
        case Full():
            treatment = "full"
        case Mixed():
            treatment = "mixed"
    return Knobs(
        tp=layout.tensor_parallel, cp=layout.context_parallel, pp=layout.pipeline_parallel, dp=layout.data_parallel,
        ep=layout.expert_parallel, etp=layout.expert_tensor_parallel, mb=layout.microbatch_sequences, m=layout.num_microbatches,
        vp=layout.virtual_stages, schedule=schedule_of(layout), treatment=treatment, zero=layout.zero_stage,
        shards=layout.optimizer_shards, sp=int(layout.sequence_parallel), context=layout.context_kind,
        offload=int(bool(layout.offload)),
    )


def layout_refusals(case: Case, features: Features, layout: Layout, *, level: Level | None = None) -> tuple[str, ...]:
    """Every rule that refuses a layout, of one level where only its knobs have changed; empty where it is legal."""
    return refusals(case, features, knobs_of_layout(layout), level=level)


def arithmetic_refusals(case: Case, features: Features, layout: Layout) -> tuple[str, ...]:
    """The rules that refuse a layout under any framework: what makes no sense, rather than what this one lacks."""
    return shape_refusals(case, layout) or layout_refusals(case, able(features), layout)


def shape_refusals(case: Case, layout: Layout) -> tuple[str, ...]:
    """Why a layout that somebody wrote down cannot even be asked about: it exceeds its devices, or its stages the model."""
    if layout.world > case.cluster.num_devices:
        return (f"the layout needs {layout.world} devices, the cluster has {case.cluster.num_devices}",)
    groups = (
        layout.expert_parallel, layout.expert_tensor_parallel, layout.optimizer_shards, layout.gradient_shards,
        layout.parameter_shards,
    )
    if max(groups) > layout.world:
        return (f"a group of {max(groups)} ranks exceeds the {layout.world} devices",)
    if layout.virtual_stages > case.model.num_layers:
        return (f"{layout.virtual_stages} virtual stages exceed the {case.model.num_layers} layers",)
    for name, lists in (("layers", layout.stage_layers), *(("recomputed layers", counts) for counts in _recompute_lists(layout))):
        if isinstance(lists, tuple):
            shape = {(len(lists), len(chunk)) for chunk in lists}
            if shape != {(layout.virtual_stages, layout.pipeline_parallel)}:
                return (f"the {name} by stage do not have the shape of the pipeline",)
    placed = sum(map(sum, layout.stage_layers or ()))
    if placed != case.model.num_layers and layout.stage_layers is not None:
        return (f"the stages hold {placed} layers, the model has {case.model.num_layers}",)
    if isinstance(layout.recompute, Mixed):
        for wanted, layers in zip(chain(*layout.recompute.counts), chain(*split_of(case, layout)), strict=True):
            if wanted > layers:
                return (f"{wanted} layers of a chunk are recomputed, it has {layers}",)
    return ()


def _recompute_lists(layout: Layout) -> tuple[object, ...]:
    """Counts of recomputed layers that a layout gives by stage."""
    match layout.recompute:
        case Full(layers=layers):
            return (layers,)
        case Mixed(parts=parts):
            return tuple(counts for _, counts in parts)
        case _:
            return ()


def able(features: Features) -> Features:
    """A framework that can do everything; only the meaning of the shard group is kept."""
    return replace(
        features, schedules=SCHEDULES, zero_stages=(0, 1, 2, 3), partial_sharding=True,
        parameter_shards_with_pipeline=True, context_kinds=CONTEXT_KINDS, context_parallel=True, pipeline_parallel=True,
        expert_parallel=True, expert_tensor_parallel=True, sequence_parallel=True, uneven_stages=True,
        recompute=("none", "selective", "full"), recompute_first_layers=True, recompute_mixed=True, selective_modules=MODULES,
        positions=("rope", "learned", "alibi", "none"), interleaved_needs_multiple=False, optimizer_offload=True,
        offload_zero_stages=(0, 1, 2, 3), offloads=tuple(OFF),
    )
