"""What the framework says of candidates, and which of them are simulated: of each shape the first, and others that promise more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field, structs
from msgspec.structs import replace

from meshwright.domain.layout import overlapping
from meshwright.estimate.evaluate import split_of
from meshwright.search import ranking
from meshwright.search.learnt import Learnt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.search.finalists import Candidate
    from meshwright.search.result import SearchOptions
    from meshwright.search.runner import Runner

CHUNKINGS = 6
"""Numbers of chunks of one shape that are simulated at most, while they are not alike."""


class _Shape(Struct):
    """Candidates of one shape: those that are simulated, and the others that came after the first, with their places."""

    kept: list[Candidate]
    others: list[tuple[int, Candidate]] = field(default_factory=list)


class Asked(Struct):
    """The framework's word about candidates, and what it has refused."""

    case: Case
    runner: Runner
    most: int
    """Shapes that are simulated."""
    keeps_overlap: bool = False
    """The overlap is pinned."""
    everything: bool = False
    """Nothing is refused any more."""
    refused: set[Layout] = field(default_factory=set)
    learnt: Learnt = field(default_factory=Learnt)

    def estimate(self, layout: Layout) -> Estimate:
        """A layout's estimate."""
        return self.learnt.estimate(self.case, layout)

    def able(self, layout: Layout) -> bool:
        """Whether the framework runs a layout."""
        if self.everything or not (self._drops(layout) or self.runner.check(self.case, layout)):
            return True
        self.refused.add(layout)
        return False

    def _drops(self, layout: Layout) -> bool:
        """Whether the framework runs a layout with another overlap than the pinned one."""
        said = self.runner.overlap(self.case, layout) if self.keeps_overlap else layout.overlap
        heard = overlapping(layout, experts=self.case.model.is_moe)
        return any(getattr(said, name) != getattr(layout.overlap, name) for name in heard)

    def said(self, candidate: Candidate) -> Candidate:
        """A candidate with the overlap that the framework has under it."""
        layout = candidate.layout
        return structs.replace(candidate, layout=replace(layout, overlap=self.runner.overlap(self.case, layout)))

    def best(self, layouts: Sequence[Layout], options: SearchOptions) -> list[Layout]:
        """The best of each shape, best first."""
        self.learnt.know(self.case, layouts)
        every = [self.estimate(layout) for layout in layouts]
        found = ranking.best_of_shapes(every, options.objective, trained=not self.case.training.weights_frozen)
        return [each.layout for each in ranking.in_order(found.values(), options.objective)]

    def simulated(self, candidates: Sequence[Candidate], options: SearchOptions) -> list[Candidate]:
        """Candidates in the order of their simulated steps: closed forms do not know how stages that are not alike wait."""
        self.learnt.know(self.case, (each.layout for each in candidates))
        return sorted(candidates, key=lambda each: ranking.value(self.estimate(each.layout), options.objective))

    def first(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The first that the framework runs of each shape, as many shapes as are simulated, and others that promise more.

        Shapes do not ask about each other, so all go on at once, and what they ask is estimated together.
        """
        trained = not self.case.training.weights_frozen
        shapes: dict[tuple[object, ...], _Shape] = {}
        found: dict[int, Candidate] = {}
        for number, each in enumerate(candidates):
            key = ranking.shape(each.layout, trained=trained)
            if key in shapes:
                shapes[key].others.append((number, each))
            elif len(shapes) < self.most and self.able(each.layout):
                found[number] = self.said(each)
                shapes[key] = _Shape(kept=[found[number]])
        more, new = [self._more(each) for each in shapes.values()], dict(found)
        while new:
            self.learnt.know(self.case, (each.layout for each in new.values()))
            new = dict(each for each in (next(each, None) for each in more) if each is not None)
            found |= new
        return [each for _, each in sorted(found.items(), key=lambda each: each[0])]

    def _more(self, shape: _Shape) -> Iterator[tuple[int, Candidate]]:
        """Those of a shape that promise more than what is kept of it; each is estimated before the next is looked for."""
        for number, each in shape.others:
            if self._promising(shape.kept, each) and self.able(each.layout):
                shape.kept.append(self.said(each))
                yield number, shape.kept[-1]

    def _promising(self, kept: Sequence[Candidate], each: Candidate) -> bool:
        """Whether another number of chunks may be faster than those of its shape that are kept: the closed form does not know how
        chunks that are not alike wait for each other, so it is asked as long as it promises more than simulations hold."""
        last, chunks = kept[-1].layout, each.layout.virtual_stages
        if len(kept) == CHUNKINGS or last.virtual_stages == 1 or chunks in {other.layout.virtual_stages for other in kept}:
            return False
        unlike = len({layers for chunk in split_of(self.case, last) for layers in chunk}) > 1
        return unlike and each.step_s < min(self.estimate(other.layout).mean_step_s for other in kept)
