"""What guide 002 (MindSpore's) asks of every training on Ascend, under each framework's own key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.asking import is_true
from meshwright.frameworks.rules import At, Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading


def deterministic(key: str) -> Mistake:
    """``deterministic``: a key that makes every operator deterministic is on."""
    return Mistake("deterministic", f"{key.rpartition('.')[2]} is on, which is slower", At(key, False, is_true), "warning",
                   "guide 002:53")


def whole_states(key: str) -> Mistake:
    """``whole-states``: replicas of all weights keep whole optimizer states, which a key would shard."""

    def find(reading: Reading, case: Case | None) -> Iterator[Values]:
        layout = reading.layout
        if layout is not None and layout.zero_stage == 0 and layout.data_parallel > 1 and reading.said.task != "lora":
            yield {"dp": layout.data_parallel, "value": False, "expected": True}

    return Mistake("whole-states", f"data parallel {{dp}} without {key} keeps whole optimizer states on every rank", find, "advice",
                   "guide 002:195")
