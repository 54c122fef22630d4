"""Step 1 of the playbook: fit the model in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from meshwright.domain.label import recompute_word
from meshwright.domain.layout import Full, Layout
from meshwright.estimate.many import evaluate_many
from meshwright.judging.neighbours import shards
from meshwright.search import layout_refusals
from meshwright.search.levers import levers
from meshwright.search.rules import sequence_parallel_unasked
from meshwright.search.space import divisors
from meshwright.units import count, gib
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.judging.facts import Facts


class MemoryRung(Value, frozen=True, kw_only=True):
    """Memory of the fullest device after one more knob, on top of those before."""

    knob: str
    memory_reserved_bytes: float
    fits: bool


class FitStep(Value, frozen=True, kw_only=True):
    """Step 1: fit the model in memory."""

    parameters: int
    active_parameters: int
    capacity_bytes: float
    unsharded_bytes: float
    """What one device would need to train the model alone, at micro-batch 1 without recompute."""
    devices: Literal["rich", "poor"]
    """``rich``: some layout fits without recompute; ``poor``: none does."""
    rungs: tuple[MemoryRung, ...]
    """Knobs of the layout, one after the other."""
    alone: tuple[MemoryRung, ...]
    """Each knob alone, as far as it goes."""
    sentence: str
    levers: tuple[str, ...] = ()
    """What would make the case fit, where the layout does not: the list of ``plan`` and ``fix``."""


def fit_step(facts: Facts) -> FitStep:
    """Memory from one device that holds everything to the layout, knob by knob."""
    case, target = facts.case, facts.layout
    first = Layout(num_microbatches=case.batch.global_batch_sequences)
    named = [("everything on one device", first), *_memory_ladder(facts, replace(first, data_parallel=target.data_parallel))]
    alone = _alone(facts)
    _, reserved = evaluate_many(case, [layout for _, layout in (*named, *alone)])
    every = [
        MemoryRung(knob=knob, memory_reserved_bytes=float(size), fits=bool(size <= case.capacity_bytes))
        for (knob, _), size in zip((*named, *alone), reserved, strict=True)
    ]
    rungs, singles = tuple(every[: len(named)]), tuple(every[len(named) :])
    free = facts.best.get("recompute-none")
    rich = free is not None and free.fits
    fitting = next((rung for rung in rungs if rung.fits), None)
    enough = [rung.knob for rung in singles if rung.fits]
    words = (
        "no knob of this layout brings it in"
        if fitting is None
        else f"it first fits with {fitting.knob}"
        if fitting is not rungs[0]
        else "it fits as it is"
    )
    return FitStep(
        parameters=facts.parameters, active_parameters=facts.active_parameters, capacity_bytes=case.capacity_bytes,
        unsharded_bytes=rungs[0].memory_reserved_bytes, devices="rich" if rich else "poor", rungs=rungs, alone=singles,
        sentence=f"{count(facts.parameters)} parameters need {gib(rungs[0].memory_reserved_bytes)} on one device of "
        f"{gib(case.capacity_bytes)}; {words}{':' if fitting is None else ','} "
        f"{'it' if fitting is None else 'and'} ends at {_end(facts)}; "
        + (f"alone would be enough: {', '.join(enough)}; " if enough else "no knob alone would be enough; ")
        + ("some layout fits without recompute" if rich else "no layout fits without recompute"),
        levers=() if facts.estimate.fits else tuple(map(str, levers(case, facts.features, facts.runner, pinnable=False))),
    )


def _end(facts: Facts) -> str:
    """What the layout needs in the end, and what it is short of."""
    need = facts.estimate.memory_reserved_bytes
    short = need - facts.case.capacity_bytes
    return gib(need) if facts.estimate.fits or short <= 0.0 else f"{gib(need)}, {gib(short)} too much"


def _memory_ladder(facts: Facts, base: Layout) -> list[tuple[str, Layout]]:
    """The knobs of the layout that bear on memory, in the playbook's order."""
    target, found, now = facts.layout, list[tuple[str, Layout]](), base
    groups: list[tuple[str, dict[str, Any]]] = [
        (
            f"tp{target.tensor_parallel}" + (" sp" if target.sequence_parallel else ""),
            {"tensor_parallel": target.tensor_parallel, "sequence_parallel": target.sequence_parallel},
        ),
        (f"cp{target.context_parallel}", {"context_parallel": target.context_parallel, "context_kind": target.context_kind}),
        (
            f"ep{target.expert_parallel} etp{target.expert_tensor_parallel}",
            {"expert_parallel": target.expert_parallel, "expert_tensor_parallel": target.expert_tensor_parallel},
        ),
        (
            f"pp{target.pipeline_parallel}" + (f" vp{target.virtual_stages}" if target.virtual_stages > 1 else ""),
            {
                "pipeline_parallel": target.pipeline_parallel,
                "virtual_stages": target.virtual_stages,
                "schedule": target.schedule,
                "stage_layers": target.stage_layers,
                "num_microbatches": target.num_microbatches,
            },
        ),
        (
            f"zero{target.zero_stage} over {target.optimizer_shards}",
            {
                "optimizer_shards": target.optimizer_shards,
                "gradient_shards": target.gradient_shards,
                "parameter_shards": target.parameter_shards,
            },
        ),
        (
            f"mb{target.microbatch_sequences}",
            {"microbatch_sequences": target.microbatch_sequences, "num_microbatches": target.num_microbatches},
        ),
        (f"recompute={recompute_word(target.recompute)}", {"recompute": target.recompute}),
        (f"offload={','.join(target.offload)}", {"offload": target.offload}),
    ]
    for words, knobs in groups:
        then = replace(now, **knobs)
        if replace(then, num_microbatches=now.num_microbatches) != now:
            found.append((words, then))
        now = then
    return found


def _alone(facts: Facts) -> list[tuple[str, Layout]]:
    """One knob as far as it goes, the rest as on one device: the playbook's single techniques."""
    case, features, world = facts.case, facts.features, facts.layout.world
    batch, node = case.batch.global_batch_sequences, min(world, case.cluster.devices_per_node)
    replicas = max(d for d in divisors(world) if batch % d == 0)
    one = Layout(data_parallel=world, num_microbatches=max(1, batch // world))
    alike = replace(one, data_parallel=replicas, num_microbatches=batch // replicas)
    able = sequence_parallel_unasked(case, features)
    found: list[tuple[str, Layout]] = []
    for word, name, most in (("tp", "tensor_parallel", node), ("pp", "pipeline_parallel", min(world, case.model.num_layers))):
        legal = [replace(one, **{name: d, "data_parallel": world // d}) for d in divisors(world) if 1 < d <= most]  # type: ignore[arg-type]
        legal = [
            replace(each, sequence_parallel=able and word == "tp", num_microbatches=max(batch // each.data_parallel, 1))
            for each in legal
        ]
        legal = [each for each in legal if not facts.refusals(each)]
        if legal:
            found.append((f"{word}{getattr(legal[-1], name)}", legal[-1]))
    stages = [stage for stage in (1, 3) if replicas > 1 and stage in features.zero_stages]
    found += [(f"zero{stage}", replace(alike, **shards(stage, replicas))) for stage in stages]  # type: ignore[arg-type]
    if "full" in features.recompute:
        found.append(("full recompute", replace(alike, recompute=Full())))
    return [(words, layout) for words, layout in found if not layout_refusals(case, features, layout)]
