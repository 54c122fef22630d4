"""Global batch, micro-batch, bubble, packing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Layout
from meshwright.estimate.memory import held_bytes
from meshwright.judging.finding import Ruling, Verdict, number, ratio
from meshwright.judging.neighbours import vary
from meshwright.judging.predicates import (
    change,
    contest,
    does_not_apply,
    expected_change,
    expected_change_ratio,
    ideal_bubble,
    judges,
    riskier,
    speed,
    takes,
)
from meshwright.units import gib
from meshwright.words import percent, seconds, signed

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.facts import Facts


@judges("global-batch")
def global_batch(facts: Facts, _: Rule) -> Ruling:
    """Replicas x micro-batch x micro-batches is the global batch that was given."""
    layout, batch = facts.layout, facts.case.batch.global_batch_sequences
    product = layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches
    parts = f"dp {layout.data_parallel} x mb {layout.microbatch_sequences} x {layout.num_microbatches} micro-batches"
    words = f"{parts} = {product} sequences"
    return Ruling(
        verdict="holds" if product == batch else "fails",
        figure=number("global_batch_sequences", product),
        sentence=f"{words}, the global batch that was given" if product == batch else f"{words}, not the {batch} that were given",
    )


@judges("micro-batch-one")
def micro_batch_one(facts: Facts, _: Rule) -> Ruling:
    """The winner at micro-batch 1, and that winner scaled up, against the best of all."""
    start, best = facts.best.get("mb1"), facts.best.get("any")
    if start is None or best is None or not start.fits:
        return contest(facts, "mb1", "any", "micro-batch 1", "best of all")
    mesh = start.layout
    scaled = [
        found
        for mb in (2, 4, 8, 16)
        if isinstance(found := vary(facts.case, facts.features, mesh, microbatch_sequences=mb), Layout)
        and not facts.refusals(found)
    ]
    able = [facts.alternative(each) for each in facts.trials(scaled) if each.estimate.fits]
    reached = min([start, *able], key=lambda each: each.expected_step_s)
    relative = expected_change_ratio(reached, best)
    risk = riskier({"that scaled up": reached, "the best of all": best})
    tokens = facts.case.batch.sequence_tokens / mesh.context_parallel / mesh.tensor_parallel
    return Ruling(
        verdict="holds" if relative <= facts.error_ratio else "fails", figure=ratio("expected_change_ratio", relative),
        sentence=f"the best layout at micro-batch 1 takes {speed(start)}, scaled up {takes(reached)}, the best of "
        f"all {speed(best)}: "
        f"{expected_change(facts, reached, best)}{risk}; micro-batch 1 leaves {tokens:,.0f} tokens a device",
    )


@judges("micro-batch-two")
def micro_batch_two(facts: Facts, _: Rule) -> Ruling:
    """Micro-batch 2 against any."""
    return contest(facts, "mb2", "any", "micro-batch 2", "any micro-batch")


@judges("micro-batch-sixteen")
def micro_batch_sixteen(facts: Facts, _: Rule) -> Ruling:
    """Micro-batch 16 against any."""
    return contest(facts, "mb16", "any", "micro-batch 16", "any micro-batch")


@judges("micro-batch-above-stages")
def micro_batch_above_stages(facts: Facts, _: Rule) -> Ruling:
    """A micro-batch larger than the stages: wrong, and what it costs."""
    p, mb, m = facts.layout.pipeline_parallel, facts.layout.microbatch_sequences, facts.layout.num_microbatches
    if p == 1:
        return does_not_apply(facts, f"no pipeline here, micro-batch {mb}")
    own = f"this layout has {m} micro-batches of {mb} for {p} stages"
    found = contest(facts, "mb>pp", "mb<=pp", "a micro-batch above the stages", "at or below", tail=own)
    return Ruling(verdict="wrong", figure=found.figure, sentence=found.sentence)


@judges("bubble-formula")
def bubble_formula(facts: Facts, _: Rule) -> Ruling:
    """The guide's bubble beside the real formula and the estimate."""
    layout = facts.layout
    p, v, m, mb = layout.pipeline_parallel, layout.virtual_stages, layout.num_microbatches, layout.microbatch_sequences
    guide, real = p / (p + mb), ideal_bubble(p, v, m)
    return Ruling(
        verdict="wrong", figure=ratio("bubble_ratio", real),
        sentence=f"the guide's PP/(PP + mb) gives {percent(guide)} with {p} stages and micro-batch {mb}; (p-1)/(v m + "
        f"p-1) with {m} micro-batches "
        f"and {v} chunks gives {percent(real)}, the estimate {percent(facts.estimate.bubble_ratio)}",
    )


@judges("raise-micro-batch")
def raise_micro_batch(facts: Facts, _: Rule) -> Ruling:
    """What a doubled micro-batch does to the bubble."""
    if facts.layout.pipeline_parallel == 1:
        return does_not_apply(facts, "no pipeline, no bubble")
    found = _doubled(facts)
    return Ruling(verdict="wrong", figure=found.figure, sentence=found.sentence)


@judges("micro-batch-trade-off")
def micro_batch_trade_off(facts: Facts, _: Rule) -> Ruling:
    """Bubble up, kernels better filled: both shown."""
    if facts.layout.pipeline_parallel == 1:
        return does_not_apply(facts, "no pipeline, no bubble: a larger micro-batch only fills the kernels")
    return _doubled(facts)


