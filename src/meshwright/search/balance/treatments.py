"""Recomputation that fits a split: more of it where a stage is over its bound, less where there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.search.balance.memory import activation_table, held, stage_memory
from meshwright.search.balance.times import backward_table, positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

MAX_REPAIRS = 8
"""Layers of one stage that are recomputed more where lists mean other layers of it than were chosen."""
MAX_STEPS = 512
"""Layers of one stage whose treatment is changed, one by one; more layers than that no stage has."""


def kinds_at(problem: BalanceProblem, totals: Counts) -> Counts:
    """Layers of each body at every place, in the model's order.

    Shapes:  totals ``[chunk, stage(, placement)]`` -> ``[body, chunk, stage(, placement)]``.
    Holds:   all layers are placed.
    """
    if len(problem.bodies) == 1:
        return totals[None]
    places = positions(problem)
    chunks, stages = [chunk for chunk, _ in places], [stage for _, stage in places]
    end = np.cumsum(totals[chunks, stages], axis=0)
    begin = end - totals[chunks, stages]
    result = np.zeros((len(problem.bodies), *totals.shape), dtype=np.int64)
    first = 0
    for number, body in enumerate(problem.bodies):
        there = np.minimum(end, first + body.layers) - np.maximum(begin, first)
        result[number][chunks, stages] = np.maximum(there, 0)
        first += body.layers
    return result


def leading(problem: BalanceProblem, kinds: Counts, treatment: int, layers: int | Counts) -> Counts:
    """Counts where so many leading layers of every chunk have a treatment, and the others keep everything.

    Shapes:  ``[body, chunk, stage(, placement)]`` -> ``[body, treatment, chunk, stage(, placement)]``; ``layers`` broadcast with
             the last dimension.
    """
    there = np.broadcast_shapes(kinds.shape[1:], np.shape(layers))
    counts = np.zeros((kinds.shape[0], len(problem.treatments), *there), dtype=np.int64)
    left = np.full(there, layers, dtype=np.int64)
    for body in range(kinds.shape[0]):
        taken = np.minimum(kinds[body], left)
        left -= taken
        counts[body, 0] = kinds[body]
        counts[body, 0] -= taken
        counts[body, treatment] += taken
    return counts


def as_lists_say(problem: BalanceProblem, counts: Counts) -> Counts:
    """The same numbers of layers by treatment, of each chunk the first layers, the heaviest treatment first.

    That is all that a framework's lists and a layout can say of a chunk with layers of several bodies. Where a layer ahead has not
    the treatment, those behind get the next lighter one.

    Shapes:  ``[body, treatment, chunk, stage(, placement)]`` -> the same.
    """
    if len(problem.bodies) == 1 or len(problem.treatments) == 1:
        return counts
    possible = np.isfinite(backward_table(problem))
    left, result = counts.sum(axis=1), np.zeros_like(counts)
    over = np.zeros_like(left[0])
    for treatment in reversed(range(1, len(problem.treatments))):
        over = over + counts[:, treatment].sum(axis=0)
        blocked = np.zeros(over.shape, dtype=np.bool_)
        for body in range(len(problem.bodies)):
            if not possible[body, treatment]:
                blocked |= left[body] > 0
            taken = np.where(blocked, 0, np.minimum(left[body], over))
            result[body, treatment] = taken
            left[body] -= taken
            over = over - taken
    result[:, 0] = left
    return result


def carried(counts: Counts, kinds: Counts) -> Counts:
    """Counts for another split: what leaves a chunk had the heaviest treatment there, what comes keeps everything.

    Shapes:  counts ``[body, treatment, chunk, stage, 1 or placement]``, kinds ``[body, chunk, stage, placement]``.
    """
    result = np.repeat(counts, kinds.shape[-1], axis=-1) if counts.shape[-1] != kinds.shape[-1] else counts.copy()
    change = kinds - result.sum(axis=1)
    result[:, 0] += np.maximum(change, 0)
    surplus = np.maximum(-change, 0)
    for treatment in reversed(range(result.shape[1])):
        taken = np.minimum(result[:, treatment], surplus)
        result[:, treatment] -= taken
        surplus -= taken
    return result


def treated(problem: BalanceProblem, counts: Counts) -> Counts:
    """Placements whose recomputation is first increased until every stage fits, then reduced where there is room.

    Each step changes one layer of every stage: the change that frees most memory for its time (or enough of it, for the least
    time), then the one that saves most time and still fits.

    Shapes:  ``[body, treatment, chunk, stage, placement]`` -> the same.
    Holds:   greedy; a stage that cannot fit is left at its least memory.
    """
    if len(problem.treatments) == 1:
        return counts
    counts = counts.copy()
    bounds = np.array(problem.memory_bounds)[:, None]
    changes = _changes(problem)
    _reduce(problem, counts, changes, bounds)
    for _ in range(MAX_STEPS):
        room = bounds - stage_memory(problem, counts)
        if not _step(counts, changes, np.maximum(room, 0.0), relax=True):
            break
    _reduce(problem, counts, changes, bounds)  # a working set may have grown with the last change
    said = as_lists_say(problem, counts)
    for _ in range(MAX_REPAIRS if said is not counts else 0):
        if not _reduce(problem, said, changes, bounds, steps=1):
            break
        said = as_lists_say(problem, said)
    return said


def _reduce(problem: BalanceProblem, counts: Counts, changes: _Changes, bounds: Floats, *, steps: int = MAX_STEPS) -> bool:
    """More recomputation, in place and step by step, until every stage fits or nothing helps; whether anything changed."""
    tolerance = 1e-9 * np.maximum(np.abs(bounds), 1.0)
    for step in range(steps):
        over = stage_memory(problem, counts) - bounds
        if not (over > tolerance).any() or not _step(counts, changes, np.where(over > tolerance, over, 0.0), relax=False):
            return step > 0
    return True


class _Changes:
    """All changes of one layer's treatment: which, the time that they add, the memory that they free on each stage."""

    __slots__ = ("freed", "longer", "options")

    def __init__(self, options: list[tuple[int, int, int, int]], longer: Floats, freed: Floats) -> None:
        self.options, self.longer, self.freed = options, longer, freed


