"""Rules as data: decorators that turn predicates into limits and checks, and what the predicates share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from meshwright.frameworks.base import Check, Limit, Noticed, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Attention
    from meshwright.frameworks.settings import Reading, Severity

Predicate: TypeAlias = "Callable[[Case, Layout], Values | None]"
Rules: TypeAlias = "Mapping[str, tuple[Predicate, str, str]]"
"""Name of a rule -> its predicate, what it is about (the path of its limit), and words where a framework has none."""
Words: TypeAlias = "Mapping[str, tuple[str, Noticed]]"
"""Name of a rule -> the framework's own words and when it notices."""
Finder: TypeAlias = "Callable[[Reading, Case | None], Iterable[Values]]"


def rule(
    into: list[Limit], id: str, words: str, *, noticed: Noticed = "parse", path: str = "layout"
) -> Callable[[Predicate], Predicate]:
    """A decorator that adds a limit; the function gives the values of the message where the rule is broken.

    ``id`` is whole: ``picotron.heads``.
    """

    def add(broken: Predicate) -> Predicate:
        into.append(Limit(id=id, words=words, noticed=noticed, broken=broken, path=path))
        return broken

    return add


def file_rule(into: list[Check], id: str, words: str, *, severity: Severity = "error", source: str) -> Callable[[Finder], Finder]:
    """A decorator that adds a check of files; the function gives the values of each place where the rule is broken.

    ``value`` and ``expected`` among the values become those of the finding, ``path`` its place (``Setting.place``).
    """

    def add(find: Finder) -> Finder:
        into.append(Check(id=id, words=words, severity=severity, source=source, find=find))
        return find

    return add


def limits_from(prefix: str, rules: Rules, words: Words, *, skip: Collection[str] = ()) -> Iterator[Limit]:
    """Limits ``<prefix>.<rule>`` of a table; without a framework's own words nothing notices, and we refuse."""
    for name, (broken, path, plain) in rules.items():
        if name not in skip:
            text, noticed = words.get(name, (plain, "never"))
            yield Limit(id=f"{prefix}.{name}", words=text, noticed=noticed, broken=broken, path=path)


def values_if(broken: object, **values: object) -> Values | None:
    """The values where the condition holds."""
    return values if broken else None


def words_if(name: str, reasons: Iterable[tuple[object, str]], *, between: str = ", ", **values: object) -> Values | None:
    """The words of all reasons that hold, joined under a name, with other values; None where none holds."""
    words = between.join(text for holds, text in reasons if holds)
    return {name: words, **values} if words else None


def attention_of(case: Case) -> Attention:
    """Attention of the first layer; frameworks here run models whose layers are alike but for the window and the experts."""
    return case.model.kinds[0].attention
