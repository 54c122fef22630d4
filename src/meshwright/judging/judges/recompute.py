"""Recomputation of activations: off, selective, full, and who is right."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.kernels import running
from meshwright.domain.label import recompute_word
from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective
from meshwright.estimate.evaluate import split_of
from meshwright.judging.finding import Ruling, number, ratio, size
from meshwright.judging.predicates import change, contest, does_not_apply, judges, speed
from meshwright.perf.activations import headroom_ratio, saved_bytes
from meshwright.perf.arrays import array
from meshwright.perf.operators import work_shape
from meshwright.units import gib
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.domain.implementation import Implementation
    from meshwright.domain.layout import Recompute
    from meshwright.judging.facts import Facts, Trial


def _with(facts: Facts, recompute: Recompute) -> Trial:
    """This layout with another recompute, whether the framework has it or not."""
    return facts.trial(replace(facts.layout, recompute=recompute))


@judges("recompute-off")
def recompute_off(facts: Facts, _: Rule) -> Ruling:
    """The best layout without recompute against the best of all."""
    tail = f"this layout has recompute={recompute_word(facts.layout.recompute)}"
    found = facts.best.get("recompute-none")
    if found is not None and not found.fits:
        return does_not_apply(
            facts,
            f"memory does not suffice: without recompute nothing fits, the least demanding needs "
            f"{gib(found.memory_reserved_bytes)}; {tail}",
        )
    return contest(facts, "recompute-none", "any", "recompute off", "best of all", tail=tail)


@judges("selective-recommended")
def selective_recommended(facts: Facts, _: Rule) -> Ruling:
    """The best layout with selective recompute against none."""
    tail = f"this layout has recompute={recompute_word(facts.layout.recompute)}"
    return contest(facts, "recompute-selective", "any", "selective recompute", "best of all", tail=tail)


@judges("full-recompute-rich")
def full_recompute_rich(facts: Facts, _: Rule) -> Ruling:
    """Below 10 B: the best layout with full recompute against the best of all."""
    if facts.parameters >= 10e9:
        return does_not_apply(facts, f"said of models below 10 B; this one has {facts.parameters / 1e9:.1f} B")
    return contest(facts, "recompute-full", "any", "full recompute", "best of all")


@judges("full-recompute-poor")
def full_recompute_poor(facts: Facts, _: Rule) -> Ruling:
    """Full recompute where devices are few: where nothing fits without recompute; otherwise the advice is about another case."""
    free = facts.best.get("recompute-none")
    if free is not None and free.fits:
        return does_not_apply(facts, f"devices are not few: without recompute {speed(free)} fits")
    return contest(facts, "recompute-full", "any", "full recompute", "best of all")


@judges("selective-is-cheap")
def selective_is_cheap(facts: Facts, _: Rule) -> Ruling:
    """What the default selective recompute frees and costs on this layout."""
    if "selective" not in facts.features.recompute:
        return does_not_apply(facts, f"{facts.features.name} has no selective recompute")
    off, on = _with(facts, NoRecompute()), _with(facts, Selective())
    freed, slower = off.reserved_bytes - on.reserved_bytes, on.step_s / off.step_s - 1.0
    useful = freed > 0.02 * off.reserved_bytes
    return Ruling(
        verdict="holds" if useful and slower <= 0.05 else "fails", figure=size(freed, "memory_freed_bytes"),
        sentence=f"core attention recomputed frees {gib(freed)} of {gib(off.reserved_bytes)} and the step is "
        f"{change(facts, on.step_s, off.step_s)}"
        + ("" if useful else "; fused attention keeps no scores that it could free"),
    )


@judges("full-saves-most")
def full_saves_most(facts: Facts, _: Rule) -> Ruling:
    """Full recompute of this layout against none: memory and time."""
    off, on = _with(facts, NoRecompute()), _with(facts, Full())
    freed = off.reserved_bytes - on.reserved_bytes
    return Ruling(
        verdict="holds" if freed >= 0 else "fails", figure=size(freed, "memory_freed_bytes"),
        sentence=f"full recompute takes this layout from {gib(off.reserved_bytes)} to {gib(on.reserved_bytes)} (device offers "
        f"{gib(facts.case.capacity_bytes)}); the step is {change(facts, on.step_s, off.step_s)}",
    )


@judges("recompute-activations-is-full")
def recompute_activations_is_full(facts: Facts, _: Rule) -> Ruling:
    """What the flag does here, and what full would."""
    selective, full = _with(facts, Selective()), _with(facts, Full())
    return Ruling(
        verdict="wrong", figure=size(selective.reserved_bytes),
        sentence=f"the flag means selective: {gib(selective.reserved_bytes)} here, where full recompute needs "
        f"{gib(full.reserved_bytes)} and is "
        f"{change(facts, full.step_s, selective.step_s)}",
    )


@judges("recompute-lists")
def recompute_lists(facts: Facts, _: Rule) -> Ruling:
    """Recomputed layers of every chunk against the layers of that chunk."""
    layout = facts.layout
    split = split_of(facts.case, layout)
    least = min(count for row in split for count in row)
    match layout.recompute:
        case Full(layers=layers):
            pass
        case Mixed(counts=layers):
            pass
        case _:
            layers = 0
    if isinstance(layers, tuple):
        over = max(k - n for ks, ns in zip(layers, split, strict=False) for k, n in zip(ks, ns, strict=False))
        return Ruling(
            verdict="holds" if over <= 0 else "fails", figure=number("layers_over", over),
            sentence=f"recompute={recompute_word(layout.recompute)} for chunks of at least {least} layers",
        )
    asked = least if layers is None else layers
    return Ruling(
        verdict="holds" if asked <= least else "fails", figure=number("recomputed_layers", asked),
        sentence=f"{asked} layers recomputed in full in a chunk of {least} ({len(split)} chunks x {len(split[0])} "
        f"stages); the bound is the chunk's layers, "
        f"not the model's {facts.case.model.num_layers}",
    )


@judges("select-under-flash")
def select_under_flash(facts: Facts, _: Rule) -> Ruling:
    """What core attention frees under fused attention, and what the MLP activation would."""
    flash = running(facts.case, facts.layout).implementation.flash_attention
    off, core = _with(facts, NoRecompute()), _with(facts, Selective())
    share = _activation_ratio(facts)
    kept = off.estimate.stages[off.estimate.peak_stage].memory.activations
    freed = off.reserved_bytes - core.reserved_bytes
    if not flash:
        return does_not_apply(facts, f"attention is not fused here: select recomputes attention and frees {gib(freed)}")
    return Ruling(
        verdict="holds" if share * kept >= freed else "fails", figure=size(share * kept, "memory_freed_bytes"),
        sentence=f"fused attention leaves core attention {gib(freed)} to free; the output of the MLP activation is "
        f"{percent(share)} of the "
        f"{gib(kept)} of activations, {gib(share * kept)}, and cheap to compute again",
    )


def _activation_ratio(facts: Facts) -> float:
    """Share of the MLP's activation output in what a layer keeps, over all layers."""
    case, layout = running(facts.case, facts.layout), facts.layout
    shape = work_shape(
        microbatch_sequences=array(layout.microbatch_sequences), sequence_tokens=case.batch.sequence_tokens,
        tensor_parallel=array(layout.tensor_parallel), sequence_parallel=array(float(layout.sequence_parallel)),
        context_parallel=array(layout.context_parallel), expert_parallel=array(layout.expert_parallel),
        expert_tensor_parallel=array(layout.expert_tensor_parallel),
    )
    without = replace(case.implementation, saved=tuple(row for row in case.implementation.saved if row.width != "mlp_width"))

    def kept_by(implementation: Implementation) -> float:
        return sum(
            float(case.model.pattern.count(index))
            * float(
                saved_bytes(
                    kind, case.model.hidden, case.batch.sequence_tokens, shape, implementation=implementation,
                    precision=case.training.precision, headroom_ratio=headroom_ratio(case, shape),
                )
            )
            for index, kind in enumerate(case.model.kinds)
        )

    kept, rest = kept_by(case.implementation), kept_by(without)
    return 1.0 - rest / kept if kept else 0.0


