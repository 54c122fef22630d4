"""The best layout under each piece of advice: the grid is evaluated once, every question keeps its winner, winners are refined."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.domain.uncertainty import LEAST_PROBABILITY
from meshwright.estimate.certainty import expected_s, memory_curve
from meshwright.estimate.many import price_many
from meshwright.estimate.naming import name_of
from meshwright.judging.questions import MICRO_BATCHES, columns_of_layouts, columns_of_rows, questions
from meshwright.search.finalists import ROUNDED, layout_of_row
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.refine import around
from meshwright.search.space import Pins, ShardOption, make_space

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap
    from meshwright.judging.questions import Columns, Question
    from meshwright.search.grid import Bools, Floats, Ints, Rows
    from meshwright.search.grid_rows import Knobs
    from meshwright.search.space import Space


SHARDINGS = (
    ShardOption(0, "none"), ShardOption(1, "all"), ShardOption(1, "node"), ShardOption(2, "all"), ShardOption(3, "all"),
)
REFINED = 2**62
"""Places in the enumeration of what is not of the grid: behind all that is."""
FITTING, NEAR = (0.0, 1.0), (1.0, 1.15)
"""Memory over capacity between which a winner is kept: those that fit, and those that refinement may bring in."""


class Alternative(Struct, frozen=True, kw_only=True):
    """The fitting layout that answers a question and is expected to be fastest; where none fits, the least demanding."""

    label: str
    layout: Layout
    step_s: float
    expected_step_s: float
    """The mean step with the risk that it does not fit: what alternatives are ranked by, as plans are."""
    memory_reserved_bytes: float
    fits: bool
    chance_s: float = 0.0
    """What stalls by chance add to the step on average."""


class _Found(Struct, frozen=True, kw_only=True):
    step_s: float
    mean_s: float
    expected_step_s: float
    reserved_bytes: float
    order: int
    """Of those that are alike the first counts."""
    layout: Layout


class _Pool:
    """Winners of every question: those expected to be fastest within each band of memory, and the least demanding."""

    def __init__(self, asked: dict[str, Question], case: Case) -> None:
        self.asked, self.case, self.curve = asked, case, memory_curve(case)
        self.fastest: dict[tuple[str, tuple[float, float]], _Found] = {}
        self.least: dict[str, _Found] = {}

    def beyond(self, step_s: Floats, reserved_bytes: Floats, of: Knobs | None = None, /, *, exactly: bool = False) -> Bools:
        """Whether no layout is the winner of a question that it answers: that fits, or in the band above.

        Holds:   a layout is expected to take no less than its step, and in the band above no less than that over the probability at
                 the capacity. While no layout is known that fits, all that answer a question may be the least demanding.
        """
        assert of is not None
        columns, capacity = columns_of_rows(of, self.case.batch.global_batch_sequences), self.case.capacity_bytes
        latest_s, latest_near_s = np.full((2, *step_s.shape), -np.inf)
        open_ = np.zeros(step_s.shape, dtype=np.bool_)
        for name, question in self.asked.items():
            own = _answering(np.asarray(question(columns)), of, step_s.ndim)
            fits, near = self.fastest.get((name, FITTING)), self.fastest.get((name, NEAR))
            if fits is None:
                open_ |= own
                continue
            np.maximum(latest_s, fits.expected_step_s, out=latest_s, where=own)
            np.maximum(latest_near_s, np.inf if near is None else self._near_s(near), out=latest_near_s, where=own)
        outside = reserved_bytes > NEAR[1] * capacity * (1.0 + ROUNDED)
        if exactly:
            outside = outside | (reserved_bytes < capacity * (1.0 - ROUNDED))
        late = ((reserved_bytes > capacity) | (step_s > latest_s)) & (outside | (step_s > latest_near_s))
        return np.asarray(late & ~open_)

    def _near_s(self, found: _Found) -> float:
        """The longest step that may be expected to take less than one that nearly fits."""
        if self.curve is None:
            return found.expected_step_s
        fits = float(self.curve.memory_probability(self.case.capacity_bytes, self.case.offered_bytes))
        return found.expected_step_s * max(fits, LEAST_PROBABILITY) * (1.0 + ROUNDED)

    def add(
        self, columns: Columns, step_s: Floats, mean_s: Floats, reserved: Floats, order: Ints, layout_of: Callable[[int], Layout]
    ) -> None:
        """Look at evaluated layouts."""
        demand, expected = reserved / self.case.capacity_bytes, np.asarray(expected_s(self.case, mean_s, reserved))
        banded = {band: np.where((demand > band[0]) & (demand <= band[1]), expected, np.inf) for band in (FITTING, NEAR)}

        def found(index: int) -> _Found:
            return _Found(
                step_s=float(step_s[index]), mean_s=float(mean_s[index]), expected_step_s=float(expected[index]),
                reserved_bytes=float(reserved[index]), order=int(order[index]), layout=layout_of(index),
            )

        for name, question in self.asked.items():
            own = np.flatnonzero(question(columns))
            if not own.size:
                continue
            for band, figure in banded.items():
                index = _first(figure, order, own)
                known = self.fastest.get((name, band))
                if np.isfinite(figure[index]) and (
                    known is None or (figure[index], order[index]) < (known.expected_step_s, known.order)
                ):
                    self.fastest[name, band] = found(index)
            if (name, FITTING) not in self.fastest:
                index = _first(reserved, order, own)
                before = self.least.get(name)
                if before is None or (reserved[index], order[index]) < (before.reserved_bytes, before.order):
                    self.least[name] = found(index)

    def answers(self, overlap: Overlap) -> dict[str, Alternative]:
        """The answer to every question that has one."""
        found: dict[str, Alternative] = {}
        for name in self.asked:
            best = self.fastest.get((name, FITTING), self.least.get(name))
            if best is not None:
                found[name] = Alternative(
                    label=name_of(self.case, best.layout, overlap), layout=best.layout, step_s=best.step_s,
                    expected_step_s=best.expected_step_s, memory_reserved_bytes=best.reserved_bytes,
                    fits=(name, FITTING) in self.fastest, chance_s=best.mean_s - best.step_s,
                )
        return found


def _first(figure: Floats, order: Ints, own: Ints) -> int:
    """Which of some layouts has the least of a figure; the first of those that have."""
    least = own[figure[own] == figure[own].min()]
    return int(least[np.argmin(order[least])])


def _answering(mask: Bools, of: Knobs, dimensions: int) -> Bools:
    """Whether any value of the knobs that are open, on axes in front, answers a question."""
    ahead = mask.ndim - dimensions
    if ahead <= 0:
        return mask
    if of.able is not None and mask.shape[ahead - 1] > 1:
        mask = mask & of.able
    return np.asarray(mask.any(axis=tuple(range(ahead))))


def coarse(space: Space, micro_batches: tuple[int, ...]) -> Space:
    """The grid with few micro-batches (those of the guides) and few shard groups."""
    return structs.replace(
        space, microbatches=tuple(mb for mb in space.microbatches if mb in micro_batches),
        shard_options=tuple(option for option in SHARDINGS if option in space.shard_options),
    )


def alternatives(
    case: Case, features: Features, devices: int, overlap: Overlap, parameters: int,
    micro_batches: tuple[int, ...] = MICRO_BATCHES, only: tuple[str, ...] = (), known: Sequence[Layout] = (),
) -> dict[str, Alternative]:
    """The answer to every question that has one, or only to some; ``known`` layouts compete beside those of the grid."""
    space = coarse(make_space(case, features, devices, Pins()), micro_batches)
    asked = {name: question for name, question in questions(case, parameters).items() if not only or name in only}
    pool = _Pool(asked, case)
    for rows in evaluate_grid(space, Counts(rejected=Counter()), overlap=overlap, bar=pool):
        columns = columns_of_rows(rows, case.batch.global_batch_sequences)
        pool.add(columns, rows.step_s, rows.mean_s, rows.reserved_bytes, rows.order, partial(_layout_of, space, rows, overlap))
    bases = dict.fromkeys(found.layout for name in asked for band in (FITTING, NEAR) if (found := pool.fastest.get((name, band))))
    finer = list(dict.fromkeys([*known, *around(space, list(bases))]))
    if finer:
        pool.add(columns_of_layouts(finer), *price_many(case, finer), REFINED + np.arange(len(finer)), finer.__getitem__)
    return pool.answers(overlap)


def _layout_of(space: Space, rows: Rows, overlap: Overlap, index: int) -> Layout:
    return layout_of_row(space, rows, index, overlap)
