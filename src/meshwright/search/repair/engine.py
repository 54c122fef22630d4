"""The smallest changes of a layout that make a wish true: every single edit, all pairs, and triples where it takes them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.estimate.single import estimate
from meshwright.search.legality import arithmetic_refusals, layout_refusals
from meshwright.search.repair.following import settle
from meshwright.search.repair.knobs import Given, idea, knobs, shown
from meshwright.search.repair.levels import level, target_of
from meshwright.search.repair.stages import Room, lists, splits
from meshwright.search.repair.wishes import Devices, Edit, Faster, Legal, Nearest, Repair, Repairs
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap
    from meshwright.errors import Message
    from meshwright.search.repair.candidates import Settled
    from meshwright.search.repair.knobs import Knob
    from meshwright.search.repair.levels import Level, Target
    from meshwright.search.repair.wishes import Wish

    Check = Callable[[Case, Layout], Sequence[Message]]
    Said = Callable[[Case, Layout], Overlap]

TIE = 0.005
"""More edits must make a step shorter by so much: inside it nobody can tell plans apart (``search.plan.TIE``)."""
ROOMY = 0.85
"""Share of the bound below which less memory is no reason for more edits (``search.plan.ROOMY``)."""
ENOUGH = 3
"""Pairs that make triples needless; a single edit that answers does so alone."""
NEAR = 20
"""Candidates of each level that are asked of the framework for the one that comes closest."""
REFUSED = 64
"""Candidates that a framework refuses for one and the same reason, which is none of layouts, before it is taken for final."""


def repair(
    case: Case, features: Features, layout: Layout, wish: Wish, *, check: Check | None = None, said: Said | None = None,
    max_edits: int = 3, limit: int = 20, frozen: Collection[str] = (),
) -> Repairs:
    """The smallest changes of a layout that make a wish true.

    ``check`` is what a framework says against a layout of a case (``Framework.check``); ``said`` the overlap that it has there
    (``Framework.overlap``). Knobs that are ``frozen`` (words of the label) stay as they are. ``limit`` bounds the answers.

    All single edits and all pairs are evaluated (pairs not where a single edit mends a rule); triples, and so on to ``max_edits``,
    only where no single edit and fewer than ``ENOUGH`` pairs answer. An answer is left out where one with fewer edits is no slower
    and needs no more memory, or little; or where some of its edits alone are no slower. Of several values of the same knobs the
    best is given; of a single knob also the fastest that fits.

    Errors:  ``InputError`` for a number of devices that no cluster has.
    Holds:   deterministic. What fits is exact by the model; what is fast enough is looked up by the closed form of the pipeline,
             with ``levels.SLACK``, and judged by its simulation.
    """
    begin = time.perf_counter()
    refusals = arithmetic_refusals(case, features, layout)
    base = None if refusals else estimate(case, layout)
    broken = tuple(check(case, layout)) if check and not refusals else ()
    given, target = prepared(case, features, layout, wish, base)
    case = given.case
    search = _Search(given=given, target=target, base=base, table=knobs(given, frozen), check=check, said=said, limit=limit)
    levels: list[Level] = []
    for edits in range(max_edits + 1):
        levels.append(level(given, search.table, target, edits))
        search.answer(levels[-1])
        if search.blocked or search.enough(edits):
            break
    return Repairs(
        case=case, wish=wish, layout=layout, base_estimate=base,
        base_refusals=refusals or layout_refusals(case, features, layout), base_broken=broken, found=tuple(search.found),
        satisfying=sum(int(each.good.sum()) for each in levels), searched_edits=levels[-1].edits,
        candidates=sum(each.combinations for each in levels), legal=sum(each.legal for each in levels),
        proved=not isinstance(wish, Faster), blocked=search.blocked, search_s=time.perf_counter() - begin,
        nearest=None if search.found or search.blocked else search.nearest(levels),
    )


def prepared(case: Case, features: Features, layout: Layout, wish: Wish, base: Estimate | None) -> tuple[Given, Target]:
    """What values are drawn from, and what candidates are measured against; ``base`` is None for an impossible layout."""
    world = layout.world
    if isinstance(wish, Devices):
        world = wish.count
        case = replace(case, cluster=replace(case.cluster, num_devices=world))
    target = target_of(case, layout, wish, base)
    given = Given(case=case, features=features, layout=layout, world=world)
    if base is None or world != layout.world:
        return given, target
    room = Room(bound_bytes=target.bound_bytes, extra=target.extra)
    if target.step_s is None and room.holds(case, layout):
        return given, target
    parted, recomputed = splits(case, features, layout, room), lists(case, features, layout, room)
    return replace(given, splits=parted, recomputes=recomputed), target


class _Kept(Value, frozen=True):
    """An answer, as others are measured against it."""

    edits: frozenset[tuple[int, int]]
    cost: float
    needed_bytes: float


@dataclass(kw_only=True)
class _Search:
    """The answers so far, and what they are judged by."""

    given: Given
    target: Target
    base: Estimate | None
    table: tuple[Knob, ...]
    check: Check | None
    said: Said | None
    limit: int
    found: list[Repair] = field(default_factory=list)
    kept: list[_Kept] = field(default_factory=list)
    ideas: set[tuple[Hashable, ...]] = field(default_factory=set)
    refused: int = 0
    final: tuple[Message, ...] | None = None
    """What every candidate so far was refused for, other than its layout."""

    @property
    def blocked(self) -> tuple[Message, ...]:
        """What the framework says against every candidate, and no layout changes."""
        return self.final or () if self.refused >= REFUSED else ()

    def enough(self, edits: int) -> bool:
        """Whether more edits need not be looked at: nothing has to change, a rule is mended, or there is a choice already.

        Pairs are looked at all the same: they may be faster than what one edit gives.
        """
        mended = isinstance(self.target.wish, Legal) and any(each.margin_bytes >= 0.0 for each in self.found)
        fewest = min((len(each.edits) for each in self.found), default=edits + 1)
        return fewest == 0 or mended or (edits > 1 and (fewest == 1 or len(self.found) >= ENOUGH))

    def answer(self, one: Level) -> None:
        """Take the answers of a level, best first."""
        new: list[Repair] = []
        for index in self._walk(one):
            answer = self._judged(one.rows, index)
            if answer is not None:
                new.append(answer)
                self.kept.append(self._figures(one, index))
                self.ideas.add(self._idea(one.rows, index))
            if len(self.kept) >= self.limit or self.blocked:
                break
        self.found += sorted(new, key=self._rank)

    def _walk(self, one: Level) -> Iterator[int]:
        """Rows that make the wish true by cost, without dominated ones and without further values of an idea that is answered."""
        good = np.flatnonzero(one.good)
        order = good[np.argsort(one.cost[good], kind="stable")].tolist()
        for index in order:
            if self._idea(one.rows, index) not in self.ideas and not self._dominated(self._figures(one, index)):
                yield index
        if one.edits == 1:
            taken = {edit for each in self.kept for edit in each.edits}
            tried: set[tuple[Hashable, ...]] = set()
            for index in good[np.argsort(one.step_s[good], kind="stable")].tolist():
                name = self._idea(one.rows, index)
                if name not in tried and not self._figures(one, index).edits <= taken:
                    yield index
                tried.add(name)

    def _idea(self, rows: Settled, index: int) -> tuple[Hashable, ...]:
        """Answers of one idea differ in how far they go: the same knobs, and the same sort of recomputation."""
        return tuple(idea(self.table[place], int(rows.codes[place, index])) for place in rows.moved(index))

    def _dominated(self, one: _Kept) -> bool:
        """Whether fewer edits do as well: some of these alone, or others that need no more memory, or little of it."""
        enough = max(one.needed_bytes, ROOMY * self.target.bound_bytes)
        return any(
            each.cost <= one.cost * (1.0 + TIE)
            and (each.edits < one.edits or (len(each.edits) < len(one.edits) and each.needed_bytes <= enough))
            for each in self.kept
        )

    def _figures(self, one: Level, index: int) -> _Kept:
        codes = one.rows.codes[:, index]
        edits = frozenset((place, int(codes[place])) for place in one.rows.moved(index))
        return _Kept(edits, float(one.cost[index]), float(one.needed_bytes[index]))

    def _judged(self, rows: Settled, index: int) -> Repair | None:
        """A row as an answer: None where the framework refuses it, its simulation is too slow, or an edit of it changes nothing."""
        case, target, layout = self.given.case, self.target, rows.layout(index)
        if self._idle(rows, index, layout):
            return None
        if self.said is not None:
            layout = replace(layout, overlap=self.said(case, layout))
        if self._refused(layout):
            return None
        each = estimate(case, layout)
        gap = target.gap_bytes(each)
        if (target.must_fit and gap > 0.0) or (target.step_s is not None and each.step_s > target.step_s):
            return None
        change, interval = step_change(case, self.base, each)
        less = None if self.base is None else each.memory_reserved_bytes - self.base.memory_reserved_bytes
        return Repair(
            edits=self._edits(rows, index, layout), layout=layout, estimate=each, margin_bytes=-gap, step_change_ratio=change,
            step_change_interval=interval, memory_change_bytes=less,
        )

    def _idle(self, rows: Settled, index: int, layout: Layout) -> bool:
        """Whether the same layout comes out without one of the edits: a shard stage over a single rank, say."""
        moved = rows.moved(index)
        codes = np.repeat(rows.codes[:, [index]], len(moved), axis=1)
        codes[list(moved), np.arange(len(moved))] = 0
        fewer = settle(self.given, self.table, codes)
        return any(fewer.layout(column) == layout for column in range(len(fewer)))

    def _refused(self, layout: Layout) -> bool:
        """Whether the rules of layouts or the framework refuse one; what they have in common is kept."""
        case = self.given.case
        if layout_refusals(case, self.given.features, layout):
            return True
        said = tuple(self.check(case, layout)) if self.check is not None else ()
        if not self.found:
            other = {message.id: message for message in said if message.path != "layout"}
            before = other.values() if self.final is None else self.final
            self.final = tuple(message for message in before if message.id in other)
            self.refused += 1
        return bool(said)

    def _edits(self, rows: Settled, index: int, layout: Layout) -> tuple[Edit, ...]:
        return tuple(
            Edit(
                knob=knob.word, field=knob.field, before=shown(knob, knob.values[0], self.given.layout),
                after=shown(knob, knob.values[rows.codes[place, index]], layout), risk=knob.risk,
            )
            for place in rows.moved(index) for knob in (self.table[place],)
        )

    def _rank(self, answer: Repair) -> tuple[int, bool, float]:
        needed = np.asarray(self.target.bound_bytes - answer.margin_bytes)
        cost = self.target.cost(self.given.case, np.asarray(answer.estimate.step_s), needed)
        return len(answer.edits), answer.risk == "approximate", float(cost)

    def nearest(self, levels: Sequence[Level]) -> Nearest | None:
        """The legal candidate that lacks least; None where there is none, or where only rules were in the way."""
        target, pool = self.target, []
        for one in levels if target.must_fit else ():
            fits = one.needed_bytes <= target.bound_bytes
            timed = target.step_s is not None
            # Of what must be faster, the fastest that fits; else what needs least.
            lacking = np.where(fits, one.step_s, one.needed_bytes) if timed else one.needed_bytes
            order = np.lexsort((lacking, ~fits & timed))[:NEAR]
            pool += [(bool(not fits[index] and timed), float(lacking[index]), one.edits, index) for index in order.tolist()]
        for _, _, edits, index in sorted(pool):
            rows = levels[edits].rows
            layout = rows.layout(index)
            if self._refused(layout):
                continue
            each = estimate(self.given.case, layout)
            gap = target.gap_bytes(each)
            missing, unit = (gap, "B") if gap > 0.0 or target.step_s is None else (each.step_s - target.step_s, "s")
            edited = self._edits(rows, index, layout)
            return Nearest(edits=edited, layout=layout, estimate=each, missing=missing, unit=unit)
        return None


def step_change(case: Case, before: Estimate | None, after: Estimate) -> tuple[float | None, tuple[float, float] | None]:
    """Relative change of the step time, and where it lies by the calibration's error between two layouts of one case.

        [x / (1 + r), x (1 + r)] - 1,   x = after / before

    Symbols: r ``Uncertainty.ranking_ratio``: what two layouts of a case have in common cancels.
    Units:   ratio.
    """
    if before is None:
        return None, None
    ratio, known = after.step_s / before.step_s, case.calibration.uncertainty
    if known is None:
        return ratio - 1.0, None
    apart = 1.0 + known.ranking_ratio
    return ratio - 1.0, (ratio / apart - 1.0, ratio * apart - 1.0)
