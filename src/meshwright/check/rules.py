"""The framework's own rules about the files and about the layout, and those of arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.domain.kernels import running
from meshwright.frameworks.settings import Finding
from meshwright.judging.neighbours import DEGREES, vary
from meshwright.search import layout_refusals
from meshwright.search.space import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit

_WHEN = {
    "parse": "when it reads its arguments", "start": "when it starts", "step": "in the first step",
    "never": "not noticed by the framework",
}


def file_rules(context: Context) -> Iterator[Finding]:
    """What the framework takes although it is wrong, contradictions, and the environment of the launch."""
    for check in context.framework.checks:
        yield from check.findings(context.reading, context.case)


def limits(context: Context) -> Iterator[Finding]:
    """What the framework refuses of the case and the layout, with the nearest layout that it takes."""
    case, layout, framework = context.case, context.layout, context.framework
    if case is None or layout is None:
        return
    broken = False
    for limit in framework.limits:
        message = limit.check(running(case, layout), layout)
        if message is None:
            continue
        broken = True
        lever = None if context.malformed else _lever(context, limit, case, layout)
        yield Finding(
            message=message, severity="error", value=message.values.get("value"), expected=lever,
            source=f"{framework.title} {framework.version}: {_WHEN[limit.noticed]}",
        )
    if not broken:  # the framework's own words come first; its features say the rest
        for reason in context.refusals or layout_refusals(case, framework.features, layout):
            yield finding("error", "layout.refused", "{reason}", path="layout", reason=reason, source="rules of the search")


def _lever(context: Context, limit: Limit, case: Case, layout: Layout) -> str | None:
    """The nearest value of one degree that lifts a limit and breaks no other, as ``tp 3 -> 4``; None where none does."""
    before = {each.id for each in context.framework.limits if each.check(case, layout) is not None}
    found: list[tuple[float, str]] = []
    for word, name in DEGREES.items():
        now = getattr(layout, name)
        for then in divisors(layout.world):
            other = vary(case, context.framework.features, layout, **{name: then}) if then != now else ""
            if isinstance(other, str) or layout_refusals(case, context.framework.features, other):
                continue
            after = {each.id for each in context.framework.limits if each.check(case, other) is not None}
            if limit.id not in after and after <= before:
                found.append((max(then, now) / min(then, now), f"{word} {now} -> {then}"))
    return min(found)[1] if found else None