def _changes(problem: BalanceProblem) -> _Changes:
    """Changes from a treatment to a lighter one in memory, in which more time is spent."""
    backward, activation = backward_table(problem), activation_table(problem)
    flying = np.stack([vectors.max(axis=0) for vectors in held(problem)])
    options, longer, freed = [], [], []
    for body in range(backward.shape[0]):
        for before in range(backward.shape[1]):
            for after in range(backward.shape[1]):
                if before == after or not np.isfinite(backward[body, after]) or not np.isfinite(backward[body, before]):
                    continue
                kept = activation[body, before] - activation[body, after]
                if kept <= 0.0 or backward[body, after] < backward[body, before]:
                    continue
                for chunk in range(problem.chunks):
                    options.append((body, before, after, chunk))
                    longer.append(backward[body, after] - backward[body, before])
                    freed.append(kept * flying[:, chunk])
    return _Changes(options, np.array(longer), np.array(freed).reshape(len(options), problem.stages))


def _step(counts: Counts, changes: _Changes, amount: Floats, *, relax: bool) -> bool:
    """One change on every stage that needs it (or has room), in place; whether anything changed."""
    if not changes.options:
        return False
    best = np.full(amount.shape, np.inf)
    choice = np.full(amount.shape, -1, dtype=np.int64)
    active = amount > 0.0
    for number, (body, before, after, chunk) in enumerate(changes.options):
        source = after if relax else before
        freed = changes.freed[number][:, None]
        able = active & (counts[body, source, chunk] > 0)
        if relax:
            able &= freed <= amount
            value = np.broadcast_to(-changes.longer[number], amount.shape)
            able &= changes.longer[number] > 0.0
        else:
            value = changes.longer[number] / np.minimum(freed, amount + (amount <= 0.0))
        better = able & (value < best)
        best, choice = np.where(better, value, best), np.where(better, number, choice)
    if not (choice >= 0).any():
        return False
    for number in np.unique(choice[choice >= 0]):
        body, before, after, chunk = changes.options[number]
        chosen = (choice == number).astype(np.int64)
        source, target = (after, before) if relax else (before, after)
        counts[body, source, chunk] -= chosen
        counts[body, target, chunk] += chosen
    return True
