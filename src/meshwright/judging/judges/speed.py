"""Overlap, kernels, network: what the guides say about time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.kernels import running
from meshwright.domain.label_reader import OVERLAPS
from meshwright.estimate.single import sequence_work
from meshwright.judging.finding import Ruling, ratio
from meshwright.judging.neighbours import EXACT, OFF, able_overlap
from meshwright.judging.predicates import change, does_not_apply, judges
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.facts import Facts


@judges("overlap-helps")
def overlap_helps(facts: Facts, _: Rule) -> Ruling:
    """This layout with what overlap it has, or else what its framework offers, and with all of it off."""
    here = able_overlap(facts.case, facts.features, facts.layout.overlap)
    chosen = here if here != OFF else able_overlap(facts.case, facts.features, EXACT)
    if chosen == OFF:
        return does_not_apply(facts, f"{facts.features.name} runs no communication beside compute")
    with_it, without = (facts.trial(replace(facts.layout, overlap=each)) for each in (chosen, OFF))
    return Ruling(
        verdict="holds" if without.step_s >= with_it.step_s * 0.9999 else "fails",
        figure=ratio("step_change_ratio", without.step_s / with_it.step_s - 1.0),
        sentence=f"without any overlap the step is {change(facts, without.step_s, with_it.step_s)}: "
        f"{seconds(without.step_s)} instead of {seconds(with_it.step_s)}",
    )


@judges("overlap-gradients")
def overlap_gradients(facts: Facts, _: Rule) -> Ruling:
    """This layout with and without the overlap of gradients."""
    if facts.layout.data_parallel * facts.layout.context_parallel == 1:
        return does_not_apply(facts, "one replica: no gradients to reduce")
    if "grad" not in facts.features.overlap_words(facts.case.training.optimizer.name):
        return does_not_apply(facts, f"{facts.features.name} reduces gradients after the last backward, never beside it")
    on, off = (
        facts.trial(replace(facts.layout, overlap=replace(facts.layout.overlap, gradient_reduce=each))) for each in (True, False)
    )
    return Ruling(
        verdict="holds" if on.step_s <= off.step_s * 1.0001 else "fails",
        figure=ratio("step_change_ratio", off.step_s / on.step_s - 1.0),
        sentence=f"gradients reduced after the backward instead of beside it: {change(facts, off.step_s, on.step_s)}, "
        f"exposed data parallelism "
        f"{seconds(on.estimate.time.data_parallel_exposed_s)} -> {seconds(off.estimate.time.data_parallel_exposed_s)}",
    )


@judges("overlap-off-first")
def overlap_off_first(facts: Facts, _: Rule) -> Ruling:
    """What waiting costs, and which switches change any arithmetic."""
    overlap = facts.layout.overlap
    without = facts.trial(replace(facts.layout, overlap=OFF))
    offered = able_overlap(facts.case, facts.features, EXACT)
    words = ", ".join(word for word, name in OVERLAPS.items() if getattr(offered, name)) or "nothing that the framework has"
    exact = facts.trial(replace(facts.layout, overlap=offered))
    cost, rest = without.step_s / exact.step_s - 1.0, exact.step_s / facts.step_s - 1.0
    tail = (
        f"; tiled tensor and expert overlap, which may reorder sums, is worth {percent(max(0.0, rest))}"
        if overlap.tensor or overlap.expert
        else ""
    )
    return Ruling(
        verdict="fails" if cost > 0.005 else "holds", figure=ratio("step_change_ratio", cost),
        sentence=f"leaving off what changes no arithmetic ({words}) costs {percent(cost)}{tail}",
    )


@judges("overlap-not-free")
def overlap_not_free(facts: Facts, _: Rule) -> Ruling:
    """This layout as if communication took no units from compute."""
    calibration = facts.case.calibration
    constants = replace(calibration.constants, contention_slowdown=0.0, contention_slowdown_scale_up=0.0)
    free = facts.trial(facts.layout, replace(facts.case, calibration=replace(calibration, constants=constants)))
    cost = facts.step_s / free.step_s - 1.0
    slowed = calibration.constants
    network, scale_up = float(slowed.contention_slowdown), float(slowed.contention_slowdown_scale_up)
    return Ruling(
        verdict="holds" if cost > 0 else "does-not-apply", figure=ratio("step_change_ratio", cost),
        sentence=f"compute beside communication runs slower by {percent(network, 0)} (network) or {percent(scale_up, 0)} "
        f"(scale-up), together {percent(cost, 2)} of this step",
    )


@judges("jit-optimizer")
def jit_optimizer(facts: Facts, _: Rule) -> Ruling:
    """The optimizer's share of the step."""
    share = facts.estimate.time.optimizer_s / facts.step_s
    return Ruling(
        verdict="holds" if share >= 0.01 else "fails", figure=ratio("optimizer_ratio", share),
        sentence=f"the optimizer takes {seconds(facts.estimate.time.optimizer_s)}, {percent(share, 2)} of the step, over "
        f"{facts.layout.optimizer_shards} shards: "
        f"that is all that compiling it could win",
    )


