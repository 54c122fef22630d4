"""Rules as rows: what a framework refuses of a plan, in its own words, and what it takes of files although it is wrong.

A row has what a person reads and one expression that says where it is broken. An expression is true, or gives values for the
words; for a rule that really computes something it is a function. Rows stand in the order in which they are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from string import Formatter
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from meshwright.frameworks.base import Check, Limit, Noticed, Values
from meshwright.frameworks.planned import Planned

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.attention import Attention
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading, Severity

Predicate: TypeAlias = "Callable[[Case, Layout], Values | None]"
Words: TypeAlias = "Mapping[str, tuple[str, Noticed]]"
"""Name of a rule -> the framework's own words and when it notices."""
Finder: TypeAlias = "Callable[[Reading, Case | None], Iterable[Values]]"
Test: TypeAlias = "Callable[[object], object]"


class Rule(Struct, frozen=True):
    """What a framework refuses of a plan."""

    name: str
    words: str
    """The framework's message; what it names in braces is among the values of ``broken``, or a figure of ``Planned``."""
    broken: Callable[[Planned], object]
    noticed: Noticed = "parse"
    path: str = "layout"
    """What the message is about: layout, model, training or cluster."""
    releases: Collection[str] = ()
    """Releases that have the rule; none: all."""


def limits(
    prefix: str, rules: Iterable[Rule], *, release: str = "", words: Words | None = None, skip: Collection[str] = ()
) -> tuple[Limit, ...]:
    """Limits ``<prefix>.<rule>`` of a release. ``words`` are the framework's own for rules that are not only its own."""
    found = []
    for rule in rules:
        if rule.name not in skip and (not rule.releases or release in rule.releases):
            text, noticed = (words or {}).get(rule.name, (rule.words, rule.noticed))
            broken = _broken(rule.broken, text, release)
            found.append(Limit(id=f"{prefix}.{rule.name}", words=text, noticed=noticed, broken=broken, path=rule.path))
    return tuple(found)


def _broken(expression: Callable[[Planned], object], words: str, release: str) -> Predicate:
    """An expression as a limit asks it: the values of the words where it is broken, else None."""
    named = [name for _, name, _, _ in Formatter().parse(words) if name]
    last: tuple[Case | None, Layout | None, Values | None] = (None, None, None)

    def broken(case: Case, layout: Layout) -> Values | None:
        nonlocal last
        if last[0] is not case or last[1] is not layout:  # a rule of what is written asks all others again
            plan = Planned(case, layout, release)
            given = _values(expression(plan))
            said = None if given is None else {**{name: getattr(plan, name) for name in named if name not in given}, **given}
            last = (case, layout, said)
        return last[2]

    return broken


def _values(found: object) -> Values | None:
    """What an expression gives for the words; None where nothing is broken."""
    return found if isinstance(found, Mapping) else {} if found else None


class At(Struct, frozen=True):
    """A setting at which a mistake is found: a key, or ``$VARIABLE`` of the environment.

    It is found where the key stands there and its value passes ``test``, where each of ``beside`` stands there too (or passes
    a test of its own) and none of ``without`` does, and where ``when`` holds, which may give values for the words.
    """

    key: str
    expected: object = None
    test: Test | None = None
    beside: tuple[str, ...] | Mapping[str, Test] = ()
    without: tuple[str, ...] = ()
    when: Callable[[Reading], object] | None = None
    values: Values = field(default_factory=dict)


Given: TypeAlias = "Callable[[Reading, str], object]"
"""Whether a key stands in the files, as a framework counts it."""


class Mistake(Struct, frozen=True):
    """What a framework takes of files although it is wrong, what contradicts itself, what the launch lacks."""

    name: str
    words: str
    """What is said; ``{value}`` stands there, ``{expected}`` would be right, ``{key}`` (or ``{flag}``) is its key."""
    found: At | tuple[At, ...] | Finder
    severity: Severity = "error"
    source: str = ""
    releases: Collection[str] = ()


def _is_given(reading: Reading, key: str) -> bool:
    return reading.source.setting(key) is not None


def checks(
    prefix: str, mistakes: Iterable[Mistake], *, release: str = "", given: Given = _is_given, source: str = ""
) -> tuple[Check, ...]:
    """Checks ``<prefix>.<mistake>`` of a release; ``source`` is that of rows without one."""
    return tuple(
        Check(
            id=f"{prefix}.{each.name}", words=each.words, severity=each.severity, source=each.source or source,
            find=each.found if callable(each.found) else _finder(each.found, given),
        )
        for each in mistakes if not each.releases or release in each.releases
    )


def _finder(places: At | tuple[At, ...], given: Given) -> Finder:
    """Rows as a check asks them."""
    rows = places if isinstance(places, tuple) else (places,)

    def find(reading: Reading, case: Case | None) -> Iterator[Values]:
        for row in rows:
            more = _found(row, reading, given)
            if more is not None:
                setting = _setting(reading, row.key)
                here = {"value": setting.value, "path": setting.place} if setting else {"value": None, "path": ""}
                yield {**here, "expected": row.expected, "key": row.key, "flag": row.key, **row.values, **more}

    return find


def _found(row: At, reading: Reading, given: Given) -> Values | None:
    """What a row gives for the words where it is found, else None."""

    def stands(key: str) -> object:
        return _setting(reading, key) is not None if key.startswith("$") else given(reading, key)

    if (row.key and not stands(row.key)) or any(stands(key) for key in row.without):
        return None
    if row.test is not None and not ((setting := _setting(reading, row.key)) and row.test(setting.value)):
        return None
    if isinstance(row.beside, Mapping):
        beside = all(test(reading.source.value(key)) for key, test in row.beside.items())
    else:
        beside = all(stands(key) for key in row.beside)
    if not beside:
        return None
    return {} if row.when is None else _values(row.when(reading))


def _setting(reading: Reading, key: str) -> Setting | None:
    """The setting of a key, or of ``$VARIABLE``."""
    return reading.source.environment.get(key[1:]) if key.startswith("$") else reading.source.setting(key)


def values_if(broken: object, **values: object) -> Values | None:
    """The values where the condition holds."""
    return values if broken else None


def words_if(name: str, reasons: Iterable[tuple[object, str]], *, between: str = ", ", **values: object) -> Values | None:
    """The words of all reasons that hold, joined under a name, with other values; None where none holds."""
    words = between.join(text for holds, text in reasons if holds)
    return {name: words, **values} if words else None


def attention_of(case: Case) -> Attention:
    """Attention of the first layer; frameworks here run models whose layers are alike but for the window and the experts."""
    return case.model.attention
