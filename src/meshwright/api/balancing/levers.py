"""Where nothing fits: what would, each tried and not guessed."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from meshwright.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.api.cases import Setup
    from meshwright.domain.balance import BalanceProblem, Overfull
    from meshwright.domain.layout import Layout

Change = tuple[str, "Callable[[], BalanceProblem]"]
"""What to change in the user's words, and the problem that it makes."""
MOST_LEVERS, MOST_EDITS = 4, 2
TRYING_S, MOST_PLACES = 5.0, 128
"""After so many seconds no further change of a file is tried, and none of a pipeline of more chunks."""
NOTHING_NEAR = "no {edits} changes of the layout fit on these devices: `meshwright plan --min-devices` says how many it takes"


def tried(changes: Iterator[Change]) -> tuple[str, ...]:
    """Those changes under which something fits, with the pipeline that a quick search finds; for so long as it is quick."""
    from meshwright.search.balance.quick import quick_placements
    from meshwright.search.balance.sound import require_sound

    found: list[str] = []
    until = time.monotonic() + TRYING_S
    for words, change in changes:
        try:
            problem = change()
            require_sound(problem)
        except InputError:
            continue
        if time.monotonic() > until or problem.stages * problem.chunks > MOST_PLACES:
            break
        if placements := quick_placements(problem):
            found.append(f"{words}: fits, pipeline {placements[0].simulated_time:,.6g}")
    return tuple(found)


def of_file(problem: BalanceProblem, verdict: Overfull, under: Callable[..., BalanceProblem]) -> Iterator[Change]:
    """Changes of the options that a file is balanced with; ``under`` builds the problem with some of them changed."""
    limit = max(demand_of(problem, verdict))
    yield f"--memory-mb {limit:.0f}", partial(replace, problem, memory_bounds=(limit,) * problem.stages)
    if problem.schedule == "interleaved":
        yield "--less-memory", partial(under, less_memory=True)
    if problem.chunks > 1:
        yield "--virtual-stages 1", partial(under, virtual_stages=(1,), less_memory=False, schedule=None)
    for factor in (2, 4):
        stages = factor * problem.stages
        if stages * problem.chunks <= problem.layers:
            yield f"--stages {stages}", partial(under, stages=stages)


def demand_of(problem: BalanceProblem, verdict: Overfull) -> tuple[float, ...]:
    """Bounds that would do, as far as the verdict knows: each as much larger as the fullest stage is over."""
    return tuple(float(-(-(bound + verdict.gap) // 1)) for bound in problem.memory_bounds)


def of_layout(given: Setup, layout: Layout) -> tuple[str, ...]:
    """Single edits of a layout that fit, by the search for repairs, with what they cost."""
    from meshwright.search.repair import WithinMemory, repair

    framework = given.framework
    found = repair(
        given.case, framework.features, layout, WithinMemory(), check=framework.check, said=framework.overlap, max_edits=MOST_EDITS,
        limit=MOST_LEVERS,
    ).found
    words = tuple(
        f"{', '.join(edit.words for edit in each.edits)}: fits"
        + ("" if each.step_change_ratio is None else f", step {100 * each.step_change_ratio:+z.1f} %")
        for each in found
        if each.edits
    )
    return words or (NOTHING_NEAR.format(edits=MOST_EDITS),)
