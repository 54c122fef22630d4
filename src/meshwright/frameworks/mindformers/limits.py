"""What MindFormers refuses of a case and a layout: 2.1 PyNative and graph mode, in its own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.arithmetic import CROSSING, arithmetic, expressible, recompute_crossing, recompute_excess
from meshwright.frameworks.ascend.refusals import refusals
from meshwright.frameworks.ascend.stages import split_of
from meshwright.frameworks.rules import Rule, limits, values_if

if TYPE_CHECKING:

    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned
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


def _region(plan: Planned) -> Values | None:
    size = plan.shards[0]
    shard = size // plan.cp if size % plan.cp == 0 else plan.dp
    region = shard * plan.cp * plan.tp
    return values_if(region % plan.ep, shard=shard, region=region)


def _dense_shards(plan: Planned) -> Values | None:
    return values_if(plan.moe and plan.shards[0] % plan.cp, shards=plan.shards[0])


def _expert_shards(plan: Planned) -> Values | None:
    shards = plan.shards[0]
    return values_if(1 < shards < plan.ranks and plan.experts % (shards * plan.ep), shards=shards)


def _too_short(plan: Planned, *, ends: int) -> Values | None:
    """Chunks without a layer; the first and the last must have ``ends``."""
    split = split_of(plan.case, plan.layout)
    flat = [count for row in split for count in row]
    least = [ends, *[1] * (len(flat) - 2), ends]
    return values_if(len(flat) > 1 and any(map(int.__lt__, flat, least)), split=split)


_EXCESS = Rule("recompute-count", "more layers are recomputed ({full} in full and {part} in part) than stand on a chunk ({layers})",
               recompute_excess, "never")
_EMPTY = "Some middle stage has fewer than 1 layer: {split}"
_PYNATIVE = (
    _EXCESS,
    Rule("stage-empty", _EMPTY, lambda plan: _too_short(plan, ends=1), "start"),
    Rule("sequence-parallel", "PyNative tensor parallelism requires sequence_parallel=True when tensor_parallel > 1, but got "
         "tensor_parallel={tp}.", lambda plan: plan.tp > 1 and not plan.sp),
    Rule("expert-region", "Invalid expert_parallel: ep({ep}) must divide dp_shard({shard}) * cp({cp}) * tp({tp}) = {region}, and "
         "thus cannot exceed {region}.", _region, "start"),
    Rule("dense-shards", "dense_fsdp_shard_size cuts dense weights only: experts are cut over data_parallel_shard * cp ranks, of "
         "which {shards} is no multiple of cp {cp}", _dense_shards, "never"),
    Rule("select-mlp", "the path mlp is the experts of a mixture: no path recomputes the dense layers' MLP alone",
         lambda plan: plan.moe and "mlp" in plan.modules, "never"),
)
_GRAPH = (
    _EXCESS,
    Rule("stage-empty", _EMPTY, lambda plan: _too_short(plan, ends=0), "start"),
    Rule("micro-batches", "micro_batch_num ({m}) must be greater than or equal to pipeline_stage ({pp})",
         lambda plan: values_if(1 < plan.pp > plan.microbatches, m=plan.microbatches), "start"),
    Rule("expert-data", "expert_parallel ({ep}) must divide data_parallel ({dp})", lambda plan: plan.ranks * plan.tp % plan.ep,
         "start"),
    Rule("expert-shards", "num_moe_experts ({experts}) must be divisible by (optimizer_weight_shard_size ({shards}) * "
         "expert_model_parallel_size ({ep}))", _expert_shards, "start"),
    Rule("recompute-lists", CROSSING, recompute_crossing, "never"),
)


def pynative(features: Features) -> tuple[Limit, ...]:
    """Every rule of the PyNative trainer of 2.1.0."""
    own, knobs = limits(NAME, _PYNATIVE), expressible(NAME, f"{TITLE} 2.1", features)
    return (*refusals(NAME, TITLE, features), *own, *knobs, *arithmetic(NAME, PYNATIVE_WORDS))


def graph(features: Features) -> tuple[Limit, ...]:
    """Every rule of graph mode."""
    own, knobs = limits(NAME, _GRAPH), expressible(NAME, f"{TITLE}'s graph mode", features)
    return (*refusals(NAME, TITLE, features), *own, *knobs, *arithmetic(NAME, GRAPH_WORDS))
