"""Blocks of calls of one job on all ranks together, until the interval of their median is tight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.domain.sample import Sample
from meshwright.engine.profile.benches import BENCHES
from meshwright.engine.profile.statistics import FEWEST_BLOCKS, median_interval, tight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.engine.profile.bench import Bench, Place, Timed
    from meshwright.engine.profile.jobs import Job
    from meshwright.engine.profile.request import Care

MOST_BLOCKS = 64
MOST_CALLS = 100_000
MOST_QUEUED_CALLS = 100
"""Of a block that an accelerator's events time: a call is ten kernels at most, and a queue holds about a thousand."""
WARM_S = 2e-3
"""What the calls that tell how many make a block take at least, together."""
HEADROOM_RATIO = 1.5
"""An accelerator is kept busy that much longer than the host took for as many calls, launched and done, in the warm-up."""


@dataclass(slots=True, eq=False)
class _Loop:
    """Calls of one part in turn; what each returned is kept until its turn comes again."""

    timed: Timed
    calls: int = 1
    launch_s: float = 0.0
    _turn: int = 0
    _kept: list[object] = field(default_factory=list)

    def run(self) -> None:
        copies, turn = self.timed.copies, self._turn
        if not self._kept:
            self._kept = [None] * len(copies)
        for _ in range(self.calls):
            self._kept[turn] = copies[turn]()
            turn = (turn + 1) % len(copies)
        self._turn = turn


class Timing:
    """One job being timed; every rank does the same at the same time, and decides by the same figures."""

    def __init__(self, place: Place, job: Job, care: Care, *, load: float) -> None:
        self.place, self.job, self.care, self.load = place, job, care, load
        self.bench: Bench = BENCHES[job.bench](place, job.arguments)
        self._loops = {name: _Loop(timed) for name, timed in self.bench.parts.items()}
        self.blocks: list[dict[str, float]] = []
        self.spent_s = 0.0
        self._warm_up()

    def _warm_up(self) -> None:
        """Every copy once, then as many calls as tell how many make a block."""
        for loop in self._loops.values():
            loop.calls = len(loop.timed.copies)
            loop.run()
            loop.calls = 1
        while True:
            times = self._slowest([self._seconds(loop, host=True) for loop in self._loops.values()])
            short = [
                loop for loop, each in zip(self._loops.values(), times, strict=True) if each < WARM_S and loop.calls < MOST_CALLS
            ]
            if not short:
                break
            for loop in short:
                loop.calls *= 4
        most = MOST_CALLS if self.bench.host or self.place.device.type == "cpu" else MOST_QUEUED_CALLS
        for loop, seconds in zip(self._loops.values(), times, strict=True):
            one_s = seconds / loop.calls
            loop.calls = max(1, min(round(self.care.block_s / one_s), most))
            loop.launch_s = HEADROOM_RATIO * one_s * loop.calls

    def block(self) -> None:
        """Time one block of every part."""
        times = self._slowest([self._seconds(loop, host=self.bench.host) for loop in self._loops.values()])
        self.spent_s += sum(times)
        self.blocks.append(
            {name: each / loop.calls / loop.timed.units for (name, loop), each in zip(self._loops.items(), times, strict=True)}
        )

    def done(self, limit_s: float) -> bool:
        """Whether more blocks are not needed, or not to be paid for; ``limit_s`` of each part."""
        if len(self.blocks) < FEWEST_BLOCKS:
            return False
        return (
            len(self.blocks) >= MOST_BLOCKS
            or self.spent_s >= limit_s * len(self._loops)
            or tight(self._values(), self.care.tolerance)
        )

    def sample(self) -> Sample:
        """What was found."""
        values = self._values()
        middle, low, high = median_interval(values)
        parts = {name: median_interval([block[name] for block in self.blocks])[0] for name in self._loops}
        return Sample(
            bench=self.job.bench, arguments=dict(self.job.arguments), busy_ranks=self.place.world.ranks, seconds=middle, low_s=low,
            high_s=high, best_s=min(values), worst_s=max(values), blocks=len(values),
            calls=next(iter(self._loops.values())).calls, values=dict(self.bench.values(parts)), load=self.load,
        )

    def _values(self) -> list[float]:
        return [self.bench.seconds(block) for block in self.blocks]

    def _seconds(self, loop: _Loop, *, host: bool) -> float:
        clock = self.place.clock
        if self.place.world.ranks > 1:
            dist.barrier()
        return clock.host_s(loop.run) if host else clock.device_s(loop.run, lead_s=loop.launch_s)

    def _slowest(self, times: Sequence[float]) -> list[float]:
        """The same figures on every rank: of each the greatest."""
        if self.place.world.ranks == 1:
            return list(times)
        return greatest(self.place, times)


def greatest(place: Place, values: Sequence[float]) -> list[float]:
    """Of each figure the greatest of any rank."""
    tensor = torch.tensor(values, dtype=torch.float64, device=place.device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return [float(each) for each in tensor]


def time_together(timings: Sequence[Timing], limit_s: float, finished: Callable[[Timing], None]) -> None:
    """Block after block of each in turn, so that what changes on the machine meets all of them; ``limit_s``: of each."""
    waiting = list(timings)
    while waiting:
        for timing in list(waiting):
            timing.block()
            if timing.done(limit_s):
                waiting.remove(timing)
                finished(timing)
