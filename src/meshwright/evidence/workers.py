"""Evaluating the runs of a fit on two processes: each holds all runs and is sent constants alone."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from os import cpu_count
from typing import TYPE_CHECKING

from meshwright.evidence.processes import ignore_interrupts, quiet_interrupts, stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from meshwright.evidence.linear import Part, Runs

MAX_JOBS = 2
WORTH_IT = 300
"""Fewer runs take less time than the start of a process."""
CHUNK = 24
_held: list[Runs] = []


class Pool:
    """Processes that hold the runs; falls back to this process where none can be started."""

    def __init__(self, space: Runs, executor: ProcessPoolExecutor) -> None:
        """Keep both."""
        self._space, self._executor, self._broken = space, executor, False

    def parts(
        self, numbers: Sequence[int], multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]
    ) -> Iterator[tuple[int, Part]]:
        """``Runs.part`` of every number, in their order."""
        chunks = [list(numbers[begin : begin + CHUNK]) for begin in range(0, len(numbers), CHUNK)]
        done = 0
        if not self._broken:
            try:
                with quiet_interrupts():
                    futures = [self._executor.submit(_parts, chunk, multipliers, ceilings) for chunk in chunks]
                for future, chunk in zip(futures, chunks, strict=True):
                    found = future.result()
                    done += 1
                    yield from zip(chunk, found, strict=True)
            except BrokenProcessPool:
                self._broken = True
        for chunk in chunks[done:]:
            for number in chunk:
                yield number, self._space.part(number, multipliers, ceilings)


@contextmanager
def workers(space: Runs) -> Iterator[Pool | None]:
    """Two processes where there are processors and enough to do; None: this process does it."""
    jobs = min(MAX_JOBS, cpu_count() or 1)
    if jobs < 2 or len(space.runs) < WORTH_IT:
        yield None
        return
    executor = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_hold, initargs=(space,))
    try:
        yield Pool(space, executor)
    finally:
        stop(executor)


def _hold(space: Runs) -> None:
    ignore_interrupts()
    _held[:] = [space]


def _parts(numbers: list[int], multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]) -> list[Part]:
    return [_held[0].part(number, multipliers, ceilings) for number in numbers]
