"""Where the guides contradict each other: the sides, who is right for this case, and the figure that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshwright.judging.facts import ERROR
from meshwright.judging.finding import Disagreement, Figure, Side, number, ratio
from meshwright.judging.predicates import only_more_work, percent
from meshwright.units import gib, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.judging.alternatives import Alternative
    from meshwright.judging.facts import Facts
    from meshwright.judging.finding import Judgement

    Decision = tuple[tuple[str, ...], Figure, str]


SMALL_PARAMETERS = 10e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Rules on one topic; ``questions`` names the grid question that stands for each, where the grid decides."""

    topic: str
    rules: tuple[str, ...]
    questions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


CONTESTS = (
    Contest(
        topic="micro-batch",
        rules=("chatlearn.micro-batch-one", "mindspore.micro-batch-two", "megatron.micro-batch-sixteen"),
        questions=("mb1", "mb2", "mb16"), words=("micro-batch 1", "micro-batch 2", "micro-batch 16"),
    ),
    Contest(
        topic="recompute",
        rules=("mindspore.recompute-off-if-memory", "megatron.selective-recommended", "playbook.small-full-recompute"),
        questions=("recompute-none", "recompute-selective", "recompute-full"), words=("off", "selective", "full"),
    ),
    Contest(
        topic="tensor parallelism",
        rules=("megatron.tensor-by-size", "playbook.tensor-to-node"),
        questions=("tp-by-size", "tp-node"), words=("TP by size of the model", "TP near the node"),
    ),
    Contest(
        topic="virtual stages",
        rules=("chatlearn.virtual-one-or-two", "mindspore.virtual-pipeline"),
        questions=("vp<=2", "vp>2"), words=("1 or 2 virtual stages", "more than 2"),
    ),
    Contest(
        topic="which axis after TP",
        rules=("chatlearn.pipeline-for-large-batch", "playbook.data-parallel-zero-three"),
        questions=("pp>1", "zero3"), words=("a pipeline", "DP with ZeRO-3"),
    ),
)


def disagreements(facts: Facts, judged: tuple[Judgement, ...]) -> tuple[Disagreement, ...]:
    """Every topic on which the guides contradict each other."""
    known = {judgement.rule: judgement for judgement in judged}
    contests = [_fitted(contest, facts) for contest in CONTESTS]
    found = [_of(known, contest.topic, contest.rules, _by_grid(facts, contest)) for contest in contests]
    found += [
        _of(known, topic, rules, decide(facts))
        for topic, rules, decide in (
            ("micro-batch and bubble", ("mindspore.micro-batch-trade-off", "megatron.raise-micro-batch"), _bubble),
            ("stages and micro-batches", ("chatlearn.pipeline-below-microbatches", "megatron.micro-batch-above-stages"), _stages),
            ("ZeRO with a pipeline", ("playbook.zero-two-with-pipeline-1024", "megatron.zero-three-under-pipeline"), _zero),
            ("communication", ("megatron.communication-20", "megatron.communication-15"), _communication),
        )
    ]
    return tuple(found)


def _fitted(contest: Contest, facts: Facts) -> Contest:
    """The playbook asks for full recompute below 10 B in any case, above that only where devices are few."""
    if facts.parameters < SMALL_PARAMETERS or contest.topic != "recompute":
        return contest
    return replace(contest, rules=(*contest.rules[:-1], "playbook.poor-full-recompute"))


def _of(known: Mapping[str, Judgement], topic: str, rules: tuple[str, ...], decision: Decision) -> Disagreement:
    right, figure, sentence = decision
    sides = tuple(
        Side(rule=id_, source=known[id_].source, says=known[id_].says, verdict=known[id_].verdict, figure=known[id_].figure)
        for id_ in rules
    )
    return Disagreement(topic=topic, sides=sides, right=right, figure=figure, sentence=sentence)


