"""Tensor, pipeline, context and expert parallelism: ChatLearn's and the Megatron guide's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.judging.finding import Ruling, number, ratio
from meshwright.judging.following import SMALL_CLUSTER_NODES, guided_parts
from meshwright.judging.predicates import against, contest, does_not_apply, judges, speed
from meshwright.judging.questions import START_PARAMETERS
from meshwright.units import count, gib
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.facts import Facts


@judges("parallelism-costs")
def parallelism_costs(facts: Facts, _: Rule) -> Ruling:
    """Parameters per device, and what the axes that split them expose."""
    layout, estimate, time = facts.layout, facts.estimate, facts.estimate.time
    parts = layout.tensor_parallel * layout.context_parallel * layout.pipeline_parallel * layout.expert_parallel
    if parts == 1:
        return does_not_apply(facts, f"no model parallelism here: every device holds all {count(facts.parameters)} parameters")
    exposed = time.tensor_parallel_s + time.context_parallel_s + time.expert_parallel_s + time.pipeline_exposed_s + time.bubble_s
    most = max(stage.parameters for stage in estimate.stages)
    return Ruling(
        verdict="holds", figure=ratio("model_parallel_ratio", exposed / facts.step_s),
        sentence=f"{count(most)} of {count(facts.parameters)} parameters on the fullest device, for "
        f"{percent(exposed / facts.step_s)} of the step "
        f"in their communication and bubble",
    )


@judges("context-from-8192")
def context_from_8192(facts: Facts, _: Rule) -> Ruling:
    """Context parallelism of 2 or more against 1, from 8192 tokens."""
    tokens, own = facts.case.batch.sequence_tokens, f"this layout has cp{facts.layout.context_parallel}"
    if tokens < 8192:
        found = facts.best.get("cp>1")
        more = f"; with it the best would take {speed(found)}" if found is not None and found.fits else ""
        return does_not_apply(facts, f"sequences have {tokens:,} tokens, fewer than 8192{more}")
    return contest(facts, "cp>1", "cp1", f"CP of 2 or more at {tokens:,} tokens", "CP 1", tail=own)


@judges("tensor-inside-node")
def tensor_inside_node(facts: Facts, _: Rule) -> Ruling:
    """TP inside the scale-up domain against beyond it."""
    cluster, tp = facts.case.cluster, facts.layout.tensor_parallel
    domain, node = cluster.scale_up_devices, cluster.devices_per_node
    note = "" if domain == node else f"; the scale-up domain has {domain} devices and the node {node}: the domain is the bound"
    found = contest(
        facts, "tp-within", "tp-beyond", f"TP within {domain} devices", f"TP beyond {domain}", tail=f"this layout has tp{tp}{note}"
    )
    if found.verdict == "holds" and domain > node and node < tp <= domain:
        return Ruling(verdict="fails", figure=number("tensor_parallel", tp), sentence=found.sentence)
    return found


@judges("pipeline-below-microbatches")
def pipeline_below_microbatches(facts: Facts, _: Rule) -> Ruling:
    """Fewer stages than micro-batches; what the opposite would cost."""
    p, m = facts.layout.pipeline_parallel, facts.layout.num_microbatches
    if "pp>=m" not in facts.best:
        if p == 1:
            return does_not_apply(facts, f"one stage; {m} micro-batches")
        return Ruling(
            verdict="holds", figure=ratio("bubble_ratio", facts.estimate.bubble_ratio),
            sentence=f"{p} stages, {m} micro-batches, bubble {percent(facts.estimate.bubble_ratio)}; no legal layout "
            f"has as many stages as micro-batches",
        )
    return contest(
        facts,
        "pp<m",
        "pp>=m",
        "fewer stages than micro-batches",
        "at least as many",
        tail=f"this layout has pp{p} and {m} micro-batches",
    )


@judges("pipeline-cheap")
def pipeline_cheap(facts: Facts, _: Rule) -> Ruling:
    """What the pipeline of this layout, or the best pipeline, costs and saves."""
    layout, estimate = facts.layout, facts.estimate
    if layout.pipeline_parallel == 1:
        return contest(facts, "pp>1", "pp1", "a pipeline", "no pipeline")
    cost = estimate.bubble_ratio + estimate.time.pipeline_exposed_s / facts.step_s
    return Ruling(
        verdict="holds" if cost <= 0.1 else "fails", figure=ratio("pipeline_ratio", cost),
        sentence=f"{layout.pipeline_parallel} stages with {layout.num_microbatches} micro-batches cost "
        f"{percent(cost)} of the step and cut the states "
        f"of a device {layout.pipeline_parallel}-fold, to {gib(estimate.memory_reserved_bytes)} in all",
    )


@judges("experts-for-moe")
def experts_for_moe(facts: Facts, _: Rule) -> Ruling:
    """Expert parallelism where there are experts."""
    experts, layout = facts.case.model.experts, facts.layout
    if experts is None:
        return does_not_apply(facts, "a dense model has no experts")
    return contest(
        facts,
        "ep>1",
        "ep1",
        "expert parallelism",
        "EP 1",
        tail=f"this layout has ep{layout.expert_parallel} for {experts.num_experts} experts",
    )


@judges("expert-before-expert-tensor")
def expert_before_expert_tensor(facts: Facts, _: Rule) -> Ruling:
    """ETP 1 against more."""
    if facts.case.model.experts is None:
        return does_not_apply(facts, "a dense model has no experts")
    return contest(
        facts,
        "etp1",
        "etp>1",
        "ETP 1",
        "ETP above 1",
        tail=f"this layout has ep{facts.layout.expert_parallel} etp{facts.layout.expert_tensor_parallel}",
    )


@judges("four-billion-start")
def four_billion_start(facts: Facts, _: Rule) -> Ruling:
    """The guided start against the best of all."""
    each = facts.parameters / guided_parts(facts.case, facts.layout)
    tail = f"this layout has {count(each)} a device, {each / START_PARAMETERS:.2g} times 4 B"
    for name in ("guided-1.5", "guided-3", "guided-any"):
        found = facts.best.get(name)
        if found is not None and found.fits:
            return contest(facts, name, "any", "a start near 4 B parameters a device", "best of all", tail=tail)
    return contest(facts, "guided-any", "any", "a start near 4 B parameters a device", "best of all", tail=tail)


@judges("pipeline-for-large-batch")
def pipeline_for_large_batch(facts: Facts, _: Rule) -> Ruling:
    """PP of 2 or more against 1, or the other way where the batch is small: fewer sequences than devices."""
    batch, layout = facts.case.batch.global_batch_sequences, facts.layout
    tail = f"{batch} sequences for {layout.world} devices, this layout has pp{layout.pipeline_parallel} vp{layout.virtual_stages}"
    if batch < layout.world:
        return contest(facts, "pp1", "pp>1", "PP 1 (TP, CP and DP) for a small batch", "PP of 2 or more", tail=tail)
    return contest(facts, "pp>1", "pp1", "PP of 2 or more", "PP 1 (TP, CP and DP)", tail=tail)


@judges("virtual-one-or-two")
def virtual_one_or_two(facts: Facts, _: Rule) -> Ruling:
    """At most two chunks against more."""
    if "vp>2" not in facts.best and "vp<=2" not in facts.best:
        return does_not_apply(facts, "no pipeline is legal, so there are no virtual stages")
    tail = f"this layout has vp{facts.layout.virtual_stages}; 1 means off"
    return contest(facts, "vp<=2", "vp>2", "1 or 2 virtual stages", "more than 2", tail=tail)


@judges("virtual-pipeline")
def virtual_pipeline(facts: Facts, _: Rule) -> Ruling:
    """Chunks against none, on this layout where it has some."""
    layout, now = facts.layout, facts.estimate
    if layout.virtual_stages == 1 or layout.schedule != "interleaved":
        return contest(
            facts, "vp>1", "vp1", "virtual stages", "one chunk a stage", tail=f"this layout has vp{layout.virtual_stages}"
        )
    without = facts.varied(virtual_stages=1)
    if without is None:
        return does_not_apply(facts, f"vp{layout.virtual_stages} cannot be switched off with the other knobs as they are")
    before, after = without.estimate.time, now.time
    found = against(facts, facts.trial(layout), without)
    return Ruling(
        verdict="fails" if against(facts, without, facts.trial(layout)).better else "holds",
        figure=ratio("expected_change_ratio", found.ratio),
        sentence=f"vp1 -> vp{layout.virtual_stages} takes the bubble from {seconds(before.bubble_s)} to "
        f"{seconds(after.bubble_s)} and exposed transfers from "
        f"{seconds(before.pipeline_exposed_s)} to {seconds(after.pipeline_exposed_s)}; the step from {seconds(without.step_s)} "
        f"to {seconds(now.step_s)}, {found.words}",
    )


@judges("tensor-range")
def tensor_range(facts: Facts, _: Rule) -> Ruling:
    """TP of 2, 4 or 8 against 1."""
    return contest(facts, "tp2-8", "tp1", "TP of 2, 4 or 8", "TP 1", tail=f"this layout has tp{facts.layout.tensor_parallel}")


@judges("pipeline-range")
def pipeline_range(facts: Facts, _: Rule) -> Ruling:
    """At most 16 stages against more."""
    return contest(
        facts, "pp<=16", "pp>16", "1 to 16 stages", "more than 16", tail=f"this layout has pp{facts.layout.pipeline_parallel}"
    )


@judges("tensor-by-size")
def tensor_by_size(facts: Facts, _: Rule) -> Ruling:
    """The TP of the guide's size class against any; wrong where there is no class."""
    billions, best, own = facts.parameters / 1e9, facts.best.get("any"), f"this layout has tp{facts.layout.tensor_parallel}"
    if 50.0 < billions < 100.0:
        words = f"; the best here: {speed(best)}" if best is not None and best.fits else ""
        return Ruling(
            verdict="wrong", figure=number("parameters", facts.parameters),
            sentence=f"{billions:.1f} B parameters are in no class of the guide (50 to 100 B is left out){words}; {own}",
        )
    name, words = ("tp1", "TP 1 (up to 10 B)") if billions <= 10 else ("tp2-4", "TP 2 to 4 (10 to 50 B)")
    if billions >= 100:
        name, words = "tp8", "TP 8 (from 100 B)"
    return contest(facts, name, "any", words, "any TP", tail=f"the model has {billions:.1f} B parameters, {own}")


