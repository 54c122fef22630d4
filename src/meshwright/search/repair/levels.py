"""All combinations of so many edits, with what they cost and whether they make the wish true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.layout import Full
from meshwright.estimate.certainty import expected_s
from meshwright.estimate.split import last_stage
from meshwright.search.repair.candidates import Settled, combined, distinct, place_of
from meshwright.search.repair.following import legal, settle
from meshwright.search.repair.prices import Extra, evaluated, part_of
from meshwright.search.repair.wishes import Faster, Legal, WithinMemory
from meshwright.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.search.repair.knobs import Given, Knob
    from meshwright.search.repair.wishes import Wish

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

SLACK = 0.10
"""Candidates this much slower than wished for by the closed form of their pipeline are good enough to be simulated."""
UNFIT = 1e3
"""Cost of what does not fit in memory, relative to what does."""


class Target(Value, frozen=True, kw_only=True):
    """What a candidate is measured against."""

    wish: Wish
    bound_bytes: float
    extra: Extra
    step_s: float | None = None
    """No longer than this."""

    @property
    def must_fit(self) -> bool:
        """Whether memory is part of the wish."""
        return not isinstance(self.wish, Legal)

    def cost(self, case: Case, mean_s: Floats, needed_bytes: Floats) -> Floats:
        """Expected step time; of what does not fit, many times that.

        Units:   s.
        Holds:   the bound stands where the case's own would: how likely something near it runs is the same, whoever set it.
        Source:  ``estimate.certainty.expected_s``.
        """
        likened = needed_bytes * (case.capacity_bytes / max(self.bound_bytes, 1.0))
        return expected_s(case, mean_s, likened) * np.where(needed_bytes <= self.bound_bytes, 1.0, UNFIT)

    def gap_bytes(self, each: Estimate) -> float:
        """What the tightest stage of an estimate lacks; negative where there is room."""
        layout, numbers = each.layout, np.array([stage.stage for stage in each.stages])
        head = last_stage(layout.pipeline_parallel, layout.virtual_stages, folded=layout.schedule == "dualpipev")
        on_top = self.extra.on(numbers == 0, numbers == head, np.full(len(numbers), float(layout.pipeline_parallel)))
        reserved = np.array([stage.memory.reserved_bytes for stage in each.stages])
        return float((reserved + on_top).max()) - self.bound_bytes


def target_of(case: Case, layout: Layout, wish: Wish, base: Estimate | None) -> Target:
    """What a wish asks of every candidate."""
    match wish:
        case WithinMemory(bound_bytes=bound, extra_bytes=more, stage=stage):
            part = "all" if stage is None else part_of(stage, layout.pipeline_parallel)
            return Target(
                wish=wish, bound_bytes=case.capacity_bytes if bound is None else bound, extra=Extra(extra_bytes=more, part=part)
            )
        case Faster(ratio=ratio) if base is not None:
            return Target(wish=wish, bound_bytes=case.capacity_bytes, extra=Extra(), step_s=base.step_s / (1.0 + ratio))
    return Target(wish=wish, bound_bytes=case.capacity_bytes, extra=Extra())


class Level(Value, frozen=True, kw_only=True):
    """All legal combinations of so many edits, less those that cannot fit, with what they cost."""

    edits: int
    combinations: int
    legal: int
    """Combinations that the rules allow; ``rows`` lacks those that cannot fit."""
    rows: Settled
    step_s: Floats
    needed_bytes: Floats
    cost: Floats
    """Expected step time; of what does not fit, many times that."""
    good: Bools
    """Which satisfy the wish by the model."""


def level(given: Given, table: tuple[Knob, ...], target: Target, edits: int) -> Level:
    """All combinations of so many edits, evaluated."""
    codes = np.concatenate(list(combined(table, edits)) or [np.zeros((len(table), 0), dtype=np.int16)], axis=1)
    rows = legal(settle(given, table, codes))
    allowed = len(rows)
    if edits > 1 and target.must_fit:
        rows = rows.take(possible(rows, target))
    step_s, mean_s, needed = evaluated(rows, target.extra)
    good = (needed <= target.bound_bytes) | (not target.must_fit)
    if target.step_s is not None:
        good &= step_s <= target.step_s * (1.0 + SLACK)
    return Level(
        edits=edits, combinations=codes.shape[1], legal=allowed, rows=rows, step_s=step_s, needed_bytes=needed,
        cost=target.cost(given.case, mean_s, needed), good=np.asarray(good),
    )


def possible(rows: Settled, target: Target) -> Bools:
    """Candidates that may fit: recomputing the first k layers of a chunk never needs less than recomputing all of them.

    A layer recomputed in full keeps its input alone, which a kept layer keeps, too; and its working set is there for any k.
    """
    place = place_of(rows.table, "recompute")
    values = rows.table[place].values
    counted = np.array([isinstance(value, Full) and isinstance(value.layers, int) for value in values])[rows.codes[place]]
    found = np.ones(len(rows), dtype=np.bool_)
    if Full() not in values or not counted.any():
        return found
    codes = rows.codes[:, counted].copy()
    codes[place] = values.index(Full())
    first, other_of = distinct(list(codes))
    _, _, needed = evaluated(settle(rows.given, rows.table, codes[:, first]), target.extra)
    found[counted] = (needed <= target.bound_bytes)[other_of]
    return found
