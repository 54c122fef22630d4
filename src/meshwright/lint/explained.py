"""One rule as a person reads it: of the table, or of a framework."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.errors import fault, nearest
from meshwright.lint.framework import checks
from meshwright.lint.rule import rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Why a rule is one, who says so, what triggers it, what does not, and what mends it."""

    id: str
    severity: str
    purpose: str
    looks_at: str
    why: str
    source: str
    bad: str = ""
    good: str = ""
    fix: str = ""


def known(word: str) -> None:
    """Refuse a word that names neither a rule nor a group of rules.

    Errors:  ``InputError`` with what is near.
    """
    ids = {*rules(), *checks()}
    groups = {id.partition(".")[0] for id in ids}
    if word not in ids | groups:
        hint = nearest(word, ids | groups, "meshwright lint --explain step")
        raise fault("lint.rule", "no rule and no group of rules is called {word!r}{hint}", word=word, hint=hint)


def explained(id: str) -> Explained:
    """A rule by its identifier.

    Errors:  ``InputError`` for anything else; for a group, with its rules.
    """
    if (rule := rules().get(id)) is not None:
        why = f"{rule.says.replace('{code}', '...')}. {rule.why}"
        return Explained(
            id=id,
            severity=rule.severity,
            purpose=rule.purpose,
            looks_at=rule.looks_at,
            why=why,
            source=rule.source,
            bad=rule.bad,
            good=rule.good,
            fix=rule.fix,
        )
    if (check := checks().get(id)) is not None:
        return Explained(
            id=id, severity=check.severity, purpose="both", looks_at="files of a framework", why=check.words, source=check.source
        )
    known(id)
    names = [each for each in (*rules(), *checks()) if each.startswith(f"{id}.")]
    raise fault("lint.group", "{group} is a group of rules: name one of {names}", group=id, names=names, path="--explain")