@judges("data-parallel-first")
def data_parallel_first(facts: Facts, _: Rule) -> Ruling:
    """Small clusters: DP alone against the rest; large: TP with PP against the rest."""
    nodes = facts.case.cluster.num_nodes
    if nodes <= SMALL_CLUSTER_NODES:
        return contest(facts, "data-parallel", "any", "DP alone", "any split", tail=f"{nodes} nodes are a small cluster")
    return contest(facts, "model-parallel", "any", "TP with PP", "any split", tail=f"{nodes} nodes are a large cluster")


@judges("context-for-long")
def context_for_long(facts: Facts, _: Rule) -> Ruling:
    """What context parallelism does to activations, and how many tokens a device then holds."""
    tokens, layout = facts.case.batch.sequence_tokens, facts.layout
    if layout.context_parallel > 1:
        ring = facts.estimate.time.context_parallel_s / facts.step_s
        return Ruling(
            verdict="holds", figure=ratio("context_parallel_ratio", ring),
            sentence=f"cp{layout.context_parallel} leaves {tokens // layout.context_parallel:,} of {tokens:,} tokens "
            f"a rank for {percent(ring)} of the step",
        )
    if tokens < 32768:
        return does_not_apply(facts, f"{tokens:,} tokens fit without context parallelism here")
    return contest(facts, "cp>1", "cp1", "context parallelism", "CP 1")


@judges("alibi")
def alibi(facts: Facts, _: Rule) -> Ruling:
    """Whether the model has ALiBi and the framework its kernels."""
    position, features = facts.case.model.position, facts.features
    if position != "alibi":
        return does_not_apply(
            facts, f"the model is built with {position} positions, for {facts.case.batch.sequence_tokens:,} tokens here"
        )
    able = "alibi" in features.positions
    return Ruling(
        verdict="holds" if able else "fails", figure=number("sequence_tokens", facts.case.batch.sequence_tokens),
        sentence=f"the model has ALiBi, {facts.case.batch.sequence_tokens:,} tokens here; "
        f"{features.name} {'has' if able else 'has no'} kernels for it",
    )
