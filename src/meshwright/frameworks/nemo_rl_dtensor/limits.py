"""What NeMo-RL's DTensor back end refuses of a case and a layout, in its own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.divisibility import CONTEXT_MIXERS, context_mixers
from meshwright.frameworks.nemo_rl.limits import SHARED
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned


def _precision(plan: Planned) -> bool:
    precision = plan.case.training.precision
    return precision.name != "bf16" or (precision.gradient_bytes, precision.master_bytes) != (4.0, 4.0)


def _knobs(plan: Planned) -> Values | None:
    has = [
        (plan.pp > 1, "pipeline stages"), (plan.ep * plan.etp > 1, "expert parallelism that is written here"),
        (plan.layout.recompute not in (NoRecompute(), Full(), Full(layers=0)), "recomputing a part of the layers"),
        (plan.layout.overlap.tensor and plan.tp > 1, "overlap of tensor parallelism"),
        (set(plan.layout.offload) - {"optimizer"}, "offload of anything but all states"),
    ]
    return words_if("knobs", has)


def _world(plan: Planned) -> Values | None:
    world, size = plan.case.cluster.num_devices, plan.tp * plan.cp
    return values_if(world % size, world=world, size=size)


def _shards(plan: Planned) -> bool:
    group = plan.shards[0]
    return len(set(plan.shards)) > 1 or bool(plan.ranks % group) or bool(plan.dp % (plan.ranks // group))


RULES = (
    *SHARED,
    Rule("precision", "NeMo-RL's DTensor back end computes in bf16 with gradients and weights in fp32 here, not in {precision} "
         "with "
         "gradients in {gradients}", _precision, "never", "training"),
    Rule("world", "World size ({world}) must be divisible by PP * CP * TP ({size}). The data parallel size (DP = world_size / (PP "
         "* CP "
         "* TP)) must be a positive integer.", _world, "start"),
    Rule("knobs", "NeMo-RL's DTensor back end has no {knobs}", _knobs, "never"),
    Rule("shards", "parameters, gradients and optimizer are split over the same ranks, of which dp_replicate_size makes groups "
         "that "
         "divide the {dp} replicas, not over {shards}", _shards, "never"),
    Rule("context-packed", "Context parallel is not supported for sequence packing.",
         lambda plan: plan.cp > 1 and plan.case.batch.packing is not None, "start"),
    Rule("context-sequence", "It's a known issue that context parallel can't be used together with sequence parallel in DTensor "
         "worker. "
         "Please either set cp_size = 1 or disable sequence parallel.", lambda plan: plan.cp > 1 and plan.tp > 1 and plan.sp,
         "start"),
    Rule("sequence-parallel-alone", "sequence_parallel=True, but tp_size=1 which has no effect.",
         lambda plan: plan.sp and plan.tp == 1, "never"),
    Rule("single", "CPUOffload doesn't work on single GPU for AutoModel.",
         lambda plan: plan.world == 1 and bool(plan.layout.offload), "start"),
    Rule("context-mixers", CONTEXT_MIXERS, context_mixers, "never"),
)


def limits_of(release: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of a release."""
    own = limits(features.name, RULES, release=release)
    return (*own, *arithmetic(features, skip=("task", "device", "shards", "batch")))
