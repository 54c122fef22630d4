"""The whole grid once more, under recomputation that only refinement has tried: what is best of it may stand on other meshes."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from meshwright.domain.layout import NoRecompute
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.refine import module_sets
from meshwright.search.space import make_space

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.search.finalists import Candidate
    from meshwright.search.grid import Bools, Floats
    from meshwright.search.space import Space

LEADERS = 3
"""First refined candidates that say whether memory is short: one of them recomputes."""
KEPT = 60
"""Best layouts kept of each set, and refined candidates of which the last is a bar."""


class _Bar(Struct, frozen=True):
    """What a pool has found, and what was known before: later than that, a layout is not among the best."""

    pool: Finalists
    latest_s: float

    def beyond(self, step_s: Floats, reserved_bytes: Floats, *, exactly: bool = False) -> Bools:
        """Whether no layout matters that takes at least so long and needs at least so much."""
        return self.pool.beyond(step_s, reserved_bytes, exactly=exactly) | (step_s > self.latest_s)


def again(pool: Finalists, leaders: Sequence[Candidate]) -> list[Candidate]:
    """The best of the whole grid under each set of modules that no layout of the grid recomputes, where memory is short.

    Refinement tries modules on meshes that fit, or nearly: one far out of memory without them may be the best with them. Which sets
    are asked does not hang on the leaders, so a search with a pin finds what one without it lists.

    Holds:   empty where no leader recomputes, where the recomputation is pinned, where memory is the objective, and for mixtures:
             they have eight sets and grids twenty times as large, which would take longer than all of the search.
    """
    space = pool.space
    short = any(not isinstance(each.layout.recompute, NoRecompute) for each in leaders[:LEADERS])
    if space.pins.recompute is not None or not short or pool.objective == "memory" or space.case.model.is_moe:
        return []
    latest_s = leaders[KEPT - 1].step_s if len(leaders) >= KEPT else math.inf
    found: list[Candidate] = []
    for modules in _sets(space):
        pinned = make_space(
            space.case, space.features, space.devices, structs.replace(space.pins, recompute="selective", modules=modules)
        )
        own = Finalists(
            space=pinned, overlap=pool.overlap, objective=pool.objective, capacity_bytes=pool.capacity_bytes, keep=KEPT,
            near_wanted=False, front_wanted=False,
        )
        for rows in evaluate_grid(pinned, Counts(rejected=Counter()), overlap=pool.overlap, bar=_Bar(own, latest_s)):
            own.add(rows)
        found += own.best
    return found


def _sets(space: Space) -> Iterator[tuple[str, ...]]:
    """The sets of modules that refinement tries and the grid does not have."""
    if "selective" in space.features.recompute:
        known = set(space.selective_modules)
        yield from (modules for modules in module_sets(space) if set(modules) != known)