def _communication(facts: Facts, bound: float) -> Ruling:
    value, time = facts.communication_ratio, facts.estimate.time
    parts = {
        "tensor": time.tensor_parallel_s, "context": time.context_parallel_s, "expert": time.expert_parallel_s,
        "pipeline": time.pipeline_exposed_s, "data": time.data_parallel_exposed_s,
    }
    name, most = max(parts.items(), key=lambda item: item[1])
    return Ruling(
        verdict="holds" if value <= bound else "fails", figure=ratio("communication_ratio", value),
        sentence=f"exposed communication is {percent(value)} of the step, {'within' if value <= bound else 'above'} "
        f"{percent(bound, 0)}; most of it {name} parallelism "
        f"({percent(most / facts.step_s)})",
    )


@judges("communication-20")
def communication_20(facts: Facts, _: Rule) -> Ruling:
    """Exposed communication against 20 %."""
    return _communication(facts, 0.20)


@judges("communication-15")
def communication_15(facts: Facts, _: Rule) -> Ruling:
    """Exposed communication against 15 %."""
    return _communication(facts, 0.15)


@judges("flash-attention")
def flash_attention(facts: Facts, rule: Rule) -> Ruling:
    """Attention's share of the step: what twice its speed is worth, and whether the flag has anything left to do."""
    work = 3.0 * sequence_work(facts.case).attention * facts.case.batch.global_batch_sequences
    ideal = work / facts.layout.world / facts.estimate.peak_flops_per_s / facts.step_s
    mixing = "attention, its recurrences included," if facts.case.model.mixers else "attention"
    share = max(0.0, ideal + facts.share("attention below peak", "recurrences below peak", "attention and recurrences below peak"))
    figure, name = ratio("attention_ratio", share), facts.case.implementation.name
    if running(facts.case, facts.layout).implementation.flash_attention:
        return Ruling(
            verdict="fails", figure=figure,
            sentence=f"{name} fuses attention without the flag, which does nothing there; {mixing} takes {percent(share)} of the "
            f"step, fused; {rule.condition}",
        )
    return Ruling(
        verdict="holds", figure=figure,
        sentence=f"{mixing} takes {percent(share)} of the step and {name} does not fuse it; a factor of 2 on it is worth "
        f"{percent(share / 2)} of the step; {rule.condition}",
    )


@judges("torch-compile")
def torch_compile(facts: Facts, _: Rule) -> Ruling:
    """Elementwise work, gaps and launches: the most that compiling could win."""
    bound = max(0.0, facts.share("elementwise", "kernel gaps", "kernel launches"))
    return Ruling(
        verdict="wrong", figure=ratio("compile_bound_ratio", bound),
        sentence=f"no such flag; elementwise operators, kernel gaps and launches together are {percent(bound)} of "
        f"this step, the most that compiling could win",
    )


@judges("nic-binding")
def nic_binding(facts: Facts, _: Rule) -> Ruling:
    """What the network is worth: the step with half of it."""
    cluster = facts.case.cluster
    if facts.layout.world <= cluster.scale_up_devices:
        return does_not_apply(facts, f"{facts.layout.world} devices reach each other without the network")
    half = replace(cluster, network=replace(cluster.network, bytes_per_s=cluster.network.bytes_per_s / 2))
    slow = facts.trial(facts.layout, replace(facts.case, cluster=half))
    relative = slow.step_s / facts.step_s - 1.0
    return Ruling(
        verdict="holds" if relative > 0.005 else "fails", figure=ratio("step_change_ratio", relative),
        sentence=f"half of the network (a rail lost, or the wrong interface) would make the step "
        f"{change(facts, slow.step_s, facts.step_s)}",
    )
