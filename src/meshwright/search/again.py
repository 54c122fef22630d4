"""Once more under recomputation that only refinement has tried: what is best of it may stand on other meshes of the grid."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, Grid
from meshwright.search.refine import module_sets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.search.finalists import Candidate
    from meshwright.search.grid import Bools, Floats
    from meshwright.search.space import Space

KEPT = 30
"""Best layouts kept of each set, and refined candidates of which the last is a bar."""


class _Bar(Struct, frozen=True):
    """What a pool has found, and what was known before: later than that, a layout is not among the best."""

    pool: Finalists
    latest_s: float

    def beyond(self, step_s: Floats, reserved_bytes: Floats, *, exactly: bool = False) -> Bools:
        """Whether no layout matters that takes at least so long and needs at least so much."""
        return self.pool.beyond(step_s, reserved_bytes, exactly=exactly) | (step_s > self.latest_s)


def again(pool: Finalists, leaders: Sequence[Candidate]) -> list[Candidate]:
    """The best of the whole grid under sets of modules that no layout of the grid recomputes.

    Refinement tries modules on meshes that fit, or nearly: one far out of memory without them may be the best with them. Of the
    grid's pairs of mesh and micro-batch those are asked, under all sets side by side, that would be early enough if they recomputed
    nothing. Which sets are asked does not hang on the leaders, so a search with a pin finds what one without it lists. What ties
    with a leader comes after it.

    Holds:   empty where the recomputation is pinned, and where memory is the objective.
    """
    space, ground = pool.space, pool.ground
    if ground is None or space.pins.recompute is not None or pool.objective == "memory":
        return []
    latest_s = pool.expected_s(leaders[KEPT - 1]) if len(leaders) >= KEPT else math.inf
    sets = tuple(_sets(space))
    wider = structs.replace(space, treatments=("selective",) * len(sets), module_sets=sets)
    legal = ground.within(wider, latest_s) if sets else None
    if legal is None:
        return []
    found = Finalists(
        space=wider, overlap=pool.overlap, objective=pool.objective, capacity_bytes=pool.capacity_bytes, keep=KEPT,
        near_wanted=False, front_wanted=False,
    )
    for rows in Grid(wider, Counts(rejected=Counter()), legal, pool.overlap, _Bar(found, latest_s), bound=True).rows():
        found.add(rows)
    after = max((each.order for each in leaders), default=0) + 1
    return [structs.replace(each, order=after + each.order) for each in found.best]


def _sets(space: Space) -> Iterator[tuple[str, ...]]:
    """The sets of modules that refinement tries and the grid does not have."""
    if "selective" in space.features.recompute:
        known = set(space.selective_modules)
        yield from (modules for modules in module_sets(space) if set(modules) != known)
