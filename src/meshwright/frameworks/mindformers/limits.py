"""What MindFormers refuses of a case and a layout: 2.1 PyNative and graph mode, in its own words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import Selective
from meshwright.frameworks.ascend.arithmetic import CROSSING, arithmetic, expressible, recompute_crossing, recompute_excess
from meshwright.frameworks.ascend.refusals import refusals
from meshwright.frameworks.ascend.stages import split_of
from meshwright.frameworks.rules import rule, values_if

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.rules import Words

NAME, TITLE = "mindformers", "MindFormers"
PYNATIVE_WORDS: Words = {
    "world": ("Invalid parallel dims: dp_replicate * dp_shard({dp}) * cp({cp}) * tp({tp}) * pp({pp}) != "
              "WORLD_SIZE({devices})", "start"),
    "batch": ("global_batch_size({batch}) must be divisible by data_parallel({dp}) * local_batch_size({mb}).", "start"),
    "schedule": ("pipeline_parallel_schedule='{schedule}' is incompatible with pipeline_parallel_interleave_num={vpp}", "start"),
    "stage-shape": ("The length of 'pipeline_parallel_layers_per_stage' must equal 'pipeline_parallel', with one "
                    "chunk for each interleave: {shape} is not {layout}", "start"),
}
GRAPH_WORDS: Words = {
    "world": ("The parallel config data_parallel * model_parallel * context_parallel * pipeline_stage should be equal to "
              "device_num, but get dp*mp*sp*pp = {dp}*{tp}*{cp}*{pp} = {product} != device_num({devices})", "start"),
    "stage-shape": ("offset.shape should be {layout}, but got {shape}", "start"),
    "stage-sum": ("The sum of `offset` should equal to remainder of `num_layers` ({layers}): the stages have {total}", "start"),
    "expert-sequence": ("During training, performance may degrade if MoE and tensor parallelism are enabled without "
                        "also enabling sequence parallelism.", "start"),
}


def pynative(features: Features) -> tuple[Limit, ...]:
    """Every rule of the PyNative trainer of 2.1.0."""
    found: list[Limit] = []
    add = partial(rule, found)
    _common(add)
    _stage_layers(add, least=lambda index, places: 1)

    @add(f"{NAME}.sequence-parallel",
         "PyNative tensor parallelism requires sequence_parallel=True when tensor_parallel > 1, but got "
         "tensor_parallel={tp}.")
    def _sequence(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.tensor_parallel > 1 and not layout.sequence_parallel, tp=layout.tensor_parallel)

    @add(f"{NAME}.expert-region",
         "Invalid expert_parallel: ep({ep}) must divide dp_shard({shard}) * cp({cp}) * tp({tp}) = "
         "{region}, and thus cannot exceed {region}.",
         noticed="start")
    def _region(case: Case, layout: Layout) -> Values | None:
        cp, tp, ep = layout.context_parallel, layout.tensor_parallel, layout.expert_parallel
        size = layout.optimizer_shards
        shard = size // cp if size % cp == 0 else layout.data_parallel
        return values_if(shard * cp * tp % ep, ep=ep, shard=shard, cp=cp, tp=tp, region=shard * cp * tp)

    @add(f"{NAME}.dense-shards", "dense_fsdp_shard_size cuts dense weights only: experts are cut over data_parallel_shard * cp "
                                 "ranks, of which {shards} is no multiple of cp {cp}",
         noticed="never")
    def _dense(case: Case, layout: Layout) -> Values | None:
        broken = case.model.is_moe and layout.optimizer_shards % layout.context_parallel
        return values_if(broken, shards=layout.optimizer_shards, cp=layout.context_parallel)

    @add(
        f"{NAME}.select-mlp",
        "the path mlp is the experts of a mixture: no path recomputes the dense layers' MLP alone",
        noticed="never",
    )
    def _select(case: Case, layout: Layout) -> Values | None:
        return values_if(case.model.is_moe and isinstance(layout.recompute, Selective) and "mlp" in layout.recompute.modules)

    words = f"{TITLE} 2.1"
    return (*refusals(NAME, TITLE, features), *found, *expressible(NAME, words, features), *arithmetic(NAME, PYNATIVE_WORDS))


def graph(features: Features) -> tuple[Limit, ...]:
    """Every rule of graph mode."""
    found: list[Limit] = []
    add = partial(rule, found)
    _common(add)
    _stage_layers(add, least=lambda index, places: 0 if index in (0, places - 1) else 1)

    @add(f"{NAME}.micro-batches", "micro_batch_num ({m}) must be greater than or equal to pipeline_stage ({pp})", noticed="start")
    def _microbatches(case: Case, layout: Layout) -> Values | None:
        pp = layout.pipeline_parallel
        return values_if(pp > 1 and layout.num_microbatches < pp, m=layout.num_microbatches, pp=pp)

    @add(f"{NAME}.expert-data", "expert_parallel ({ep}) must divide data_parallel ({dp})", noticed="start")
    def _expert_data(case: Case, layout: Layout) -> Values | None:
        ranks = layout.data_parallel * layout.context_parallel * layout.tensor_parallel
        return values_if(ranks % layout.expert_parallel, ep=layout.expert_parallel, dp=layout.data_parallel)

    @add(f"{NAME}.expert-shards", "num_moe_experts ({experts}) must be divisible by (optimizer_weight_shard_size ({shards}) * "
                                  "expert_model_parallel_size ({ep}))",
         noticed="start")
    def _expert_shards(case: Case, layout: Layout) -> Values | None:
        experts = case.model.experts
        ranks = layout.data_parallel * layout.context_parallel
        shards, ep = layout.optimizer_shards, layout.expert_parallel
        broken = experts and 1 < shards < ranks and experts.num_experts % (shards * ep)
        return values_if(broken, experts=experts.num_experts if experts else 0, shards=shards, ep=ep)

    add(f"{NAME}.recompute-lists", CROSSING, noticed="never")(recompute_crossing)

    words = f"{TITLE}'s graph mode"
    return (*refusals(NAME, TITLE, features), *found, *expressible(NAME, words, features), *arithmetic(NAME, GRAPH_WORDS))


def _common(add: Callable[..., Callable[..., object]]) -> None:
    """Rules of both modes."""
    words = "more layers are recomputed ({full} in full and {part} in part) than stand on a chunk ({layers})"
    add(f"{NAME}.recompute-count", words, noticed="never")(recompute_excess)


def _stage_layers(add: Callable[..., Callable[..., object]], *, least: Callable[[int, int], int]) -> None:
    """Chunks that are too short."""

    @add(f"{NAME}.stage-empty", "Some middle stage has fewer than 1 layer: {split}", noticed="start")
    def _empty(case: Case, layout: Layout) -> Values | None:
        split = split_of(case, layout)
        flat = [count for row in split for count in row]
        broken = len(flat) > 1 and any(count < least(index, len(flat)) for index, count in enumerate(flat))
        return values_if(broken, split=split)