@judges("select-communication")
def select_communication(facts: Facts, _: Rule) -> Ruling:
    """Gathered inputs that are not kept."""
    layout, case = facts.layout, facts.case
    if not layout.sequence_parallel or layout.tensor_parallel == 1:
        return does_not_apply(facts, f"no sequence parallelism here (tp{layout.tensor_parallel})")
    tokens = layout.microbatch_sequences * case.batch.sequence_tokens / layout.context_parallel
    kept = 2.0 * 2.0 * tokens * case.model.hidden * (1.0 - 1.0 / layout.tensor_parallel)
    layers = max(stage.layers for stage in facts.estimate.stages)
    share = facts.estimate.time.tensor_parallel_s / facts.step_s
    return Ruling(
        verdict="holds", figure=size(kept * layers, "gathered_inputs_bytes"),
        sentence=f"keeping the gathered inputs of {layers} layers would take {gib(kept * layers)} more for each "
        f"micro-batch in flight; tensor-parallel "
        f"communication exposes {percent(share)} of the step",
    )


@judges("accumulation-saves")
def accumulation_saves(facts: Facts, _: Rule) -> Ruling:
    """Smaller micro-batches, more of them: memory of this layout against twice and half the micro-batch."""
    layout = facts.layout
    other = facts.varied(microbatch_sequences=2 * layout.microbatch_sequences)
    if other is None:
        return does_not_apply(
            facts, f"micro-batch {layout.microbatch_sequences} with {layout.num_microbatches} accumulated: no other is legal"
        )
    more = other.reserved_bytes - facts.estimate.memory_reserved_bytes
    return Ruling(
        verdict="holds" if more > 0 else "fails", figure=ratio("memory_change_ratio", -more / other.reserved_bytes),
        sentence=f"{layout.num_microbatches} micro-batches of {layout.microbatch_sequences} need {gib(more)} less "
        f"than {other.layout.num_microbatches} of "
        f"{other.layout.microbatch_sequences}, and are {change(facts, facts.step_s, other.step_s)}",
    )
