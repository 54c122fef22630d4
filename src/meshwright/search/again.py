"""The whole grid once more, under recomputation that only refinement has tried: what is best of it may stand on other meshes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.layout import Selective
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.space import make_space

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.search.finalists import Candidate

LEADERS, SETS = 3, 2
"""First refined candidates whose modules are asked of the whole grid, and so many sets of modules at most."""
KEPT = 60
"""Best layouts kept of each set."""


def again(pool: Finalists, leaders: Sequence[Candidate]) -> list[Candidate]:
    """The best of the whole grid that recompute what a leader recomputes and no layout of the grid does.

    Refinement tries modules on meshes that fit, or nearly: one far out of memory without them may be the best with them.

    Holds:   empty where no leader has such modules, or where the recomputation is pinned.
    """
    space = pool.space
    if space.pins.recompute is not None:
        return []
    found: list[Candidate] = []
    for modules in _new(space.selective_modules, leaders):
        pinned = make_space(
            space.case, space.features, space.devices, replace(space.pins, recompute="selective", modules=modules)
        )
        own = Finalists(
            space=pinned, overlap=pool.overlap, objective=pool.objective, capacity_bytes=pool.capacity_bytes, keep=KEPT,
            near_wanted=False, front_wanted=False,
        )
        for rows in evaluate_grid(pinned, Counts(rejected=Counter()), overlap=pool.overlap, bar=own):
            own.add(rows)
        found += own.best
    return found


def _new(known: Sequence[str], leaders: Sequence[Candidate]) -> Iterator[tuple[str, ...]]:
    """Sets of modules of the leaders that the grid does not have, each once."""
    sets = (each.layout.recompute.modules for each in leaders[:LEADERS] if isinstance(each.layout.recompute, Selective))
    new = dict.fromkeys(modules for modules in sets if set(modules) != set(known))
    yield from list(new)[:SETS]
