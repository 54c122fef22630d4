"""The Ultra-Scale Playbook's three steps: model size, batch size, throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.judging.climb import climb
from meshwright.judging.finding import Ruling, number, ratio
from meshwright.judging.predicates import (
    against,
    change,
    contest,
    does_not_apply,
    expected_change,
    expected_change_ratio,
    judges,
    riskier,
    speed,
    takes,
)
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.facts import Facts


@judges("small-one-technique")
def small_one_technique(facts: Facts, _: Rule) -> Ruling:
    """At most one of TP, PP, CP, EP beside DP, below 10 B."""
    if facts.parameters >= 10e9:
        return does_not_apply(facts, f"said of models below 10 B; this one has {facts.parameters / 1e9:.1f} B")
    return contest(facts, "one-technique", "any", "one technique beside DP", "any combination")


@judges("middle-options")
def middle_options(facts: Facts, _: Rule) -> Ruling:
    """The three options against any, for 10 to 100 B on more than 8 devices."""
    billions, world = facts.parameters / 1e9, facts.layout.world
    if not 10 <= billions <= 100 or world <= 8:
        return does_not_apply(facts, f"said of 10 to 100 B on more than 8 devices; here {billions:.1f} B on {world}")
    options = {"tp8-pp": "TP 8 with PP", "tp8-zero3": "TP 8 with ZeRO-3", "zero3-alone": "ZeRO-3 alone"}
    listed, fitting = [], []
    for name, words in options.items():
        found = facts.best.get(name)
        if found is None:
            listed.append(f"{words}: not legal")
        elif found.fits:
            listed.append(f"{words}: {takes(found)}")
            fitting.append((found.expected_step_s, name))
        else:
            listed.append(f"{words}: does not fit")
    if not fitting:
        return contest(facts, "tp8-pp", "any", "TP 8 with PP", "best of all", tail="; ".join(listed))
    return contest(
        facts, min(fitting)[1], "any", f"the best of the three, {options[min(fitting)[1]]}", "best of all", tail="; ".join(listed)
    )


@judges("pure-data-parallel")
def pure_data_parallel(facts: Facts, _: Rule) -> Ruling:
    """ZeRO-3 or DP alone against the rest, from 512 devices: the guide says it loses."""
    world = facts.layout.world
    if world < 512:
        return does_not_apply(facts, f"{world} devices, said from 512")
    name = "zero3-alone" if "zero3-alone" in facts.best else "data-parallel"
    found, best = facts.best.get(name), facts.best.get("any")
    batch = facts.case.batch
    words = f"{batch.global_batch_sequences} sequences for {world} devices"
    if found is None or best is None or not best.fits:
        return Ruling(verdict="holds", figure=number("devices", world), sentence=f"pure DP is not even legal here ({words})")
    if not found.fits:
        return Ruling(
            verdict="holds", figure=number("devices", world), sentence=f"pure DP does not fit ({words}); the best: {speed(best)}"
        )
    relative = expected_change_ratio(found, best)
    risk = riskier({"pure DP": found, "the best": best})
    return Ruling(
        verdict="holds" if relative > facts.error_ratio else "fails", figure=ratio("expected_change_ratio", relative),
        sentence=f"pure DP or ZeRO-3: {speed(found)}, {expected_change(facts, found, best)} than the best, "
        f"{speed(best)}{risk}; {words}",
    )


@judges("context-across-nodes")
def context_across_nodes(facts: Facts, _: Rule) -> Ruling:
    """CP across nodes against within, for very long sequences."""
    tokens = facts.case.batch.sequence_tokens
    if tokens < 65536:
        return does_not_apply(facts, f"{tokens:,} tokens are not very long")
    return contest(facts, "cp-across", "cp-within", "CP across nodes", "TP x CP within a node", tail=f"{tokens:,} tokens")


@judges("experts-across-nodes")
def experts_across_nodes(facts: Facts, _: Rule) -> Ruling:
    """EP across nodes against within."""
    if facts.case.model.experts is None:
        return does_not_apply(facts, "a dense model has no experts")
    tail = f"this layout has ep{facts.layout.expert_parallel} etp{facts.layout.expert_tensor_parallel}"
    return contest(facts, "ep-across", "ep-within", "EP across nodes", "EP within the scale-up domain", tail=tail)


@judges("batch-up")
def batch_up(facts: Facts, _: Rule) -> Ruling:
    """Twice the batch by accumulation."""
    then = facts.with_batch(2)
    if then is None:
        return does_not_apply(
            facts, f"{2 * facts.layout.num_microbatches} micro-batches are not legal with the other knobs as they are"
        )
    rate = then.estimate.tokens_per_s / facts.estimate.tokens_per_s - 1.0
    return Ruling(
        verdict="holds", figure=ratio("throughput_change_ratio", rate),
        sentence=f"twice the batch is {then.layout.num_microbatches} micro-batches on the same devices at "
        f"{percent(rate)} more tokens/s, or twice the devices with "
        f"dp{2 * facts.layout.data_parallel}",
    )


@judges("batch-down")
def batch_down(facts: Facts, _: Rule) -> Ruling:
    """The smallest batch that this layout can run."""
    layout, batch = facts.layout, facts.case.batch.global_batch_sequences
    least = layout.data_parallel * layout.microbatch_sequences
    return Ruling(
        verdict="holds" if least <= batch else "fails", figure=number("smallest_batch_sequences", least),
        sentence=f"dp{layout.data_parallel} x mb{layout.microbatch_sequences} runs no batch below {least} sequences, "
        f"{least * layout.pipeline_parallel} to fill "
        f"pp{layout.pipeline_parallel}; below that DP has to give way",
    )


@judges("batch-context")
def batch_context(facts: Facts, _: Rule) -> Ruling:
    """What doubling CP does to the smallest batch and to memory."""
    return _context(facts, 2 * facts.layout.context_parallel)


@judges("batch-context-down")
def batch_context_down(facts: Facts, _: Rule) -> Ruling:
    """Less CP on the same devices: the smallest batch grows."""
    layout = facts.layout
    if layout.context_parallel == 1:
        least = layout.data_parallel * layout.microbatch_sequences
        return does_not_apply(facts, f"no context parallelism here; the smallest batch is {least} sequences")
    found = _context(facts, layout.context_parallel // 2)
    return Ruling(verdict="wrong", figure=found.figure, sentence=found.sentence)


def _context(facts: Facts, cp: int) -> Ruling:
    layout = facts.layout
    now, then = layout.data_parallel * layout.microbatch_sequences, facts.varied(context_parallel=cp)
    if then is None:
        return does_not_apply(facts, f"cp{cp} is not legal here; the smallest batch is {now} sequences")
    least = then.layout.data_parallel * then.layout.microbatch_sequences
    short = "" if facts.estimate.fits or not then.estimate.fits else ", and then it fits"
    return Ruling(
        verdict="holds" if not facts.estimate.fits and then.estimate.fits else "fails",
        figure=number("smallest_batch_sequences", least),
        sentence=f"cp{layout.context_parallel} -> cp{cp} on {layout.world} devices means dp{layout.data_parallel} -> "
        f"dp{then.layout.data_parallel}: the smallest batch goes "
        f"from {now} to {least} sequences, the step is {change(facts, then.step_s, facts.step_s)}{short}",
    )


@judges("tensor-to-node")
def tensor_to_node(facts: Facts, _: Rule) -> Ruling:
    """TP near the node against less."""
    node = facts.case.cluster.devices_per_node
    return contest(
        facts,
        "tp-node",
        "tp-below-node",
        f"TP near the node of {node}",
        "less TP",
        tail=f"this layout has tp{facts.layout.tensor_parallel}",
    )


@judges("data-parallel-zero-three")
def data_parallel_zero_three(facts: Facts, _: Rule) -> Ruling:
    """ZeRO-3 against less sharding."""
    if 3 not in facts.features.zero_stages:
        return does_not_apply(facts, f"{facts.features.name} has no ZeRO-3")
    return contest(facts, "zero3", "zero<3", "ZeRO-3", "ZeRO-1 or less, with any split")


@judges("data-parallel-bottleneck")
def data_parallel_bottleneck(facts: Facts, _: Rule) -> Ruling:
    """Twice the stages, half the replicas, where data parallelism is exposed."""
    layout, share = facts.layout, facts.estimate.time.data_parallel_exposed_s / facts.step_s
    if share <= facts.error_ratio:
        return does_not_apply(facts, f"data parallelism exposes {percent(share)} of the step: no bottleneck")
    then = facts.varied(pipeline_parallel=2 * layout.pipeline_parallel)
    if then is None:
        return does_not_apply(
            facts, f"data parallelism exposes {percent(share)}, but pp{2 * layout.pipeline_parallel} is not legal here"
        )
    found = against(facts, then, facts.trial(layout))
    return Ruling(
        verdict="holds" if found.better else "fails", figure=ratio("expected_change_ratio", found.ratio),
        sentence=f"data parallelism exposes {percent(share)}; pp{layout.pipeline_parallel} -> "
        f"pp{then.layout.pipeline_parallel} brings it to "
        f"{percent(then.estimate.time.data_parallel_exposed_s / then.step_s)} and the step is {found.words}",
    )


@judges("one-at-a-time")
def one_at_a_time(facts: Facts, _: Rule) -> Ruling:
    """Steepest descent from the guided start, one knob a move, against the best of the grid."""
    start = next(
        (found for name in ("guided-1.5", "guided-3", "guided-any") if (found := facts.best.get(name)) is not None and found.fits),
        None,
    )
    best = facts.best.get("any")
    if start is None or best is None or not best.fits:
        return does_not_apply(facts, "no start near 4 B parameters a device fits")
    top, moves = climb(facts.case, facts.features, start.layout, start.expected_step_s)
    reached = facts.alternative(facts.trial(top))
    relative = expected_change_ratio(reached, best)
    risk = riskier({"the climb": reached, "the joint search": best})
    return Ruling(
        verdict="holds" if relative <= facts.error_ratio else "fails", figure=ratio("expected_change_ratio", relative),
        sentence=f"one knob at a time from the guided start reaches {takes(reached)} in {moves} moves; the joint "
        f"search {speed(best)}: {expected_change(facts, reached, best)}{risk}",
    )
