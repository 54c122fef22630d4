"""Whether a balance problem makes sense, said before anything is computed."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, did_you_mean, fault
from meshwright.perf.schedules import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.balance import BalanceProblem

Fault = tuple[str, str, dict[str, object]]
"""Identifier, words, values."""
MOST_PLACES = 1024
"""Chunks of all stages: more than any pipeline has."""
MOST_OPERATIONS = 2_000_000
MOST_FOLLOWED = 500_000
"""Operations that are simulated one by one, for every placement that is tried: about a second of them."""


def require_sound(problem: BalanceProblem) -> None:
    """Refuse a problem that contradicts itself.

    Errors: ``InputError`` with every fault: what is wrong, the value, what would be right.
    """
    faults = [Message(f"balance.{id}", words, values) for id, words, values in _faults(problem)]
    if faults:
        raise InputError(faults)
    from meshwright.search.balance.times import order_of, short_microbatches

    try:
        order_of(problem, short_microbatches(problem))
    except (ValueError, AssertionError) as error:
        reason = str(error)
        named = reason if problem.schedule in reason else f"schedule {problem.schedule}: {reason}"
        raise fault("balance.schedule", "{reason}", reason=named) from None


def _faults(problem: BalanceProblem) -> Iterator[Fault]:
    """What is wrong: shape first, for the figures can only be read when it is right."""
    shape = list(_shape_faults(problem))
    yield from shape
    if not shape:
        yield from _figure_faults(problem)


def _shape_faults(problem: BalanceProblem) -> Iterator[Fault]:
    counts = {
        "stages": problem.stages, "virtual stages": problem.chunks, "micro-batches": problem.microbatches,
        "sequence splits": problem.sequence_splits,
    }
    low = [name for name, count in counts.items() if count < 1]
    for name in low:
        yield "count", "{name}: {value} is below 1", {"name": name, "value": counts[name]}
    if problem.schedule not in ORDERS:
        hint, known = did_you_mean(problem.schedule, ORDERS), tuple(ORDERS)
        yield (
            "schedule",
            "unknown schedule {name!r}{hint}; known: {known}",
            {"name": problem.schedule, "hint": hint, "known": known},
        )
    if not low:
        yield from _size_faults(problem)
        yield from _row_faults(problem)
        yield from _fixed_faults(problem)


def _size_faults(problem: BalanceProblem) -> Iterator[Fault]:
    places, layers = problem.stages * problem.chunks, [body.layers for body in problem.bodies]
    if places > MOST_PLACES or problem.microbatches * places > MOST_OPERATIONS:
        words = "{places} chunks and {m} micro-batches are more than any pipeline has: {most} chunks, {operations} multiplied"
        yield "size", words, {
            "places": places, "m": problem.microbatches, "most": f"{MOST_PLACES:,}", "operations": f"{MOST_OPERATIONS:,}"
        }
    elif (followed := 2 * places * problem.sequence_splits * _followed(problem)) > MOST_FOLLOWED:
        words = (
            "{followed} operations would be simulated for each of many placements, {most} is the limit: give fewer stages, virtual "
            "stages or splits, or micro-batches that the stages divide"
        )
        yield "operations", words, {"followed": f"{followed:,}", "most": f"{MOST_FOLLOWED:,}"}
    if min(layers, default=0) < 0 or sum(layers) < 1:
        yield "layers", "{layers} layers: a model has at least one", {"layers": sum(layers)}
    elif sum(layers) < places - 2:
        shape = {"layers": sum(layers), "places": places, "stages": problem.stages, "chunks": problem.chunks}
        words = "{layers} layers cannot fill {places} chunks ({stages} stages x {chunks}): at most {most}"
        yield "places", words, {**shape, "most": sum(layers) + 2}


def _followed(problem: BalanceProblem) -> int:
    """Micro-batches that are simulated, or held at once."""
    from meshwright.search.balance.times import short_microbatches

    if problem.schedule == "gpipe":
        return problem.microbatches
    return min(problem.microbatches, short_microbatches(problem) + problem.stages * problem.sequence_splits)


def _row_faults(problem: BalanceProblem) -> Iterator[Fault]:
    kinds = len(problem.treatments)
    by_stage = {"bounds of memory": problem.memory_bounds, "constants": problem.constant_memory or (0.0,) * problem.stages}
    for name, values in by_stage.items():
        if len(values) != problem.stages:
            yield "stages", "{given} {name} for {stages} stages", {"given": len(values), "name": name, "stages": problem.stages}
    for body in problem.bodies:
        rows = {
            "backward times": body.backward_times, "activations": body.activation_memory or (0.0,) * kinds,
            "working sets": body.transient_memory or (0.0,) * kinds,
        }
        for name, row in rows.items():
            if len(row) != kinds:
                words = "{body}: {given} {name} for {kinds} treatments"
                yield "kinds", words, {"body": body.name, "given": len(row), "name": name, "kinds": kinds}


def _fixed_faults(problem: BalanceProblem) -> Iterator[Fault]:
    fixed, treatment = problem.fixed_layers, problem.fixed_recompute
    if fixed is not None and (len(fixed) != problem.chunks or any(len(row) != problem.stages for row in fixed)):
        words = "the fixed layers do not have the shape of {chunks} x {stages}"
        yield "fixed", words, {"chunks": problem.chunks, "stages": problem.stages}
    elif fixed is not None and (sum(map(sum, fixed)) != problem.layers or min(map(min, fixed)) < 0):
        yield "fixed", "the fixed layers are {sum}, the model has {layers}", {"sum": sum(map(sum, fixed)), "layers": problem.layers}
    if treatment is not None and (treatment[0] not in problem.treatments or treatment[1] < 0):
        words = "fixed recomputation {value}: known treatments are {known}"
        yield "recompute", words, {"value": treatment, "known": problem.treatments}


def _figure_faults(problem: BalanceProblem) -> Iterator[Fault]:
    figures: list[tuple[str, float]] = [("hop", problem.hop_time)]
    for body in problem.bodies:
        figures += [(f"{body.name} forward", body.forward_time), (f"{body.name} weight gradient", body.weight_time)]
        figures += [(f"{body.name} backward", each) for each in body.backward_times if each != inf]
        figures += [(f"{body.name} memory", each) for each in (body.static_memory, *body.activation_memory, *body.transient_memory)]
        if body.backward_times[0] == inf:
            yield "kinds", "{body} has no backward time without recomputation", {"body": body.name}
    for name, end in (("head", problem.first), ("tail", problem.last)):
        figures += [(f"{name} time", each) for each in (end.forward_time, end.backward_time, end.weight_time)]
        figures += [(f"{name} memory", each) for each in (end.static_memory, end.activation_memory, end.transient_memory)]
    for name, value in figures:
        if not isfinite(value) or value < 0.0:
            yield "figure", "{name}: {value} is no time or memory: a finite number from 0 on", {"name": name, "value": value}
    for stage, bound in enumerate(problem.memory_bounds):
        if not isfinite(bound) or bound <= 0.0:
            yield "bound", "the bound of stage {stage}, {value}, is no positive number", {"stage": stage, "value": bound}
    if any(not isfinite(value) for value in problem.constant_memory):
        yield "constant", "a constant memory is no number", {}
    if problem.fixed_recompute is not None:
        treatment = problem.treatments.index(problem.fixed_recompute[0])
        if any(body.backward_times[treatment] == inf for body in problem.bodies):
            yield "recompute", "a body has no treatment {name}", {"name": problem.fixed_recompute[0]}
