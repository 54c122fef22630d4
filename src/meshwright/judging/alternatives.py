"""The best layout under each piece of advice: the grid is evaluated once, every question keeps its winner, winners are refined."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.estimate.certainty import expected_s
from meshwright.estimate.many import price_many
from meshwright.estimate.naming import name_of
from meshwright.judging.questions import MICRO_BATCHES, columns_of_layouts, columns_of_rows, questions
from meshwright.search.finalists import layout_of_row
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.refine import around
from meshwright.search.space import Pins, ShardOption, make_space

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap
    from meshwright.judging.questions import Columns, Question
    from meshwright.search.grid import Rows
    from meshwright.search.space import Space

    Floats = NDArray[np.float64]

SHARDINGS = (
    ShardOption(0, "none"), ShardOption(1, "all"), ShardOption(1, "node"), ShardOption(2, "all"), ShardOption(3, "all"),
)
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
    layout: Layout


class _Pool:
    """Winners of every question: those expected to be fastest within each band of memory, and the least demanding."""

    def __init__(self, asked: dict[str, Question], case: Case) -> None:
        self.asked, self.case = asked, case
        self.fastest: dict[tuple[str, tuple[float, float]], _Found] = {}
        self.least: dict[str, _Found] = {}

    def add(self, columns: Columns, step_s: Floats, mean_s: Floats, reserved: Floats, layout_of: Callable[[int], Layout]) -> None:
        """Look at evaluated layouts."""
        demand, expected = reserved / self.case.capacity_bytes, np.asarray(expected_s(self.case, mean_s, reserved))
        banded = {band: np.where((demand > band[0]) & (demand <= band[1]), expected, np.inf) for band in (FITTING, NEAR)}

        def found(index: int) -> _Found:
            return _Found(
                step_s=float(step_s[index]), mean_s=float(mean_s[index]), expected_step_s=float(expected[index]),
                reserved_bytes=float(reserved[index]), layout=layout_of(index),
            )

        for name, question in self.asked.items():
            own = np.asarray(question(columns))
            if not own.any():
                continue
            for band, figure in banded.items():
                index = int(np.argmin(np.where(own, figure, np.inf)))
                known = self.fastest.get((name, band))
                if own[index] and np.isfinite(figure[index]) and (known is None or figure[index] < known.expected_step_s):
                    self.fastest[name, band] = found(index)
            if (name, FITTING) not in self.fastest:
                index = int(np.argmin(np.where(own, reserved, np.inf)))
                before = self.least.get(name)
                if before is None or reserved[index] < before.reserved_bytes:
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
    for rows in evaluate_grid(space, Counts(rejected=Counter()), overlap=overlap):
        columns = columns_of_rows(rows, case.batch.global_batch_sequences)
        pool.add(columns, rows.step_s, rows.mean_s, rows.reserved_bytes, partial(_layout_of, space, rows, overlap))
    bases = dict.fromkeys(found.layout for found in pool.fastest.values())
    finer = list(dict.fromkeys([*known, *around(space, list(bases))]))
    if finer:
        pool.add(columns_of_layouts(finer), *price_many(case, finer), finer.__getitem__)
    return pool.answers(overlap)


def _layout_of(space: Space, rows: Rows, overlap: Overlap, index: int) -> Layout:
    return layout_of_row(space, rows, index, overlap)
