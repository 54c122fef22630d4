"""What guide 002 (MindSpore's) asks of every training on Ascend, under each framework's own key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.base import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading


def deterministic(prefix: str, key: str) -> Check:
    """Check ``<prefix>.deterministic``: a key that makes every operator deterministic is on."""

    def find(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get(key)
        if setting and setting.value is True:
            yield at(setting, False)

    return Check(
        id=f"{prefix}.deterministic", words=f"{key.rpartition('.')[2]} is on, which is slower", severity="warning",
        source="guide 002:53", find=find,
    )


def whole_states(prefix: str, key: str) -> Check:
    """Check ``<prefix>.whole-states``: replicas of all weights keep whole optimizer states, which a key would shard."""

    def find(reading: Reading, case: Case | None) -> Iterator[Values]:
        layout = reading.layout
        if layout is not None and layout.zero_stage == 0 and layout.data_parallel > 1 and reading.said.task != "lora":
            yield {"dp": layout.data_parallel, "value": False, "expected": True}

    return Check(
        id=f"{prefix}.whole-states", words=f"data parallel {{dp}} without {key} keeps whole optimizer states on every rank",
        severity="advice", source="guide 002:195", find=find,
    )
