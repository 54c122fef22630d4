"""Dry runs drawn up by exchange: layers and ways of recomputing move between stages while the answer gets surer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.dry_runs import DryRuns, StagePeak
from meshwright.search.balance.equations import flights, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from meshwright.search.balance.equations import Floats

    RowOf = Callable[[int, int, int], tuple[float, ...]]
    """Stage, layers and treatment -> its equation."""

MAX_SWEEPS = 20
FAINT = 1e-6
"""Added to squared singular values, so that of two undetermined drafts the one that lacks less is better."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Draft:
    """Rounds being drawn up; all layers of a stage are treated in one way."""

    empty: DryRuns
    """The pipeline, without peaks."""
    noted: tuple[tuple[int, int], ...]
    """Rounds and stages whose peaks are noted: the rows of the matrix."""
    layers: NDArray[np.int64]
    """``[round, stage]``."""
    ways: NDArray[np.int64]
    """Treatment, ``[round, stage]``."""
    row_of: RowOf

    @cached_property
    def matrix(self) -> Floats:
        """The equations of the noted stages."""
        return np.array([self.row_of(stage, int(self.layers[at, stage]), int(self.ways[at, stage])) for at, stage in self.noted])

    def runs(self) -> DryRuns:
        """The dry runs, with peaks of 0."""
        peaks = tuple(
            _peak(self.empty, stage, int(self.layers[at, stage]), int(self.ways[at, stage]), at) for at, stage in self.noted
        )
        return replace(self.empty, peaks=peaks)


def exchanged(
    empty: DryRuns, layers: int, rounds: int, noted: tuple[tuple[int, int], ...], old: Floats, *, constant: bool, seed: int
) -> Draft:
    """A draft that no single exchange improves: of one stage's way, or of layers between two stages of a round.

    Minimised is the sum of the unknowns' variances, in units of their columns' lengths (A-optimality), ``old`` rows included.

    Source:  coordinate exchange (Meyer and Nachtsheim, Technometrics 37, 1995).
    """
    draw = np.random.default_rng(seed)
    share, rest = divmod(layers, empty.stages)
    counts = np.full((rounds, empty.stages), share, dtype=np.int64)
    for each in counts:
        each[draw.permutation(empty.stages)[:rest]] += 1
    ways = draw.integers(len(empty.treatments), size=counts.shape)
    draft = Draft(empty=empty, noted=noted, layers=counts, ways=ways, row_of=_row_of(empty, constant=constant))
    best = _variance(old, draft)
    for _ in range(MAX_SWEEPS):
        before = best
        for at, stage in noted:
            for other in _neighbours(draft, at, stage, max(1, share // 2), share):
                score = _variance(old, other)
                if score < best * (1 - 1e-9):
                    draft, best = other, score
        if best >= before * (1 - 1e-6):
            break
    return draft


def _neighbours(draft: Draft, at: int, stage: int, shift: int, share: int) -> Iterator[Draft]:
    """Drafts in which one stage recomputes in another way, or has layers of another stage of its round."""
    for way in range(len(draft.empty.treatments)):
        if way != draft.ways[at, stage]:
            ways = draft.ways.copy()
            ways[at, stage] = way
            yield replace(draft, ways=ways)
    noted = [other for place, other in draft.noted if place == at]
    idle = np.setdiff1d(np.arange(draft.empty.stages), noted)
    held = draft.layers[at, idle]
    spare = [int(idle[pick]) for pick in sorted({held.argmin(), held.argmax()})] if len(idle) else []
    for partner in (*(other for other in noted if other != stage), *spare):
        for move in (-shift, -1, 1, shift):
            layers = draft.layers.copy()
            layers[at, stage] += move
            layers[at, partner] -= move
            if max(1, share - shift) <= layers[at].min() and layers[at].max() <= share + shift:
                yield replace(draft, layers=layers)


def _variance(old: Floats, draft: Draft) -> float:
    """Sum of the unknowns' variances for peaks of variance 1, columns scaled to length 1."""
    matrix = np.vstack([old, draft.matrix])
    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(lengths > 0, lengths, 1.0)
    spectrum = np.linalg.eigvalsh(scaled.T @ scaled)
    return float((1.0 / (np.maximum(spectrum, 0.0) + FAINT)).sum())


def _row_of(empty: DryRuns, *, constant: bool) -> RowOf:
    """The equation of a stage, remembered."""
    flying = [vectors[0] for vectors in flights(empty)]

    @cache
    def row_of(stage: int, layers: int, way: int) -> tuple[float, ...]:
        return tuple(row(empty, _peak(empty, stage, layers, way, 0), flying[stage], constant=constant))

    return row_of


def _peak(empty: DryRuns, stage: int, layers: int, way: int, at: int) -> StagePeak:
    counts = tuple((layers if way == place else 0,) for place in range(len(empty.treatments)))
    return StagePeak(stage=stage, round=at, counts=counts, peak_mb=0.0)
