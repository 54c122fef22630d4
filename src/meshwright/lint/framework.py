"""A file by the rules of the framework whose file it is: those that ``check`` asks, in the same words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.documents.source import File
from meshwright.errors import InputError
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.owners import owner_of, signed
from meshwright.lint.found import Found

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.frameworks.base import Check, Framework
    from meshwright.frameworks.settings import Finding

_FEW = 3
"""Keys of which a file must hold as many before it is taken for a framework's."""


@cache
def checks() -> Mapping[str, Check]:
    """Every rule of every framework about files, by its identifier."""
    return {check.id: check for name in frameworks() for check in framework(name).checks}


def framework_of(keys: tuple[str, ...], text: str) -> Framework | None:
    """The framework whose settings a script has; None where they are few, or nobody's.

    A fork takes the flags of what it comes from: a script that names nothing of the fork is the other's.
    """
    found = owner_of(keys) if len(keys) >= _FEW else None
    if found is not None and found.facts.fork_of and not signed(found, text):
        return framework(found.facts.fork_of)
    return found


def framework_findings(named: Framework, path: str, text: str) -> Iterator[Found]:
    """What a framework's own rules say of one file, where it can be read as its own."""
    try:
        reading = named.read((File(path=path, text=text),))
    except InputError:  # its own linter finding says what is wrong with the file itself
        return
    for check in named.checks:
        for each in check.findings(reading, None):
            yield _found(each, path)


def _found(each: Finding, path: str) -> Found:
    """A finding of ``check`` as one of the linter, with its line."""
    line = each.message.path.rpartition(":")[2] if each.message.path.startswith(path) else ""
    return Found(
        id=each.message.id,
        severity=each.severity,
        message=each.message,
        file=path,
        line=int(line) if line.isdigit() else 1,
        source=each.source,
    )
