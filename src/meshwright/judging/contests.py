"""Where the guides contradict each other: the sides with their figures, and which of them this case takes.

A side is right where its rule stands (``STANDS``): no second measure, so a rule that is taken never fails on the same page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from meshwright.catalog.guides import guides
from meshwright.judging.finding import STANDS, Decision, Disagreement, Figure, Judgement, Side, number, ratio
from meshwright.judging.guides import judge_with
from meshwright.judging.predicates import ideal_bubble, riskier, speed
from meshwright.units import gib
from meshwright.words import percent, signed

if TYPE_CHECKING:
    from meshwright.judging.facts import Facts

    Judged = Mapping[str, Judgement]


SMALL_PARAMETERS = 10e9


class Contest(Struct, frozen=True, kw_only=True):
    """Rules on one topic that cannot all be followed."""

    topic: str
    rules: tuple[str, ...]
    questions: tuple[str, ...] = ()
    """The grid question that stands for each rule, where the grid decides."""
    words: tuple[str, ...] = ()
    """What each rule asks for, in a few words, beside the figures of the grid."""
    says: Callable[[Facts], tuple[Figure, str]] | None = None
    """A figure and a sentence on the topic, where the grid does not decide."""
    of_a_pipeline: bool = False
    """Whether it is about the stages of the layout at hand: no question where there is one."""


def contests(facts: Facts) -> tuple[Contest, ...]:
    """Every topic; the playbook asks for full recompute below 10 B in any case, above that only where devices are few."""
    if facts.parameters < SMALL_PARAMETERS:
        return CONTESTS
    return tuple(
        structs.replace(each, rules=(*each.rules[:-1], "playbook.poor-full-recompute")) if each.topic == "recompute" else each
        for each in CONTESTS
    )


def disagreements(facts: Facts, judged: tuple[Judgement, ...]) -> tuple[Disagreement, ...]:
    """Every topic on which the guides contradict each other."""
    known = {judgement.rule: judgement for judgement in judged}
    return tuple(_decided(facts, contest, known) for contest in contests(facts))


def disagreement_about(facts: Facts, rule: str) -> Disagreement | None:
    """The contest that a rule is a side of; None where no guide contradicts it."""
    found = next((each for each in contests(facts) if rule in each.rules), None)
    if found is None:
        return None
    return _decided(facts, found, {name: judge_with(guides().rule(name), facts) for name in found.rules})


def _decided(facts: Facts, contest: Contest, known: Judged) -> Disagreement:
    """The sides, and those whose rules stand."""
    sides = tuple(_side(facts, contest, place, known[rule]) for place, rule in enumerate(contest.rules))
    idle = contest.of_a_pipeline and facts.layout.pipeline_parallel == 1
    right = () if idle else tuple(side.rule for side in sides if side.verdict in STANDS)
    decision: Decision = "no-question" if idle or all(side.verdict == "does-not-apply" for side in sides) else "none"
    if right:
        decision = "taken" if len(right) == 1 else "tie"
    figure, sentence = contest.says(facts) if contest.says is not None else _by_grid(facts, contest, right)
    return Disagreement(topic=contest.topic, sides=sides, decision=decision, right=right, figure=figure, sentence=sentence)


def _side(facts: Facts, contest: Contest, place: int, judged: Judgement) -> Side:
    """A rule and what following it comes to."""
    if contest.questions:
        words = _best(facts, contest, place)
    else:
        words = f"{judged.says}: {judged.sentence if judged.verdict == 'does-not-apply' else _shown(judged.figure)}"
    return Side(
        rule=judged.rule, source=judged.source, says=judged.says, verdict=judged.verdict, figure=judged.figure, sentence=words
    )


def _shown(figure: Figure) -> str:
    """``bubble 9.5 %``, ``step change +49.6 %``, ``2 micro-batches``."""
    words = figure.name.removesuffix("_ratio").removesuffix("_bytes").replace("_", " ")
    match figure.unit:
        case "ratio":
            return f"{words} {(signed if words.endswith('change') else percent)(figure.value)}"
        case "B":
            return f"{words} {gib(figure.value)}"
        case _:
            return f"{words} {figure.value:g}"


def _best(facts: Facts, contest: Contest, place: int) -> str:
    """``micro-batch 2: 19 s (tp4 ...)``."""
    question, words = _question(facts, contest.questions[place]), contest.words[place]
    found = facts.best.get(question) if question else None
    if found is None:
        return f"{words}: {'not legal here' if question else 'no class for this size'}"
    if not found.fits:
        return f"{words}: does not fit, {gib(found.memory_reserved_bytes)} at least"
    return f"{words}: {speed(found)}"


def _by_grid(facts: Facts, contest: Contest, right: tuple[str, ...]) -> tuple[Figure, str]:
    """How far the sides lie apart, and how far the layout itself is from the best of all."""
    best = facts.best.get("any")
    if best is None or not best.fits:
        return number("devices", facts.layout.world), "nothing fits with either"
    known = {
        words: facts.best[question] for words, each in zip(contest.words, contest.questions, strict=True)
        if (question := _question(facts, each)) in facts.best and facts.best[question].fits
    }
    times = [each.expected_step_s for each in known.values()]
    spread = ratio("expected_spread_ratio", max(times) / min(times) - 1.0 if times else 0.0)
    if len(right) > 1:
        return spread, f"within {percent(facts.error_ratio)} the model cannot tell them apart{riskier(known)}"
    words = riskier(known).removeprefix("; ")
    return spread, words if right else f"the best of all takes {speed(best)}{riskier({**known, 'the best of all': best})}"


def _question(facts: Facts, name: str) -> str:
    """A question of the grid by its name; ``tp-by-size`` is that of the model's class, and nothing where the guide has none."""
    if name != "tp-by-size":
        return name
    billions = facts.parameters / 1e9
    if 50 < billions < 100:
        return ""
    return "tp1" if billions <= 10 else "tp2-4" if billions <= 50 else "tp8"