def _doubled(facts: Facts) -> Ruling:
    layout, now = facts.layout, facts.estimate
    then = facts.varied(microbatch_sequences=2 * layout.microbatch_sequences)
    if then is None:
        m, p = layout.num_microbatches // 2, layout.pipeline_parallel
        bubble = ideal_bubble(p, layout.virtual_stages, m)
        return Ruling(
            verdict="holds", figure=ratio("bubble_ratio", bubble),
            sentence=f"micro-batch {2 * layout.microbatch_sequences} is not legal with the other knobs as they are; "
            f"{m} micro-batches on {p} stages "
            f"would idle {percent(bubble)} instead of {percent(now.bubble_ratio)}",
        )
    before, after = now.time.bubble_s, then.estimate.time.bubble_s
    work = (then.estimate.time.compute_s / now.time.compute_s - 1.0) if now.time.compute_s else 0.0
    verdict: Verdict = "holds" if after >= before * 0.999 else "fails"
    return Ruling(
        verdict=verdict, figure=ratio("bubble_ratio", then.estimate.bubble_ratio),
        sentence=f"micro-batch {layout.microbatch_sequences} -> {then.layout.microbatch_sequences} halves the micro-batches to "
        f"{then.layout.num_microbatches}: bubble {percent(now.bubble_ratio)} -> "
        f"{percent(then.estimate.bubble_ratio)}, compute {signed(work)}, "
        f"step {change(facts, then.step_s, now.step_s)}, memory "
        f"{gib(then.reserved_bytes)}{'' if then.estimate.fits else ' (does not fit)'}",
    )


@judges("larger-batch")
def larger_batch(facts: Facts, _: Rule) -> Ruling:
    """The same layout at twice the global batch."""
    then, now = facts.with_batch(2), facts.estimate
    if then is None:
        return does_not_apply(
            facts, f"{2 * facts.layout.num_microbatches} micro-batches are not legal with the other knobs as they are"
        )
    gain = then.estimate.mfu_ratio - now.mfu_ratio
    return Ruling(
        verdict="holds" if gain >= 0 else "fails", figure=ratio("mfu_change_ratio", gain),
        sentence=f"twice the global batch would bring the bubble from {percent(now.bubble_ratio)} to "
        f"{percent(then.estimate.bubble_ratio)} "
        f"and MFU from {percent(now.mfu_ratio)} to {percent(then.estimate.mfu_ratio)}; the batch is the algorithm's and stays",
    )


@judges("try-micro-batches")
def try_micro_batches(facts: Facts, _: Rule) -> Ruling:
    """The best step time of each micro-batch over the grid."""
    tried = [(mb, facts.best[f"mb{mb}"]) for mb in (1, 2, 4, 8, 16) if f"mb{mb}" in facts.best and facts.best[f"mb{mb}"].fits]
    if len(tried) < 2:
        return does_not_apply(facts, f"{len(tried)} micro-batch fits or is legal, nothing to compare")
    times = [found.expected_step_s for _, found in tried]
    spread = max(times) / min(times) - 1.0
    listed = ", ".join(f"mb{mb} {seconds(found.expected_step_s)}" for mb, found in tried)
    return Ruling(
        verdict="holds" if spread > facts.error_ratio else "fails", figure=ratio("expected_spread_ratio", spread),
        sentence=f"expected of the best over the grid: {listed}; between best and worst lie {percent(spread)}",
    )


@judges("packing")
def packing(facts: Facts, _: Rule) -> Ruling:
    """What packed documents save in attention."""
    batch = facts.case.batch
    square = batch.mean_square_document_tokens
    if square is None:
        return does_not_apply(facts, f"every sequence is one document of {batch.sequence_tokens:,} tokens: nothing is padded")
    share = square / batch.sequence_tokens**2
    return Ruling(
        verdict="holds", figure=ratio("attention_work_ratio", share),
        sentence=f"documents are packed into {batch.sequence_tokens:,} tokens; attention does {percent(share)} of the "
        f"work of one long document",
    )


@judges("packing-limit")
def packing_limit(facts: Facts, _: Rule) -> Ruling:
    """How many tokens a packed sequence could have before memory runs out, in proportion to activations."""
    estimate, batch = facts.estimate, facts.case.batch
    memory = estimate.stages[estimate.peak_stage].memory
    grows = float(held_bytes(facts.case, memory.activations + memory.temporary))
    free = facts.case.capacity_bytes - (memory.reserved_bytes - grows)
    tokens = batch.sequence_tokens * max(0.0, free / grows) if grows > 0 else float(batch.sequence_tokens)
    return Ruling(
        verdict="holds" if estimate.fits else "fails", figure=number("max_packed_tokens", tokens),
        sentence=f"activations take {gib(memory.activations)} at {batch.sequence_tokens:,} tokens; up to some "
        f"{tokens:,.0f} tokens in a packed "
        f"sequence would fit this layout",
    )


@judges("template-batch")
def template_batch(facts: Facts, _: Rule) -> Ruling:
    """The template's product beside this case's."""
    layout, batch = facts.layout, facts.case.batch.global_batch_sequences
    return Ruling(
        verdict="wrong", figure=number("num_microbatches", layout.num_microbatches),
        sentence=f"1 x 16 x 8 = {1 * 16 * 8}, not 2048: 2048 / (1 x 8) = {2048 // 8} micro-batches are needed; here "
        f"{batch} / ({layout.microbatch_sequences} x "
        f"{layout.data_parallel}) = {layout.num_microbatches}",
    )
