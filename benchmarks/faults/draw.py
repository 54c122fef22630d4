"""Faults drawn from a seed: which, how strong, on which layout, rank and step."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST, MOST = 0.05, 0.50
"""Intensity: the share of the step that a fault takes; of padding the share of tokens, of a leak the growth of the process."""
LAYOUTS: dict[int, tuple[str, ...]] = {
    2: ("dp2 zero1", "dp2 zero2", "tp2", "tp2 sp", "pp2"),
    3: ("dp3 zero1", "pp3"),
    4: ("dp4 zero1", "tp2 dp2 zero1", "pp2 dp2 zero1"),
}
"""By ranks."""
KINDS: dict[str, tuple[str, ...]] = {
    "slow-rank": ("dp", "tp", "pp"),
    "starved-loader": ("dp", "tp", "pp"),
    "synchronising-calls": ("dp", "tp", "pp"),
    "crossed-tp": ("tp",),
    "padding-waste": ("dp", "tp", "pp"),
    "late-collective": ("dp", "tp"),
    "missing-collective": ("dp", "tp", "pp"),
    "memory-leak": ("dp", "tp", "pp"),
    "gc-pauses": ("dp", "tp", "pp"),
    "recompiles": ("dp", "tp", "pp"),
    "wrong-threads": ("dp", "tp", "pp"),
    "throttled-link": ("dp", "pp"),
}
"""Fault -> dimensions one of which the layout must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run."""

    number: int
    kind: str
    """``clean``, or one of ``KINDS``."""
    layout: str
    ranks: int
    intensity: float
    rank: int
    """The one that the fault is on, where it is on one."""
    dimension: str
    """Whose exchanges it is about, where it is about exchanges."""
    variant: int
    """0 or 1: which of two ways."""


def cases(count: int, clean: int, seed: int) -> Iterator[Case]:
    """Faults in turn, then clean runs."""
    kinds = [list(KINDS)[each % len(KINDS)] for each in range(count)] + ["clean"] * clean
    for number, kind in enumerate(kinds):
        drawn = random.Random(f"{seed} {number}")
        wanted = KINDS.get(kind, ("dp", "tp", "pp"))
        fitting = [(ranks, layout) for ranks, some in LAYOUTS.items() for layout in some if any(each in layout for each in wanted)]
        ranks, layout = drawn.choice(fitting)
        yield Case(
            number=number, kind=kind, layout=layout, ranks=ranks, intensity=drawn.uniform(LEAST, MOST), rank=drawn.randrange(ranks),
            dimension=drawn.choice([each for each in wanted if each in layout]), variant=drawn.randrange(2),
        )
