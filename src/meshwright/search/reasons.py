"""Why a plan stands where it stands, in a few sentences with figures from its own terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.label import recompute_word
from meshwright.domain.layout import Full, Mixed, Selective
from meshwright.units import gib
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate


def reasons(case: Case, estimate: Estimate, winner: Estimate | None) -> tuple[str, ...]:
    """Sentences about each degree that is used, about memory, and about the distance to the winner."""
    layout, time, step = estimate.layout, estimate.time, estimate.step_s
    lines: list[str] = []
    if winner is not None and winner.step_s < step:
        worse = _largest_loss(estimate, winner)
        lines.append(f"{percent(step / winner.step_s - 1)} slower than the first" + (f", mostly {worse}" if worse else ""))
    elif winner is not None and winner.expected_step_s < estimate.expected_step_s:
        lines.append(_risk(estimate, winner))
    domain = case.cluster.scale_up_devices
    if layout.tensor_parallel > 1:
        within = layout.tensor_parallel <= case.cluster.devices_per_node
        beyond = "inside a node, beyond the scale-up domain," if within else "across the network"
        where = "inside the scale-up domain" if layout.tensor_parallel <= domain else beyond
        lines.append(f"tp{layout.tensor_parallel} {where} costs {percent(time.tensor_parallel_s / step)} of the step")
    if layout.context_parallel > 1:
        lines.append(
            f"cp{layout.context_parallel} ({layout.context_kind}) cuts activations {layout.context_parallel}-fold"
            f" for {percent(time.context_parallel_s / step)} of the step"
        )
    if layout.pipeline_parallel > 1:
        lines.append(
            f"pp{layout.pipeline_parallel} with {layout.num_microbatches} micro-batches"
            + (f" and {layout.virtual_stages} chunks a stage" if layout.virtual_stages > 1 else "")
            + f": the busiest stage waits {percent(estimate.bubble_ratio)} of the step, the mean stage"
            f" {percent(estimate.mean_idle_ratio)}; with alike stages {percent(estimate.bubble_formula_ratio)} by the schedule's"
            " formula"
        )
    if layout.expert_parallel > 1:
        lines.append(f"ep{layout.expert_parallel} all-to-all costs {percent(time.expert_parallel_s / step)} of the step")
    if layout.optimizer_shards > 1:
        lines.append(
            f"ZeRO-{layout.zero_stage} over {layout.optimizer_shards} ranks; data parallelism exposes"
            f" {percent(time.data_parallel_exposed_s / step)}"
        )
    lines.append(_memory(estimate))
    return tuple(lines)


def _memory(estimate: Estimate) -> str:
    used = f"{gib(estimate.memory_reserved_bytes)} of {gib(estimate.memory_capacity_bytes)} on stage {estimate.peak_stage}"
    recompute = estimate.layout.recompute
    match recompute:
        case Full(layers=None):
            return f"{used}, with every layer recomputed"
        case Full():
            return f"{used}, with some layers recomputed in full"
        case Mixed():
            return f"{used}, with layers recomputed by stage ({recompute_word(recompute)})"
        case Selective(modules=modules):
            return f"{used}, recomputing {', '.join(modules)}"
        case _:
            return f"{used}, nothing recomputed"


def _largest_loss(estimate: Estimate, winner: Estimate) -> str:
    own = {term.name: term.value for term in estimate.terms}
    other = {term.name: term.value for term in winner.terms}
    name, loss = max(((name, value - other.get(name, 0.0)) for name, value in own.items()), key=lambda item: item[1])
    return f"{name} (+{percent(loss / winner.step_s)})" if loss > 0 else ""


def _risk(estimate: Estimate, winner: Estimate) -> str:
    """Why a plan that takes less time is expected to take more: it may not fit, or it stalls by chance."""
    less = percent(1 - estimate.step_s / winner.step_s)
    mine, other = estimate.memory_fit_probability, winner.memory_fit_probability
    fits = f"it fits with {percent(mine, 0)} probability instead of {percent(other, 0)}"
    if estimate.chance_s / estimate.step_s <= winner.chance_s / winner.step_s:
        return f"{less} less time than the first where it fits, but {fits}"
    stalls = f"pipeline messages that stall by chance add {percent(estimate.chance_s / estimate.step_s)} on average"
    if mine >= other:
        return f"{less} less time than the first in most runs, but {stalls}"
    return f"{less} less time than the first in most runs where it fits, but {stalls}, and {fits}"
