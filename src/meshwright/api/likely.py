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


def likely_framework(files: Sequence[File]) -> tuple[Framework, Message]:
    """The framework that knows most keys of the files as it reads them, and a remark that says so, with others that know as many.

    Of those the one with fewest keys is taken; flags that a fork shares are those of what it comes from, unless the files name
    something of the fork.

    Errors: ``InputError`` where none knows enough of them, with the nearest ones.
    """
    counts = {name: _known(framework(name), files) for name in frameworks()}
    order = sorted(counts, key=lambda name: (-counts[name][0], counts[name][2], name))
    known, keys, _ = counts[order[0]]
    if not keys or known < ENOUGH * keys:
        near = [f"{name} knows {counts[name][0]} of {counts[name][1]} keys" for name in order[:2] if counts[name][0]]
        hint = f"; nearest: {', '.join(near)}" if near else ", and no framework's keys are in them"
        raise fault("import.from", "--from is missing: the framework that the files are for{hint}", hint=hint)
    origin = framework(order[0]).facts.fork_of or order[0]
    text = "\n".join(file.text for file in files)
    forks = (each for each in map(framework, order) if each.facts.fork_of == origin and counts[each.name][0] and signed(each, text))
    found = next(forks, framework(origin))
    alike = [framework(name).title for name in order if name != found.name and counts[name][0] >= counts[found.name][0]]
    also = f", whose keys {' and '.join(alike)} {'have' if len(alike) > 1 else 'has'}, too" if alike else ""
    told = "read as files of {title}{also}: --from NAME says otherwise"
    return found, Message("import.taken", told, {"title": found.title, "also": also})


def _known(candidate: Framework, files: Sequence[File]) -> tuple[int, int, int]:
    """Keys of the files that a framework has at the release that it takes them for, how many it reads, and how many it has."""
    if candidate.surface is None:
        return 0, 0, 0
    try:
        reading = candidate.read(files)
    except InputError:
        return 0, 0, 0
    surface, keys = candidate.surface(), reading.source.settings
    return sum(surface.find(key, reading.version) is not None for key in keys), len(keys), len(surface.keys)
