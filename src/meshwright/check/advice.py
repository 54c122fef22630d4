"""The rules of the five guides: those that the files follow to their cost, and those that they break although they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.catalog.guides import guides
from meshwright.check.context import finding
from meshwright.check.habits import RULES, follows, place_of
from meshwright.judging.contests import disagreement_about
from meshwright.judging.finding import TIMES
from meshwright.judging.guides import judge_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.catalog.guides import Rule
    from meshwright.check.context import Context
    from meshwright.frameworks.settings import Finding
    from meshwright.judging.facts import Facts
    from meshwright.judging.finding import Judgement, Side

ROOM = 0.05
"""Share of a device's memory that is worth a piece of advice."""


def advice(context: Context) -> Iterator[Finding]:
    """One finding for each rule that matters to these files."""
    for rule in guides().rules:
        if rule.id in RULES:
            yield from _judged(context, rule)


def _judged(context: Context, rule: Rule) -> Iterator[Finding]:
    """A rule beside what the files do."""
    place, followed = place_of(context, rule.id), follows(context, rule.id)
    if place is None and followed is None:
        return
    if context.facts is None:
        if place is not None and rule.status == "wrong":
            yield finding(
                "advice", f"guide.{rule.id}", "the guide's advice \"{says}\" is wrong: {why}", path=place, says=rule.says,
                why=rule.correction, source=f"guide {rule.places}",
            )
        return
    judged = judge_with(rule, context.facts)
    if (place is not None or followed) and judged.verdict in ("wrong", "fails") and _costs(judged, context.facts):
        who = "is wrong" if judged.verdict == "wrong" else "does not hold here"
        against = _against(context.facts, rule)
        yield finding(
            "advice", f"guide.{rule.id}", "follows the guide's advice \"{says}\", which {who}: {why}{others}",
            path=place or "layout", says=rule.says, who=who, why=judged.sentence, others=_words(against),
            sides=" ".join(side.rule for side in against), value=judged.figure.value,
            source="; ".join(f"guide {each}" for each in (rule.places, *(side.source for side in against))),
        )
    elif place is None and followed is False and judged.verdict == "not-followed" and _pays(judged, context.facts):
        yield finding(
            "advice", f"guide.{rule.id}", "does not follow the guide's advice \"{says}\", which holds here: {why}",
            path="layout", says=rule.says, why=judged.sentence, value=judged.figure.value, source=f"guide {rule.places}",
        )


def _against(facts: Facts, rule: Rule) -> list[Side]:
    """The sides that contradict a rule and are right here."""
    about = disagreement_about(facts, rule.id)
    return [side for side in about.sides if side.rule in about.right] if about is not None else []


def _words(sides: Sequence[Side]) -> str:
    """What other guides say instead, with its figures."""
    listed = " and ".join(f'"{side.says}" ({side.sentence})' for side in sides)
    if len(sides) > 1:
        return f"; right here, and alike to the model, are {listed}"
    return f"; right here is {listed}" if sides else ""


def _costs(judged: Judgement, facts: Facts) -> bool:
    """Whether following costs more than the model's error, as far as the judgement is about time."""
    return judged.figure.name not in TIMES or judged.figure.value > facts.error_ratio


def _pays(judged: Judgement, facts: Facts) -> bool:
    """Whether following gains time beyond the model's error, or memory worth naming."""
    if judged.figure.name == "memory_freed_bytes":
        return judged.figure.value > ROOM * facts.case.capacity_bytes
    return judged.figure.name in TIMES and judged.figure.value < -facts.error_ratio
