"""The framework that files are for, where nobody says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, fault
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.owners import signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.frameworks import File, Framework

ENOUGH = 0.5
"""Share of the keys that a framework must have: those of a model's description may be its own."""
ALONE, TIMES = 0.4, 2
"""Such a share is enough, too, where no other has more than one in ``TIMES`` of its keys: models may be described at length."""

NEAR = 0.7
"""Share of the best one's keys from which another framework may be meant."""


def likely_framework(files: Sequence[File]) -> tuple[Framework, Message]:
    """The framework that knows most keys of the files as it reads them, and a remark that says so, with those that know
    nearly as many.

    Of equals the one with fewest keys is taken; flags that a fork shares are those of what it comes from, unless the files name
    something of the fork.

    Errors: ``InputError`` where none knows enough of them, with the nearest ones.
    """
    counts = {name: _known(framework(name), files) for name in frameworks()}
    order = sorted(counts, key=lambda name: (-counts[name][0], counts[name][2], name))
    known, keys, _ = counts[order[0]]
    alone = known >= ALONE * keys and all(TIMES * counts[name][0] <= known for name in order[1:])
    if not keys or (known < ENOUGH * keys and not alone):
        near = [f"{name} knows {counts[name][0]} of {counts[name][1]} keys" for name in order[:2] if counts[name][0]]
        nothing = all(not file.text.strip() for file in files)
        none = "; nothing is in them" if nothing else ", and no framework's keys are in them"
        hint = f"; nearest: {', '.join(near)}" if near else none
        raise fault("import.from", "--from is missing: the framework that the files are for{hint}", hint=hint)
    text = "\n".join(file.text for file in files)
    forks = {name: framework(name).facts.fork_of for name in order}
    may_be = [name for name in order if not forks[name] or signed(framework(name), text)]
    origin = forks[order[0]] or order[0]
    meant = next((name for name in may_be if forks[name] == origin and counts[name][0]), origin)
    near = [framework(name).title for name in may_be if name not in (meant, forks[meant]) and counts[name][0] >= NEAR * known]
    also = f" ({' and '.join(near)}: nearly the same keys)" if near else ""
    told = "read as files of {title}{also}: --from NAME says otherwise"
    return framework(meant), Message("import.taken", told, {"title": framework(meant).title, "also": also})


def _known(candidate: Framework, files: Sequence[File]) -> tuple[int, int, int]:
    """Keys of the files that a framework has in any release, how many it reads, and how many it has."""
    if candidate.surface is None:
        return 0, 0, 0
    known = candidate.surface().keys
    for release in (None, *candidate.releases):
        try:
            source = candidate.read(files, version=release).source
        except InputError:
            continue
        keys = source.settings or source.beneath
        return sum(key in known for key in keys), len(keys), len(known)
    return 0, 0, len(known)
