"""What stages of a run took and held, in place of what the cost model says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.times import chunk_times, ends
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem, Body, End

    Counts = NDArray[np.int64]

FORWARD_SHARE = 1.0 / 3.0
"""Of what an end takes beyond the model."""


class Correction(Value, frozen=True, kw_only=True):
    """How a run differs from the model of it."""

    layer_time_ratio: float = 1.0
    """Of every layer, forward and backward alike."""
    first_extra: float = 0.0
    """Time of the first end, forward and backward, beyond the model."""
    last_extra: float = 0.0
    stage_memory_extra: tuple[float, ...] = ()
    """On each stage whatever stands there; empty: none."""


def correction(
    problem: BalanceProblem, counts: Counts, *, stage_times: Sequence[float] = (), stage_memories: Sequence[float] = ()
) -> Correction:
    """The correction that explains what was measured of a placement.

        r = mean over middle stages of measured / modelled;   first = t_0 - r L_0 - E_0;   memory_s = M_s - modelled_s

    Symbols: t forward and backward of a stage for one micro-batch; L that of its layers and E of its end by the model; M peak.
    Units:   the problem's; ``stage_times`` are of one micro-batch through all chunks of a stage.
    Holds:   two stages have no middle: the ends are then the model's, times r.
    """
    found = Correction()
    if stage_times:
        times = chunk_times(problem, counts)
        whole = (times.forward + times.backward).sum(axis=1)
        own = np.zeros(problem.stages)
        for (stage, _), end in zip(ends(problem), (problem.first, problem.last), strict=True):
            own[stage] += end.forward_time + end.backward_time
        measured = np.array(stage_times, dtype=np.float64)
        middle = slice(1, -1) if problem.stages > 2 else slice(None)
        ratio = float((measured / whole)[middle].mean())
        extra = measured - ratio * (whole - own) - own if problem.stages > 2 else (ratio - 1.0) * own
        (first, _), (last, _) = ends(problem)
        found = replace(
            found, layer_time_ratio=ratio, first_extra=float(extra[first]), last_extra=float(extra[last]) if last != first else 0.0
        )
    if stage_memories:
        extras = np.array(stage_memories, dtype=np.float64) - stage_memory(problem, counts)
        found = replace(found, stage_memory_extra=tuple(extras.tolist()))
    return found


def corrected(problem: BalanceProblem, found: Correction) -> BalanceProblem:
    """The problem as the run was."""
    constants = np.array(problem.constant_memory or (0.0,) * problem.stages)
    extras = np.array(found.stage_memory_extra or (0.0,) * problem.stages)
    return replace(
        problem, bodies=tuple(_scaled(body, found.layer_time_ratio) for body in problem.bodies),
        first=_longer(problem.first, found.first_extra), last=_longer(problem.last, found.last_extra),
        constant_memory=tuple((constants + extras).tolist()),
    )


def _scaled(body: Body, ratio: float) -> Body:
    return replace(
        body, forward_time=ratio * body.forward_time, backward_times=tuple(ratio * time for time in body.backward_times),
        weight_time=ratio * body.weight_time,
    )


def _longer(end: End, extra: float) -> End:
    """An end with more time, or less, but never below none."""
    forward = max(0.0, end.forward_time + FORWARD_SHARE * extra)
    backward = max(0.0, end.backward_time + (1.0 - FORWARD_SHARE) * extra)
    return replace(end, forward_time=forward, backward_time=backward, weight_time=min(end.weight_time, backward))
