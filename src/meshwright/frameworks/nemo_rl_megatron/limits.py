"""What NeMo-RL's Megatron back end refuses of a case and a layout, in its own words or those of the Megatron-Core below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.domain.layout import Full
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.megatron.pipeline import is_even, only_ends_differ, split_of
from meshwright.frameworks.nemo_rl.limits import SHARED
from meshwright.frameworks.nemo_rl_megatron.deciding import CORE
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.frameworks.base import Limit, Noticed, Values
    from meshwright.frameworks.planned import Planned


def _precision(plan: Planned) -> bool:
    precision = plan.case.training.precision
    return precision.name != "bf16" or (precision.gradient_bytes, precision.master_bytes) != (4.0, 4.0)


def _world(plan: Planned) -> Values | None:
    world, size = plan.case.cluster.num_devices, plan.tp * plan.pp * plan.cp
    return values_if(world % size, world=world, size=size)


def _knobs(plan: Planned) -> Values | None:
    recompute = plan.layout.recompute
    has = [
        (plan.layout.overlap.tensor and plan.tp > 1, "overlap of tensor parallelism"),
        (plan.layout.overlap.expert and plan.ep > 1, "expert overlap"),
        (isinstance(recompute, Full) and recompute.layers not in {None, 0}, "recomputation of the first layers: full is all of "
         "them"),
        (plan.zero >= 2, "ZeRO stage 2 or 3: nothing reads use_custom_fsdp"),
        (plan.zero == 1 and plan.shards[0] != plan.ranks, "distributed-optimizer instances"),
        (set(plan.layout.offload) - {"optimizer"}, "offload of anything but the optimizer"),
    ]
    return words_if("knobs", has, between="; ")


def _split(plan: Planned) -> bool:
    split = split_of(plan.case, plan.layout)
    return plan.pp > 1 and not is_even(split) and not only_ends_differ(split)


def _parameter_overlap(plan: Planned) -> bool:
    overlap = plan.layout.overlap
    return plan.zero > 0 and plan.ranks > 1 and overlap.parameter_gather and not overlap.gradient_reduce


RULES = (
    *SHARED,
    Rule("precision", "NeMo-RL's Megatron back end computes in bf16 with gradients and master weights in fp32 here, not in "
         "{precision} "
         "with gradients in {gradients}", _precision, "never", "training"),
    Rule("world", "World size ({world}) must be divisible by PP * CP * TP ({size}). The data parallel size (DP = world_size / (PP "
         "* CP "
         "* TP)) must be a positive integer.", _world, "start"),
    Rule("schedule", "NeMo-RL has no key for virtual stages, and the schedule 1f1b, not {schedule}",
         lambda plan: plan.vp > 1 or plan.schedule != "1f1b", "never"),
    Rule("context-kind", "NeMo-RL splits packed sequences in a ring, not by {kind}", lambda plan: plan.cp > 1 and plan.kind !=
         "ring",
         "never"),
    Rule("sequence-parallel-alone", "Cannot use sequence parallelism without tensor parallelism",
         lambda plan: plan.sp and plan.tp == 1, "start"),
    Rule("split", "num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage are the only keys: all stages between "
         "them are alike", _split, "never"),
    Rule("parameter-overlap", "overlap_param_gather without overlap_grad_reduce: accepted in silence, although Megatron-LM's own "
         "flags refuse it", _parameter_overlap, "never"),
    Rule("knobs", "NeMo-RL's Megatron back end has no {knobs}", _knobs, "never"),
)
REPLACED = frozenset(
    f"megatron.{name}"
    for name in ("task", "device", "precision", "optimizer", "schedule", "batch", "microbatches", "context-kind", "context-heads",
                 "context-hybrid", "interleaved", "interleaved-p2p", "interleaved-batch", "parameter-overlap", "tensor-overlap",
                 "mtp-context", "mtp-layout", "mtp-shared", "split", "flag", "graphs-recompute", "graphs-offload",
                 "deterministic-overlap", "shards", "fsdp-pipeline", "fsdp-optimizer", "muon", "packed-delta", "expert-shards",
                 "offload-layers", "cpu-offloading-pipeline", "offload-recompute", "recompute", "sequence-parallel-alone")
)
"""Rules of Megatron-LM that have a form of NeMo-RL's own here, or cannot be broken through it."""


def limits_of(name: str, release: str) -> tuple[Limit, ...]:
    """Every rule of a release, in the order in which they are reported."""
    return (*limits(name, RULES, release=release), *_below(name))


def _below(name: str) -> Iterator[Limit]:
    """Megatron-Core's rules; NeMo-RL sets the fields of its provider unread."""
    for limit in MEGATRON.at(CORE).limits:
        if limit.id not in REPLACED and not limit.id.startswith(("megatron.expert-overlap", "megatron.hybrid", "megatron.mamba")):
            noticed: Noticed = "start" if limit.noticed == "parse" else limit.noticed
            yield structs.replace(limit, id=limit.id.replace("megatron", name, 1), noticed=noticed)