def _by_grid(facts: Facts, contest: Contest) -> Decision:
    """The side whose best layout is fastest, and those that the model cannot tell from it."""
    times: list[tuple[float, str]] = []
    known: dict[str, Alternative] = {}
    listed: list[str] = []
    for rule, question, words in zip(contest.rules, contest.questions, contest.words, strict=True):
        name = _class_question(facts) if question == "tp-by-size" else question
        found = facts.best.get(name) if name else None
        if found is None:
            listed.append(f"{words}: {'no class for this size' if not name else 'not legal here'}")
        elif not found.fits:
            listed.append(f"{words}: does not fit, {gib(found.memory_reserved_bytes)} at least")
        else:
            listed.append(f"{words}: {seconds(found.step_s)} ({found.label})")
            times.append((found.step_s, rule))
            known[rule] = found
    if not times:
        return (), number("devices", facts.layout.world), "; ".join(listed)
    (fastest, winner), best = min(times), facts.best["any"]
    close = fastest <= best.step_s * (1.0 + ERROR)
    right = tuple(
        rule for step_s, rule in times
        if close and (rule == winner or (step_s <= fastest * (1.0 + ERROR) and not only_more_work(known[rule], known[winner])))
    )
    slowest = max(times)[0]
    end = "" if close else f"; none of them: the best of all takes {seconds(best.step_s)} ({best.label})"
    return right, ratio("step_spread_ratio", slowest / fastest - 1.0), "; ".join(listed) + end


def _class_question(facts: Facts) -> str:
    billions = facts.parameters / 1e9
    if 50 < billions < 100:
        return ""
    return "tp1" if billions <= 10 else "tp2-4" if billions <= 50 else "tp8"


def _bubble(facts: Facts) -> Decision:
    layout = facts.layout
    p, v, m = layout.pipeline_parallel, layout.virtual_stages, layout.num_microbatches
    if p == 1:
        return (), ratio("bubble_ratio", 0.0), "no pipeline here, so no bubble: neither side is about this layout"
    now, then = (p - 1) / (v * m + p - 1), (p - 1) / (v * max(1, m // 2) + p - 1)
    return (
        ("mindspore.micro-batch-trade-off",), ratio("bubble_ratio", then),
        f"twice the micro-batch at the same global batch takes (p-1)/(v m + p-1) from {percent(now)} to {percent(then)} here",
    )


def _stages(facts: Facts) -> Decision:
    layout = facts.layout
    p, m, mb = layout.pipeline_parallel, layout.num_microbatches, layout.microbatch_sequences
    if p == 1:
        return (), number("num_microbatches", m), f"one stage; {m} micro-batches of {mb} need none to fill"
    return (
        ("chatlearn.pipeline-below-microbatches",), ratio("bubble_ratio", facts.estimate.bubble_ratio),
        f"{m} micro-batches of {mb} fill {p} stages to a bubble of {percent(facts.estimate.bubble_ratio)}; the number "
        f"counts, not the size",
    )


def _zero(facts: Facts) -> Decision:
    from meshwright.judging.judges.sharding import zero

    trials = [zero(facts, stage) for stage in (1, 2, 3)]
    known = [trial for trial in trials if trial is not None]
    if facts.layout.pipeline_parallel == 1 or not known:
        return (), number("pipeline_parallel", facts.layout.pipeline_parallel), "no sharding under a pipeline in this layout"
    listed = "; ".join(
        f"ZeRO-{stage} {seconds(each.step_s)}, {gib(each.reserved_bytes)}" for stage, each in enumerate(known, start=1)
    )
    one, two, three = (each.step_s for each in known)
    refused = sorted({reason for each in known[1:] for reason in each.refused_because})
    right: list[str] = []
    if not known[1].refused_because and known[1].estimate.fits and two <= one * (1.0 + ERROR):
        right.append("playbook.zero-two-with-pipeline-1024")
    if not known[2].refused_because and known[2].estimate.fits and three <= min(one, two) * (1.0 + ERROR):
        right.append("megatron.zero-three-under-pipeline")
    end = f"; {facts.features.name} refuses ZeRO-2 and 3 here: {', '.join(refused)}" if refused else ""
    neither = "; neither: ZeRO-1 communicates once a step" if not right else ""
    return tuple(right), ratio("step_change_ratio", three / one - 1.0), f"this layout with {listed}{end}{neither}"


def _communication(facts: Facts) -> Decision:
    value = facts.communication_ratio
    figure = ratio("communication_ratio", value)
    if value <= 0.15:
        return (
            ("megatron.communication-20", "megatron.communication-15"),
            figure,
            f"{percent(value)} exposed: within both bounds, they do not differ here",
        )
    if value <= 0.20:
        return (
            ("megatron.communication-20",),
            figure,
            f"{percent(value)} exposed: within 20 %, above 15 %; only the wider bound admits this layout",
        )
    best = facts.best.get("any")
    ahead = best is not None and best.fits and facts.step_s <= best.step_s * (1.0 + ERROR)
    words = "and no layout of the grid is faster: neither bound is a law" if ahead else "and faster layouts exist"
    return (), figure, f"{percent(value)} exposed: above both, {words}"
