"""Settings of a launch in files that are there already: the keys and variables that bring them from what they say to what is asked.

A row of ``launching.csv`` whose keys are known does so; what a writer says by code of its own, and what has no key, stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from meshwright.frameworks.launching import OWN, Way, chosen_of, said_settings, way_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading


class LaunchEdits(Struct, frozen=True, kw_only=True):
    """What changes, and which settings that carries."""

    keys: Mapping[str, object] = field(default_factory=dict)
    """Key -> new value; None: taken out."""
    variables: Mapping[str, str] = field(default_factory=dict)
    names: frozenset[str] = frozenset()


NOTHING = LaunchEdits()


def launch_edits(framework: Framework, reading: Reading, case: Case) -> LaunchEdits:
    """The edits of files for the settings of a case that somebody chose and that the files do not say."""
    own = said_settings(reading.said.launch)
    keys: dict[str, object] = {}
    variables: dict[str, str] = {}
    names = set()
    for name, value in chosen_of(case).items():
        now = own.get(name, OWN.get(name))
        before, after = (_way(framework, case, name, each) for each in (now, value))
        taken = (_keys(before) - _keys(after)) | (after.without if after is not None else frozenset())
        there = now == value and (name in own or not _keys(after))
        if there or not (_known(before) and _known(after)) or taken & reading.source.environment.keys():
            continue
        changes = {key: None for key in taken if reading.source.value(key) is not None}
        keys |= changes | (dict(after.keys) if after is not None else {})
        variables |= dict(after.variables) if after is not None else {}
        names.add(name)
    return LaunchEdits(keys=keys, variables=variables, names=frozenset(names))


def _way(framework: Framework, case: Case, name: str, value: str | None) -> Way | None:
    """How the framework's files say a value; None where every run has it by itself."""
    if value is None:
        return None
    return way_of(
        name, value, framework=framework.name, release=framework.version, releases=framework.releases, is_moe=case.model.is_moe
    )


def _keys(way: Way | None) -> frozenset[str]:
    return frozenset() if way is None else frozenset(way.keys)


def _known(way: Way | None) -> bool:
    """Whether all is known of how a value is said: by nothing, or by keys."""
    return way is None or bool(way.keys or way.without)
