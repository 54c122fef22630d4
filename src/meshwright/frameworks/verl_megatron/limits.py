"""What verl's Megatron engine refuses of a case and a layout, in its own words or those of the Megatron-Core below it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.domain.layout import overlapping
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.rules import Rule, limits, values_if, words_if
from meshwright.frameworks.verl.limits import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.frameworks.base import Limit, Noticed, Values
    from meshwright.frameworks.planned import Planned

CORES = {"0.8": "0.15", "0.10": "0.16"}
"""Release of Megatron-Core that a release is meant for."""


def _world(plan: Planned) -> Values | None:
    world, parallel = plan.case.cluster.num_devices, plan.tp * plan.pp
    return values_if(world % (parallel * plan.cp), world=world, parallel=parallel)


def _knobs(plan: Planned) -> Values | None:
    heard = overlapping(plan.layout)
    has = [
        ("parameter_gather" in heard and plan.zero and plan.layout.overlap.parameter_gather,
         "overlap of parameters: the rollout engine would be given what is not gathered yet"),
        (plan.layout.overlap.tensor and plan.tp > 1, "overlap of tensor parallelism: lengths vary"),
        (plan.layout.overlap.expert and plan.ep > 1, "expert overlap: its own forward step knows no schedule plan"),
        (plan.zero >= 2, "ZeRO stage 2 or 3: use_megatron_fsdp is read, not written"),
        (plan.zero == 1 and plan.shards[0] != plan.ranks, "distributed-optimizer instances"),
    ]
    return words_if("knobs", has, between="; ")


def _virtual(plan: Planned) -> Values | None:
    return values_if(plan.vp > 1 and plan.microbatches % plan.pp, count=plan.microbatches)


RULES = (
    *SHARED,
    Rule("world", "n_gpus ({world}) must be divisible by model_parallel_size ({parallel}) times context_parallel_size ({cp})",
         _world),
    Rule("schedule", "verl has the schedules 1f1b and interleaved (vp > 1), not {schedule}",
         lambda plan: plan.schedule != ("interleaved" if plan.vp > 1 else "1f1b"), "never"),
    Rule("context-kind", "verl splits packed sequences in a ring, not by {kind}", lambda plan: plan.cp > 1 and plan.kind != "ring",
         "never"),
    Rule("virtual-batches", "micro_batches {count} must be divisible by num_batches_divided_by {pp} for megatron backend", _virtual,
         "step"),
    Rule("knobs", "verl's Megatron engine has no {knobs}", _knobs, "never"),
)
REPLACED = frozenset(
    f"megatron.{name}"
    for name in ("task", "device", "precision", "optimizer", "schedule", "microbatches", "context-kind", "interleaved-batch",
                 "parameter-overlap", "tensor-overlap", "mtp-context", "mtp-layout", "mtp-shared", "split", "flag",
                 "graphs-recompute", "graphs-offload", "deterministic-overlap", "shards", "fsdp-pipeline", "fsdp-optimizer",
                 "muon", "packed-delta",
                 "expert-shards", "offload-layers", "cpu-offloading-pipeline", "offload-recompute")
)
"""Rules of Megatron-LM that have a form of verl's own here, or cannot be broken through it."""


@cache
def limits_of(name: str, release: str) -> tuple[Limit, ...]:
    """Every rule of a release, in the order in which they are reported."""
    return (*limits(name, RULES, release=release), *_below(name, release))


def _below(name: str, release: str) -> Iterator[Limit]:
    """Megatron-Core's rules; verl hands the values on unread."""
    for limit in MEGATRON.at(CORES[release]).limits:
        if limit.id not in REPLACED and not limit.id.startswith("megatron.expert-overlap"):
            noticed: Noticed = "start" if limit.noticed == "parse" else limit.noticed
            yield structs.replace(limit, id=limit.id.replace("megatron", name, 1), noticed=noticed)