def _bubble(facts: Facts) -> tuple[Figure, str]:
    layout = facts.layout
    p, v, m = layout.pipeline_parallel, layout.virtual_stages, layout.num_microbatches
    if p == 1:
        return ratio("bubble_ratio", 0.0), "no pipeline here, so no bubble"
    now, then = ideal_bubble(p, v, m), ideal_bubble(p, v, m // 2)
    words = f"twice the micro-batch at the same global batch takes (p-1)/(v m + p-1) from {percent(now)} to {percent(then)}"
    return ratio("bubble_ratio", then), words


def _stages(facts: Facts) -> tuple[Figure, str]:
    layout = facts.layout
    p, m, mb = layout.pipeline_parallel, layout.num_microbatches, layout.microbatch_sequences
    if p == 1:
        return number("num_microbatches", m), f"one stage; {m} micro-batches of {mb} need none to fill"
    bubble = facts.estimate.bubble_ratio
    words = f"{m} micro-batches of {mb} fill {p} stages to a bubble of {percent(bubble)}; the number counts, not the size"
    return ratio("bubble_ratio", bubble), words


def _zero(facts: Facts) -> tuple[Figure, str]:
    layout = facts.layout
    if layout.pipeline_parallel == 1 or layout.data_parallel == 1:
        return number("pipeline_parallel", layout.pipeline_parallel), "no sharding under a pipeline in this layout"
    return number("zero_stage", layout.zero_stage), "ZeRO-1 communicates once a step, ZeRO-2 and 3 in every micro-batch"


def _communication(facts: Facts) -> tuple[Figure, str]:
    value = facts.communication_ratio
    figure = ratio("communication_ratio", value)
    if value <= 0.15:
        return figure, f"{percent(value)} exposed: within both bounds, they do not differ here"
    if value <= 0.20:
        return figure, f"{percent(value)} exposed: within 20 %, above 15 %; only the wider bound admits this layout"
    best = facts.best.get("any")
    own_s = facts.estimate.expected_step_s
    ahead = best is not None and best.fits and own_s <= best.expected_step_s * (1.0 + facts.error_ratio)
    words = (
        "and no layout of the grid is expected to be faster: neither bound is a law" if ahead
        else "and layouts that are expected to be faster exist"
    )
    return figure, f"{percent(value)} exposed: above both, {words}"


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
    Contest(
        topic="micro-batch and bubble", rules=("mindspore.micro-batch-trade-off", "megatron.raise-micro-batch"), says=_bubble,
        of_a_pipeline=True,
    ),
    Contest(
        topic="stages and micro-batches",
        rules=("chatlearn.pipeline-below-microbatches", "megatron.micro-batch-above-stages"), says=_stages,
        of_a_pipeline=True,
    ),
    Contest(
        topic="ZeRO with a pipeline",
        rules=("playbook.zero-two-with-pipeline-1024", "megatron.zero-three-under-pipeline"), says=_zero,
        of_a_pipeline=True,
    ),
    Contest(topic="communication", rules=("megatron.communication-20", "megatron.communication-15"), says=_communication),
)
