"""Faults, put into a run from outside: no word of them reaches the record but what they do."""

from __future__ import annotations

import gc
from dataclasses import replace
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from benchmarks.faults.device import BACKWARD
from meshwright.engine import measure, step
from meshwright.engine.record import collectives
from meshwright.engine.record.recorder import dimensions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.faults.draw import Case
    from meshwright.engine.data import Sample
    from meshwright.engine.request import Request
    from meshwright.engine.step import Trainer

SKIPPED_STEP = 4
PAUSES = 3
"""A collection of garbage every so many steps."""
SYNCHRONISED = 4
"""Values asked for in each step."""
THREADS = 8
PROCESS_BYTES = 300 * 2**20
"""What a rank of the reference step takes: a leak is a share of it."""


class Fault:
    """One fault on this rank."""

    def __init__(self, case: Case, forward_s: float, request: Request) -> None:
        self.case, self.request = case, request
        self.healthy_s: list[float] = []
        self.begun_s = 0.0
        self.forward_s, self.device_s = forward_s, 0.0
        self.here = dist.get_rank() == case.rank
        self.steps = -1
        self.dimensions: dict[str, str] = {}
        self.kept: list[Any] = []

    @property
    def ill(self) -> bool:
        """Whether the fault has begun: with the first step that counts."""
        return self.steps >= self.request.options.warmup_steps

    @property
    def lost_s(self) -> float:
        """Seconds that a step is longer by: ``intensity`` of what it then takes, by the steps before the fault."""
        if not self.ill:
            return 0.0
        return self.case.intensity / (1.0 - self.case.intensity) * min(self.healthy_s)

    def slower(self) -> float:
        """How many times longer this rank's layers last."""
        slow = self.case.kind == "slow-rank" or (self.case.kind == "wrong-threads" and self.case.variant)
        return 1.0 + self.lost_s / self.device_s if slow and self.here else 1.0

    def on(self, trainer: Trainer) -> None:
        """Put it in place."""
        self.dimensions = dimensions_of(trainer)
        layers = sum(len(part.blocks) for part in trainer.parts)  # type: ignore[arg-type]
        self.device_s = self.forward_s * (1.0 + BACKWARD) * layers * trainer.layout.num_microbatches
        self._each_step(lambda: None)
        getattr(self, "_" + self.case.kind.replace("-", "_"), lambda _: None)(trainer)

    def _each_step(self, does: Callable[[], None], *, within: Callable[[Any], Any] = lambda sample: sample) -> None:
        """Something when the data of a step are made; ``within`` changes them."""
        before = measure.sample_of

        def sample_of(trainer: Trainer, number: int) -> Sample:
            now = perf_counter()
            if 1 <= self.steps < self.request.options.warmup_steps and number != self.steps:
                self.healthy_s.append(now - self.begun_s)
            if number != self.steps:
                self.begun_s = now
            self.steps = number
            does()
            return within(before(trainer, number))  # type: ignore[no-any-return]

        measure.sample_of = sample_of

    def _in_forward(self, trainer: Trainer, does: Callable[[], Any]) -> None:
        """Something once a step, in the first forward pass of a layer."""
        done = [-1]

        def hook(*_: Any) -> None:
            if done[0] != self.steps:
                done[0] = self.steps
                does()

        next(iter(trainer.parts[0].blocks.values())).register_forward_pre_hook(hook)  # type: ignore[union-attr, operator]

    def _starved_loader(self, _: Trainer) -> None:
        self._each_step(lambda: sleep(self.lost_s))

    def _synchronising_calls(self, trainer: Trainer) -> None:
        """Values of tensors are asked for, and each time the queue of the device drains."""
        item, value = torch.Tensor.item, torch.zeros(())

        def drained(tensor: Any) -> Any:
            if tensor is value:
                sleep(self.lost_s / SYNCHRONISED)
            return item(tensor)

        torch.Tensor.item = drained  # type: ignore[method-assign]
        self._in_forward(trainer, lambda: [value.item() for _ in range(SYNCHRONISED)])

    def _crossed_tp(self, _: Trainer) -> None:
        self._slow_links("tp")

    def _throttled_link(self, _: Trainer) -> None:
        self._slow_links(self.case.dimension)

    def _slow_links(self, dimension: str) -> None:
        """Exchanges of a dimension take longer, each by its part of the loss; how many there are the first step tells."""
        real, counts = collectives.hand_on, {"here": 0}

        def hand_on(operator: Any, keys: Any, given: Any, more: Any, call: Any) -> Any:
            if call.operation != "receive" and self._is_of(call.group, dimension):
                if self.steps < 1:
                    counts["here"] += 1
                elif self.ill:
                    sleep(self.lost_s / counts["here"])
            return real(operator, keys, given, more, call)

        collectives.hand_on = hand_on

    def _is_of(self, group: str, dimension: str) -> bool:
        return self.dimensions.get(group.partition(":")[0]) == dimension

    def _padding_waste(self, _: Trainer) -> None:
        def padded(sample: Sample) -> Sample:
            if not self.ill:
                return sample
            targets = sample.targets.clone()
            tokens = targets.shape[1]
            targets[:, tokens - max(1, round(self.case.intensity * tokens)) :] = -100
            return replace(sample, targets=targets)

        self._each_step(lambda: None, within=padded)

    def _late_collective(self, _: Trainer) -> None:
        """This rank comes late to one exchange of each step: that of the mean loss, or the first of a dimension."""
        if not self.here:
            return
        if self.case.variant:
            mean = step.mean_over_ranks

            def late_mean(trainer: Trainer, loss: Any) -> float:
                sleep(self.lost_s)
                return mean(trainer, loss)

            step.mean_over_ranks = late_mean
            return
        call, done = collectives.Watched._call, [-1]

        def late(watched: Any, operation: str, given: Any) -> Any:
            if done[0] != self.steps and self._is_of(collectives.group_of(given).group_name, self.case.dimension):
                done[0] = self.steps
                sleep(self.lost_s)
            return call(watched, operation, given)

        collectives.Watched._call = late  # type: ignore[method-assign]

    def _missing_collective(self, _: Trainer) -> None:
        mean = step.mean_over_ranks

        def some(trainer: Trainer, loss: Any) -> float:
            return 0.0 if self.here and self.steps == SKIPPED_STEP else mean(trainer, loss)

        step.mean_over_ranks = some

    def _memory_leak(self, trainer: Trainer) -> None:
        each = int(self.case.intensity * PROCESS_BYTES / self.request.options.steps)
        self._in_forward(trainer, lambda: self.kept.append(torch.ones(each // 4)) if self.ill else None)

    def _gc_pauses(self, trainer: Trainer) -> None:
        """Cycles whose finalizers take their time, collected every few steps: on all ranks at once, or on each at its own time."""
        own = 0 if self.case.variant else dist.get_rank()

        def collect() -> None:
            if self.ill and (self.steps + own) % PAUSES == 0:
                _Cycle(PAUSES * self.lost_s)
                gc.collect()

        self._in_forward(trainer, collect)

    def _recompiles(self, trainer: Trainer) -> None:
        """A compiled function is given another shape each step."""
        torch._dynamo.config.recompile_limit = 64

        def compiler(graph: Any, _: Any) -> Any:
            sleep(self.lost_s)
            return graph.forward

        double = torch.compile(lambda x: x * 2.0, backend=compiler, dynamic=False)
        self._in_forward(trainer, lambda: double(torch.ones(10 + self.steps)) if self.ill else None)

    def _wrong_threads(self, _: Trainer) -> None:
        """All ranks take many more threads than there are cores, or one rank others than it was to, and is slower by it."""
        if not self.case.variant or self.here:
            torch.set_num_threads(THREADS)  # from the beginning, as an environment would have it


class _Cycle:
    """Garbage whose end takes time."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s, self.own = takes_s, self

    def __del__(self) -> None:
        sleep(self.takes_s)
