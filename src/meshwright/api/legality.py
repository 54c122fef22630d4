"""Whether a layout that somebody names may be estimated at all, and whether the framework could run it.

What breaks arithmetic (heads, batch, layers) is refused. What only the framework lacks is refused where the framework
was asked for, and otherwise a remark: an estimate of ZeRO-3 is worth having without naming a framework that has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.releases import never
from meshwright.domain.features import Features
from meshwright.domain.launch import OFF
from meshwright.errors import InputError, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.api.cases import Setup
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Framework

ANY_FRAMEWORK = Features(
    name="any", schedules=("1f1b", "interleaved"), zero_stages=(0, 1, 2, 3), parameter_shards_with_pipeline=True,
    positions=("rope", "learned", "alibi", "none"), context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
    interleaved_needs_multiple=False, tasks=("pretrain", "sft", "lora"), offloads=tuple(OFF),
)
"""What some framework has run: published runs are judged by it."""


def check_layout(given: Setup, layout: Layout, *, framework_asked: bool) -> list[str]:
    """Raise every reason why the layout makes no sense; return why the default framework could not run it."""
    from meshwright.search.legality import able

    features = given.framework.features
    broken = _refusals(given, able(features), layout)
    limits = [reason for reason in _refusals(given, features, layout) if reason not in broken]
    own = given.framework.check(given.case, layout)
    if framework_asked:
        broken, limits = ([reason for reason in each if not _said_by(reason, own)] for each in (broken, limits))
    limits += [str(Message(message.id, message.template, message.values)) for message in own]
    if broken or (framework_asked and limits):
        reasons = broken + (limits if framework_asked else [])
        raise InputError(Message("layout.refused", "{reason}", {"reason": reason}, path="layout") for reason in reasons)
    return limits


_OWN_WORDS = {
    "the framework has no such ZeRO stage": ("zero",),
    "the framework has tensor parallelism with sequence parallelism only": ("sequence parallel", "sequence_parallel"),
    "the framework has no sequence parallelism": ("sequence parallel", "sequence_parallel"),
    "the framework has no tensor parallelism": ("tensor parallel",),
    "the framework has no pipeline parallelism": ("pipeline parallel",),
    "the framework has no expert parallelism": ("expert parallel",),
    "the framework has no such recompute": ("recomput",),
}
"""What a rule of the search finds lacking -> what a framework's own words for that hold."""


def _said_by(reason: str, own: Sequence[Message]) -> bool:
    """Whether the framework says a reason of the search in words of its own, which name its release and its keys."""
    return any(word in str(each).lower() for word in _OWN_WORDS.get(reason, ()) for each in own)


def _refusals(given: Setup, features: Features, layout: Layout) -> list[str]:
    """The rules of the search that refuse the layout."""
    from meshwright.search import layout_refusals

    return list(layout_refusals(given.case, features, layout))


def never_trains(given: Setup) -> list[Message]:
    """Why the framework does not train the case, whatever the layout."""
    return never(given.framework, given.case)


def trainers(given: Setup, having: Callable[[Features], bool] | None = None) -> list[str]:
    """Frameworks that train the case in some layout, by name where the release that is meant does, else by the first later release
    that does (``megatron@0.19``); ``having``: what their features must be."""
    from meshwright.frameworks import framework, frameworks
    from meshwright.frameworks.parts import first_release

    task, found = given.case.training.task, []
    for name in frameworks():
        there = framework(name)

        def trains(release: str, there: Framework = there) -> bool:
            other = there.at(release).for_case(given.case)
            able = task in other.features.tasks and (having is None or having(other.features))
            return able and not never(other, given.case)

        release = first_release(there.version, there.releases, trains)
        if release is not None:
            found.append(name if release == there.version else f"{name}@{release}")
    return found
