"""A search as a framework answers it: what it never trains, what it lacks, what it refuses, and who could."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.api.legality import never_trains, trainers
from meshwright.errors import InputError, Message, NoAnswerError, fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.api.cases import Setup
    from meshwright.domain.features import Features
    from meshwright.search.result import PlanResult, SearchOptions


def trains(given: Setup) -> None:
    """Refuse a task, a model, a recipe or a device that the framework does not train, whatever the layout."""
    from meshwright.frameworks import framework, frameworks

    task = given.case.training.task
    if task not in given.framework.features.tasks:
        able = [name for name in frameworks() if task in framework(name).features.tasks]
        raise fault("plan.task", "{name} does not train with {task}; {able} can", name=given.framework.title, task=task, able=able)
    if reasons := never_trains(given):
        able = trainers(given)
        *others_said, last = reasons
        if able and not any(each.id == "framework.parts" for each in reasons):  # that says who can
            values = {**last.values, "can": " or ".join(able)}
            last = replace(last, template=last.template.rstrip(".") + "; --framework {can} can", values=values)
        raise InputError([*others_said, last])


def searched_by(
    given: Setup, *, options: SearchOptions, tick: Callable[[int, int], None] | None, asked: bool, alone: bool = False
) -> PlanResult:
    """Search; where the framework runs no layout, say which others could: as an error, or as a hint where none is legal.

    ``alone``: the plans alone are wanted, without linearity, remarks, and what would close a gap.

    Errors:  ``NoAnswerError`` where layouts fit and the framework refuses every one that it was asked about, and where it never
             trains the case: what would bring it in is another framework's to say.
    """
    from meshwright import search
    from meshwright.frameworks import framework, frameworks

    if never := never_trains(given):
        raise NoAnswerError(_never(given, never))
    position = given.case.model.position
    try:
        result = search.plan(
            given.case, given.framework.features, options, progress=tick, runner=given.framework, bare=alone, advised=not alone
        )
    except InputError as error:
        lacking = [_haves(given, each) for each in error.messages if each.id == "plan.lacks"]
        if lacking:
            raise InputError(lacking) from None
        able = [name for name in frameworks() if position in framework(name).features.positions]
        if asked or position in given.framework.features.positions or not able:
            raise
        hint = Message("plan.other-framework", "{name} is only the default; --framework {able} can run it",
                       {"name": given.framework.title, "able": ", ".join(able)}, path="--framework")
        raise InputError([*error.messages, hint]) from None
    if result.refused:
        raise NoAnswerError(_refusal(given, result))
    return result


def _haves(given: Setup, message: Message) -> Message:
    """What a framework lacks, with the frameworks that have it for the case."""
    field = {"schedule": "schedules", "zero": "zero_stages", "recompute": "recompute",
             "attention": "attentions", "overlap": "overlaps"}.get(str(message.values["name"]), "")
    able = trainers(given, lambda features: _has(features, field, message.values["value"]))
    if not able:
        return message
    values = {**message.values, "able": " or ".join(able)}
    return replace(message, template=message.template + "; --framework {able} has it", values=values)


def _has(features: Features, field: str, value: object) -> bool:
    """Whether a framework can run a value of a knob; torch.compile is a switch, the words of an overlap are several."""
    if not field:
        return features.compiles
    return {*str(value).split(",")} <= {*map(str, getattr(features, field))} or value in getattr(features, field)


def _never(given: Setup, never: list[Message]) -> Message:
    """Why the framework trains no layout of the case, and who does."""
    able = [] if any(each.id == "framework.parts" for each in never) else trainers(given)  # that says who can
    values = {"name": given.framework.title, "reason": _bare(never[0]), "able": " or ".join(able)}
    words = "{name}, the default, has no plan: {reason}"
    return Message("plan.framework", words + ("; --framework {able} can" if able else ""), values)


def _refusal(given: Setup, result: PlanResult) -> Message:
    """Why the framework runs none of the layouts that fit, and who runs the best of them."""
    from meshwright.frameworks import framework, frameworks
    from meshwright.search import layout_refusals

    others = [framework(name).for_case(given.case) for name in frameworks()]
    trained = [other for other in others if given.case.training.task in other.features.tasks]
    best = result.plans[0] if result.plans else None
    limits = [] if best is None else [*given.framework.check(given.case, best.layout)]
    able = trainers(given) if best is None else [
        other.name for other in trained
        if not other.check(given.case, best.layout) and not layout_refusals(given.case, other.features, best.layout)
    ]
    limits = limits or [Message("plan.overlap", "what runs beside compute is not its user's choice there", {})]
    values = {
        "name": given.framework.title, "asked": result.refused, "best": best.label if best is not None else "",
        "reason": _bare(limits[0]), "able": " or ".join(able),
    }
    words = "{name} runs none of the best {asked:,} layouts that fit; {best}: {reason}"
    return Message("plan.framework", words + ("; --framework {able} can run it" if able else ""), values)


def _bare(message: Message) -> Message:
    """A message without the place that it is about, and without a full stop, as words of another sentence."""
    return Message(message.id, message.template.rstrip("."), message.values)
