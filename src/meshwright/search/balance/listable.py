"""An answer as two lists that begin at one layer can say it: no chunk with both of two treatments that exclude each other."""

from __future__ import annotations

from itertools import islice, product
from math import comb, prod
from typing import TYPE_CHECKING

import numpy as np

from meshwright.search.balance.memory import excess, stage_memory
from meshwright.search.balance.solve import place
from meshwright.search.balance.times import backward_table
from meshwright.search.balance.treatments import as_lists_say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem, Placement

    Counts = NDArray[np.int64]

MOST_TRIED = 4096
"""Ways of treating the layers of one chunk up to which all are looked at."""


def crosses(problem: BalanceProblem, placement: Placement, pair: tuple[str, str]) -> bool:
    """Whether a chunk has layers of both treatments."""
    return bool(_crossing(problem, placement.counts, pair).any())


def listable(problem: BalanceProblem, placements: Iterable[Placement], pair: tuple[str, str]) -> Placement | None:
    """The placement that simulates best when chunks that have both treatments of a pair are treated otherwise.

    Layers stay where they are; each such chunk gets the fastest counts without the pair under which its stage still fits.
    None where there are none.
    """
    found = [changed for each in placements if (changed := _changed(problem, each.counts, pair)) is not None]
    return min((place(problem, counts) for counts in found), key=lambda each: each.simulated_time, default=None)


def _crossing(problem: BalanceProblem, counts: Counts, pair: tuple[str, str]) -> NDArray[np.bool_]:
    """``[chunk, stage]``."""
    if not set(pair) <= set(problem.treatments):
        return np.zeros(counts.shape[2:], dtype=np.bool_)
    one, other = (counts[:, problem.treatments.index(name)].sum(axis=0) for name in pair)
    return np.asarray((one > 0) & (other > 0))


def _changed(problem: BalanceProblem, counts: Counts, pair: tuple[str, str]) -> Counts | None:
    """Counts without crossing chunks, changed one after the other; None where one of them cannot be."""
    for chunk, stage in np.argwhere(_crossing(problem, counts, pair)):
        drawn = islice(_options(problem, counts[:, :, chunk, stage], pair), 16 * MOST_TRIED)
        said = (as_lists_say(problem, option) for option in drawn)
        options = [option for option in said if not _crossing(problem, option[..., None, None], pair).any()]
        for option in sorted(options, key=lambda option: _longer(problem, option)):
            trial = counts.copy()
            trial[:, :, chunk, stage] = option
            if excess(problem, _only(stage_memory(problem, trial), stage, problem)) == 0.0:
                counts = trial
                break
        else:
            return None
    return counts


def _only(memory: NDArray[np.float64], stage: int, problem: BalanceProblem) -> NDArray[np.float64]:
    """The memory of one stage; of the others nothing."""
    return np.where(np.arange(problem.stages) == stage, memory, 0.0)


def _longer(problem: BalanceProblem, option: Counts) -> float:
    """Backward of a chunk."""
    table = backward_table(problem)
    return float((np.where(option > 0, table, 0.0) * option).sum())


def _options(problem: BalanceProblem, cell: Counts, pair: tuple[str, str]) -> Iterator[Counts]:
    """Counts ``[body, treatment]`` of a chunk's layers in which one of the pair is not used.

    All of them, or where they are many those that change the treatment of the pair's layers alone.
    """
    names = problem.treatments
    kept = [[index for index, name in enumerate(names) if name != left_out] for left_out in pair]
    few = prod(comb(int(layers) + len(names) - 2, len(names) - 2) for layers in cell.sum(axis=1)) <= MOST_TRIED
    fixed = np.zeros_like(cell)
    if not few:
        fixed[:, [index for index, name in enumerate(names) if name not in pair]] = 1
    fixed *= cell
    for columns in kept:
        bodies = [list(_shares(int(layers), len(columns))) for layers in (cell - fixed).sum(axis=1)]
        for shares in product(*bodies):
            option = fixed.copy()
            for body, share in enumerate(shares):
                option[body, columns] += np.array(share, dtype=np.int64)
            yield option


def _shares(layers: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to share layers among parts."""
    if parts == 1:
        yield (layers,)
        return
    for first in range(layers + 1):
        for rest in _shares(layers - first, parts - 1):
            yield (first, *rest)
