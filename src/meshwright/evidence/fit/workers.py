"""Evaluating the runs of a fit on two processes: each holds all runs and is sent constants alone."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from os import cpu_count
from typing import TYPE_CHECKING, TypeVar

from meshwright.evidence.fit.processes import processes, submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import ProcessPoolExecutor

    import numpy as np
    from numpy.typing import NDArray

    from meshwright.evidence.fit.linear import Part, Runs

    Floats = NDArray[np.float64]

Result = TypeVar("Result")

MAX_JOBS = 2
WORTH_IT = 300
"""Fewer runs take less time than the start of a process."""
CHUNK = 24
_held: list[Runs] = []
"""The runs of this worker process."""


class Pool:
    """Processes that hold the runs; falls back to this process where none can be started."""

    def __init__(self, space: Runs, executor: ProcessPoolExecutor) -> None:
        """Keep both."""
        self._space, self._executor, self._broken = space, executor, False

    def parts(
        self, numbers: Sequence[int], multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]
    ) -> Iterator[tuple[int, Part]]:
        """``Runs.part`` of every number, in their order."""
        yield from zip(numbers, self._map(_part, numbers, multipliers, ceilings), strict=True)

    def corrections(
        self, numbers: Sequence[int], multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]
    ) -> Iterator[float]:
        """``Runs.correction`` of every number, in their order."""
        yield from self._map(_correction, numbers, multipliers, ceilings)

    def _map(
        self, function: Callable[[Runs, int, Floats, Floats], Result], numbers: Sequence[int], multipliers: Floats, ceilings: Floats
    ) -> Iterator[Result]:
        chunks = [list(numbers[begin : begin + CHUNK]) for begin in range(0, len(numbers), CHUNK)]
        done = 0
        if not self._broken:
            try:
                futures = [submit(self._executor, _several, function, chunk, multipliers, ceilings) for chunk in chunks]
                for future in futures:
                    found = future.result()
                    done += 1
                    yield from found
            except BrokenProcessPool:
                self._broken = True
        for chunk in chunks[done:]:
            for number in chunk:
                yield function(self._space, number, multipliers, ceilings)


@contextmanager
def workers(space: Runs) -> Iterator[Pool | None]:
    """Two processes where there are processors and enough to do; None: this process does it."""
    jobs = min(MAX_JOBS, cpu_count() or 1)
    if jobs < 2 or len(space.runs) < WORTH_IT:
        yield None
        return
    with processes(jobs, _hold, space) as executor:
        yield Pool(space, executor)


def _hold(space: Runs) -> None:
    _held[:] = [space]


def _several(
    function: Callable[[Runs, int, Floats, Floats], Result], numbers: list[int], multipliers: Floats, ceilings: Floats
) -> list[Result]:
    return [function(_held[0], number, multipliers, ceilings) for number in numbers]


def _part(space: Runs, number: int, multipliers: Floats, ceilings: Floats) -> Part:
    return space.part(number, multipliers, ceilings)


def _correction(space: Runs, number: int, multipliers: Floats, ceilings: Floats) -> float:
    return space.correction(number, multipliers, ceilings)
