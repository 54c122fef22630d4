"""An answer for a file of layers with what stands beside it: plain and hand-made placements, the frameworks' settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.api.views.balance import FILE_UNITS, BalanceShown, rival, treated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.views.balance import Rival
    from meshwright.domain.balance import Balance, BalanceProblem, Placement
    from meshwright.frameworks import Framework
    from meshwright.frameworks.stage_lists import Stages, Words
    from meshwright.readers.sapp import ManualStrategy


def beside(balance: Balance, asked: Framework | None, manual: Sequence[tuple[ManualStrategy, BalanceProblem]]) -> BalanceShown:
    """The answer for one framework, or for all of them.

    ``manual``: strategies made by hand, each with the problem under its own number of virtual stages.
    """
    as_lists = _as_lists(balance)
    if as_lists is not None and asked is not None and asked.features.recompute_mixed:
        balance, as_lists = _settled(balance, as_lists.placement), None
    rivals = (*([as_lists] if as_lists else []), *_plain(balance.problem), *_by_hand(manual))
    return BalanceShown(balance=balance, units=FILE_UNITS, words=_words(balance, asked, as_lists), rivals=rivals)


def _plain(problem: BalanceProblem) -> list[Rival]:
    """What one would do without thinking: even stages with all layers treated alike, the lightest way and the heaviest."""
    import numpy as np

    from meshwright.estimate.split import even_split
    from meshwright.search.balance.solve import place
    from meshwright.search.balance.times import backward_table
    from meshwright.search.balance.treatments import kinds_at, leading

    kinds = kinds_at(problem, np.array(even_split(problem.layers, problem.stages, problem.chunks), dtype=np.int64))
    rivals = []
    for treatment in sorted({0, len(problem.treatments) - 1}):
        if np.isfinite(backward_table(problem)[:, treatment]).all():
            word = problem.treatments[treatment]
            name = "even, nothing recomputed" if word == "none" else f"even, all {word}"
            rivals.append(rival(problem, name, place(problem, leading(problem, kinds, treatment, problem.layers))))
    return rivals


def _by_hand(manual: Sequence[tuple[ManualStrategy, BalanceProblem]]) -> list[Rival]:
    """Strategies that somebody made."""
    from meshwright.search.balance.solve import place

    return [
        rival(problem, strategy.name, place(problem, strategy.counts(problem.bodies, problem.treatments)))
        for strategy, problem in manual
    ]


def _as_lists(balance: Balance) -> Rival | None:
    """What MindSpore's lists can say, where they cannot say the answer; None where they can."""
    from meshwright.frameworks.stage_lists import EXCLUDING
    from meshwright.search.balance.listable import crosses, listable

    problem = balance.problem
    if not crosses(problem, balance.best, EXCLUDING):
        return None
    faster = () if balance.faster is None else (balance.faster,)
    found = listable(problem, (balance.best, *balance.others, *faster), EXCLUDING)
    return None if found is None else rival(problem, "as lists can say it", found)


def _settled(balance: Balance, placement: Placement) -> Balance:
    """The answer with another placement as its best."""
    from meshwright.search.balance.bubble import bubble_of

    return replace(balance, best=placement, bubble=bubble_of(balance.problem, placement.counts))


def _words(balance: Balance, asked: Framework | None, as_lists: Rival | None) -> tuple[Words, ...]:
    """The answer in the frameworks' settings; of the one that was asked for alone."""
    from meshwright.frameworks.stage_lists import in_words

    problem = balance.problem
    words = in_words(_said(problem, balance.best), _said(problem, as_lists.placement) if as_lists else None)
    if asked is None:
        return words
    return tuple(each for each in words if each.framework.startswith(asked.title)) or words


def _said(problem: BalanceProblem, placement: Placement) -> Stages:
    """A placement as the frameworks' settings take it."""
    from meshwright.frameworks.stage_lists import Stages

    return Stages(
        layers=placement.layers, recompute=treated(problem, placement), schedule=problem.schedule,
        sequence_splits=problem.sequence_splits,
    )
