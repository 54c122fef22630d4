"""The rules of the five guides, judged for a case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.catalog.guides import Rule, guides
from meshwright.judging import judges
from meshwright.judging.facts import Facts
from meshwright.judging.finding import STANDS, Judgement
from meshwright.judging.following import able, follows
from meshwright.judging.predicates import PREDICATES, does_not_apply

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout

assert judges, "imported for what it registers"


def judge(rule: Rule, case: Case, layout: Layout, estimate: Estimate, features: Features) -> Judgement:
    """One rule for one case; for many rules share the ``Facts`` through ``judge_with``."""
    return judge_with(rule, Facts(case, layout, features, estimate))


def judge_with(rule: Rule, facts: Facts) -> Judgement:
    """One rule, with facts that were computed before.

    Holds:   what a rule of advice is said to hold for, the layout does; what its framework cannot do is not judged.
    """
    answer = PREDICATES[rule.judge](facts, rule)
    if answer.verdict in STANDS and not able(rule.id, facts.features):
        answer = does_not_apply(facts, f"{facts.features.name} cannot follow it")
    done = follows(rule.id, facts.case, facts.layout, facts.features)
    return Judgement(
        rule=rule.id, source=rule.places, says=rule.says, status=rule.status, figure=answer.figure, sentence=answer.sentence,
        verdict="not-followed" if answer.verdict == "holds" and done is False else answer.verdict, followed=done,
    )


def judge_all(facts: Facts) -> tuple[Judgement, ...]:
    """Every rule, in the order of the guides."""
    return tuple(judge_with(rule, facts) for rule in guides().rules)
