"""Once more under recomputation and kinds of context parallelism that only refinement has tried.

What is best of them may stand on other meshes of the grid.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, Grid
from meshwright.search.legal_grid import legal_layouts
from meshwright.search.refine import module_sets
from meshwright.search.rules import context_kinds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.search.finalists import Candidate
    from meshwright.search.grid import Bools, Floats
    from meshwright.search.grid_rows import Knobs
    from meshwright.search.legal_grid import Legal
    from meshwright.search.space import Space

KEPT, FIRST = 30, 4
"""Best layouts kept of each set, and refined candidates of which the last is a bar; the same of other kinds of context parallelism,
which refinement tries on all of the best."""


class _Bar(Struct, frozen=True):
    """What a pool has found, and what was known before: later than that, a layout is not among the best."""

    pool: Finalists
    latest_s: float

    def beyond(self, step_s: Floats, reserved_bytes: Floats, _: Knobs | None = None, /, *, exactly: bool = False) -> Bools:
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
    space, grid = pool.space, pool.grid
    if grid is None or space.pins.recompute is not None or pool.objective == "memory":
        return []
    latest_s = pool.expected_s(leaders[KEPT - 1]) if len(leaders) >= KEPT else math.inf
    sets = tuple(_sets(space))
    wider = structs.replace(space, treatments=("selective",) * len(sets), module_sets=sets)
    legal = grid.within(wider, latest_s) if sets else None
    if legal is None:
        return []
    return _best(pool, wider, legal, latest_s, leaders)


def other_kinds(pool: Finalists, leaders: Sequence[Candidate]) -> Iterator[Candidate]:
    """The best of the whole grid under kinds of context parallelism that no layout of the grid has.

    Refinement tries kinds on the best layouts: where rings are slow, those of a mesh that exchanges heads are not among these. What
    ties with a leader comes after it.

    Holds:   empty where kind or degree is pinned to what the grid has, and where memory is the objective.
    """
    space = pool.space
    if space.pins.cp_kind is not None or space.pins.cp == 1 or pool.objective == "memory":
        return
    latest_s = pool.expected_s(leaders[FIRST - 1]) if len(leaders) >= FIRST else math.inf
    for kind in context_kinds(space.case.model, space.features):
        wider = structs.replace(space, context_kind=kind)
        legal = legal_layouts(wider, Counts(rejected=Counter())) if kind != space.context_kind else None
        if legal is None:
            continue
        cut = legal.where(legal.pairs.where(legal.mesh["cp"][legal.pairs.mesh] > 1))
        early = _grid(pool, wider, cut, None).until(latest_s) if len(cut.pairs.mesh) else None
        if early is not None:
            yield from _best(pool, wider, early, latest_s, leaders, keep=FIRST)


def _grid(pool: Finalists, wider: Space, legal: Legal, bar: _Bar | None) -> Grid:
    """The grid of some legal layouts; they are not counted."""
    return Grid(
        wider, Counts(rejected=Counter()), legal, pool.overlap, bar, bound=True,
        led=bar is not None and math.isfinite(bar.latest_s),
    )


def _best(
    pool: Finalists, wider: Space, legal: Legal, latest_s: float, leaders: Sequence[Candidate], *, keep: int = KEPT
) -> list[Candidate]:
    """The best of some legal layouts, after the leaders."""
    found = Finalists(
        space=wider, overlap=pool.overlap, objective=pool.objective, capacity_bytes=pool.capacity_bytes, keep=keep,
        near_wanted=False, front_wanted=False,
    )
    for rows in _grid(pool, wider, legal, _Bar(found, latest_s)).rows():
        found.add(rows)
    after, known = max((each.order for each in leaders), default=0) + 1, {each.layout for each in leaders}
    return [structs.replace(each, order=after + each.order) for each in found.best if each.layout not in known]


def _sets(space: Space) -> Iterator[tuple[str, ...]]:
    """The sets of modules that refinement tries and the grid does not have."""
    if "selective" in space.features.recompute:
        known = set(space.selective_modules)
        yield from (modules for modules in module_sets(space) if set(modules) != known)
