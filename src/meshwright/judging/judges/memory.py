"""Sequence parallelism, precision: what the guides say about memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.judging.finding import Ruling, number, ratio, size
from meshwright.judging.predicates import change, does_not_apply, judges
from meshwright.search.rules import sequence_parallel_able
from meshwright.units import gib
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.facts import Facts


@judges("sequence-parallel")
def sequence_parallel(facts: Facts, _: Rule) -> Ruling:
    """This layout with and without sequence parallelism, and what the framework has against it."""
    layout, against = facts.layout, facts.features.sequence_parallel_against
    able = sequence_parallel_able(facts.case, facts.features)
    if layout.tensor_parallel == 1 or not able:
        return does_not_apply(
            facts, f"tp{layout.tensor_parallel}" + ("" if able else f"; {facts.features.name} has no sequence parallelism")
        )
    on, off = (facts.trial(replace(layout, sequence_parallel=each)) for each in (True, False))
    freed = off.reserved_bytes - on.reserved_bytes
    return Ruling(
        verdict="holds" if freed > 0 and not against else "fails", figure=size(freed, "memory_freed_bytes"),
        sentence=f"sequence parallelism over tp{layout.tensor_parallel} takes this layout from "
        f"{gib(off.reserved_bytes)} to {gib(on.reserved_bytes)} "
        f"and is {change(facts, on.step_s, off.step_s)}{f', but {against}' if against else ''}",
    )


@judges("partition-activations")
def partition_activations(facts: Facts, _: Rule) -> Ruling:
    """Moot with sequence parallelism."""
    layout = facts.layout
    if layout.tensor_parallel == 1:
        return does_not_apply(facts, "no tensor parallelism, so nothing to partition over")
    memory = facts.estimate.stages[facts.estimate.peak_stage].memory
    on = layout.sequence_parallel
    return Ruling(
        verdict="fails" if on else "holds", figure=size(memory.activations, "activations_bytes"),
        sentence=f"{gib(memory.activations)} of activations; sequence parallelism is "
        f"{'on and shards them already' if on else 'off'}",
    )


@judges("memory-80")
def memory_80(facts: Facts, _: Rule) -> Ruling:
    """Share of the device's memory in use."""
    used = facts.estimate.memory_reserved_bytes / facts.case.cluster.device.memory_bytes
    best = facts.best.get("any")
    words = ""
    if best is not None and best.fits:
        words = (
            f"; the best layout of the grid uses {percent(best.memory_reserved_bytes / facts.case.cluster.device.memory_bytes)}"
        )
    return Ruling(
        verdict="holds" if used >= 0.8 else "fails", figure=ratio("memory_used_ratio", used),
        sentence=f"this layout uses {percent(used)} of the device{words}; unused memory costs nothing",
    )


@judges("mixed-precision")
def mixed_precision(facts: Facts, _: Rule) -> Ruling:
    """Bytes of state per parameter under the recipe against FP32."""
    precision, optimizer = facts.case.training.precision, facts.case.training.optimizer
    own = precision.parameter_bytes + precision.gradient_bytes + precision.master_bytes + optimizer.state_bytes
    full = 4.0 + 4.0 + optimizer.state_bytes
    return Ruling(
        verdict="wrong", figure=ratio("state_bytes_ratio", own / full),
        sentence=f"{precision.name} with {optimizer.name} keeps {own:g} bytes a parameter before sharding, FP32 would "
        f"keep {full:g}: states do not halve, "
        f"activations do",
    )


@judges("data-parallel-copies")
def data_parallel_copies(facts: Facts, _: Rule) -> Ruling:
    """What a device holds of the parameters."""
    layout, estimate = facts.layout, facts.estimate
    held = max(stage.memory.parameters for stage in estimate.stages)
    whole = layout.parameter_shards == 1
    return Ruling(
        verdict="holds" if whole else "fails", figure=number("data_parallel", layout.data_parallel),
        sentence=f"{layout.data_parallel} replicas, {gib(held)} of weights on a device: " + (
            f"its part under tp{layout.tensor_parallel} pp{layout.pipeline_parallel}, the same in every replica" if whole
            else f"sharded over {layout.parameter_shards} ranks, no device holds a copy"
        ),
    )
