"""All checks of NeMo-RL's files, and what becomes of a key that it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.nemo_rl.asking import Asked
from meshwright.frameworks.nemo_rl.batch_mistakes import batch_mistakes
from meshwright.frameworks.nemo_rl.engine_mistakes import UNREAD, engine_mistakes
from meshwright.frameworks.nemo_rl.keys import DYNAMIC, ENGINE, MEGATRON, OTHER, PACKING
from meshwright.frameworks.nemo_rl.rollout_mistakes import rollout_mistakes
from meshwright.frameworks.nemo_rl.sources import missing_bases
from meshwright.frameworks.rules import Mistake, checks
from meshwright.frameworks.verl.sources import Hydra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity
    from meshwright.frameworks.surface import Surface

_JUDGED = (f"{PACKING}.", f"{DYNAMIC}.", f"{ENGINE}.", "cluster.")
"""Sections of which the table has every key that is read; those of data, environments and algorithms grow with every release."""
_HANDED_ON = (f"{MEGATRON}.optimizer.", f"{MEGATRON}.scheduler.")
"""Sections that become the arguments of a class of Megatron's."""


def unknown_key(section: str, surface: Callable[[], Surface], key: str) -> tuple[Severity, str] | None:
    """Files may say anything: sections are dictionaries, and what is not asked for is never seen."""
    told = key.startswith(f"{MEGATRON}.") and key.removeprefix(f"{MEGATRON}.") in UNREAD
    own = key.startswith("policy.") and key.count(".") == 1
    if not (own or key.startswith((f"{section}.", *_JUDGED))) or key.startswith(_HANDED_ON) or told:
        return None
    if key in OTHER or any(known.startswith(f"{key}.") for known in surface().keys):  # a section that is null
        return None
    return "warning", "{key} is taken, and read by nothing"


def checks_of(name: str, section: str, release: str, needed: Iterable[str]) -> tuple[Check, ...]:
    """Every check of one back end at a release. ``needed``: what it reads without a default."""

    def absent(reading: Reading, case: Case | None) -> Iterator[Values]:
        asked = Asked(reading, section)
        if asked.is_its_own and asked.is_on(f"{section}.enabled"):
            for key in needed:
                if asked.lacks(key):
                    yield at(asked.setting(f"{section}.enabled"), None, key=key.rpartition(".")[2], whole=key)

    def refused(reading: Reading, case: Case | None) -> Iterator[Values]:
        """Words of a command line whose key no file has, where all files are there."""
        source = reading.source
        files = {key for document in source.documents if not isinstance(document, Hydra) for key in document.settings()}
        if not files or missing_bases(source):
            return
        for document in source.documents:
            if isinstance(document, Hydra):
                prefixes = document.prefixes
                for key, setting in document.settings().items():
                    if key[0] != "-" and not prefixes.get(key) and not any(
                        other == key or other.startswith(f"{key}.") for other in files
                    ):
                        yield at(setting, f"++{key}={setting.value}", key=key)

    rows = (
        Mistake("absent", "KeyError: '{key}' ({whole} stands in none of the files, and there is no default)", absent,
                source="nemo_rl/models/policy/__init__.py"),
        Mistake("not-appended", "Could not override '{key}'. To append to your config use +{key}=...", refused,
                source="nemo_rl/utils/config.py parse_hydra_overrides"),
        *engine_mistakes(section), *batch_mistakes(section), *rollout_mistakes(section),
    )
    return checks(name, rows, release=release, source=f"NeMo-RL {release}")
