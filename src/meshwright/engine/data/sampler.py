"""Micro-batches of packed samples for a ``DataLoader``: every rank computes the same packing, and takes its part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Sampler

from meshwright.errors import InputError, fault
from meshwright.packing import Cost, Oversize, pack, prepared
from meshwright.packing.lengths import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks


class PackedBatchSampler(Sampler[list[int]]):
    """Indices of the samples of one micro-batch after the other, for ``DataLoader(batch_sampler=..., collate_fn=collate_packed)``.

    An optimizer step has ``global_batch`` samples, on all ranks together; its micro-batches have at most ``max_tokens`` tokens, and
    each rank has as many of them: ``microbatches_of(step)``. Nothing is asked of other ranks: lengths, seed and epoch say it all.

    Units:   lengths and limit in tokens, ``[samples]``.
    Holds:   the same seed gives the same epochs, whatever is resumed where.
    Errors:  ``InputError`` for lengths, limits and ranks that make no sense.
    """

    def __init__(
        self, lengths: Sequence[int] | NDArray[np.int64], max_tokens: int, *, global_batch: int, rank: int = 0,
        data_parallel: int = 1, cost: Cost | None = None, shuffle: bool = True, seed: int = 0, drop_last: bool = True,
        multiple: int = 1, align: int = 1, oversize: Oversize = "error",
    ) -> None:
        self.lengths = prepared(lengths, 1, oversize="alone")
        global_batch, data_parallel = whole(global_batch, "global_batch"), whole(data_parallel, "data_parallel")
        if not 0 <= rank < data_parallel:
            raise fault("sampler.rank", "rank {rank} of {ranks} ranks", rank=rank, ranks=data_parallel)
        if not data_parallel <= global_batch <= len(self.lengths):
            raise fault("sampler.batch", "a step of {batch:,} samples: at least {ranks:,}, one a rank, and at most the {samples:,} "
                        "there are", batch=global_batch, ranks=data_parallel, samples=len(self.lengths))
        self.max_tokens, self.global_batch, self.rank, self.data_parallel = max_tokens, global_batch, rank, data_parallel
        self.cost, self.shuffle, self.seed, self.drop_last = cost, shuffle, seed, drop_last
        self.multiple, self.align, self.oversize = multiple, align, oversize
        self.epoch, self.step, self.microbatch = 0, 0, 0
        self._packed: tuple[tuple[int, int], Ranks] | None = None
        self._count: int | None = None
        self._shuffled: tuple[tuple[int, int], NDArray[np.int64]] | None = None
        self._step_packing(0)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch; samples behind the last whole one are left out, or are a smaller step."""
        whole, rest = divmod(len(self.lengths), self.global_batch)
        return whole + int(not self.drop_last and rest >= self.data_parallel)

    def samples_of(self, step: int) -> NDArray[np.int64]:
        """Samples of a step of this epoch, all ranks together."""
        start = step * self.global_batch
        return self._order()[start : start + self.global_batch]

    def microbatches_of(self, step: int) -> int:
        """Micro-batches of this rank in a step, and of every other."""
        return len(self._step_packing(step))

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: another order, from its start. Where the sampler stands within that epoch, it stays there."""
        if epoch != self.epoch:
            self.epoch, self.step, self.microbatch, self._count = epoch, 0, 0, None

    def state_dict(self, *, steps: int | None = None) -> dict[str, int]:
        """Where the sampler stands. ``steps``: of this epoch that were trained, where workers of a loader have asked for more."""
        here = (self.step, self.microbatch) if steps is None else (steps, 0)
        return {"epoch": self.epoch, "step": here[0], "microbatch": here[1], "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where a sampler of the same lengths stood, on any number of ranks if at the start of a step.

        Errors:  ``InputError`` for what no sampler has said, and for a place that the epoch does not have; it stays where it was.
        """
        names = ("seed", "epoch", "step", "microbatch")
        if not isinstance(state, dict) or any(not hasattr(state.get(name), "__index__") or state[name] < 0 for name in names):
            raise fault("sampler.state-kind", "the state of a sampler has whole numbers {names}", names=", ".join(names))
        before = self.seed, self.epoch, self.step, self.microbatch
        try:
            self._stand(*(int(state[name]) for name in names))
        except InputError:
            self._stand(*before)
            raise

    def _stand(self, seed: int, epoch: int, step: int, microbatch: int) -> None:
        self.seed, self.epoch, self.step, self.microbatch = seed, epoch, step, microbatch
        self._packed = self._count = None
        here = self.step < self.steps_per_epoch and self.microbatch <= self.microbatches_of(self.step)
        if not here and (self.step, self.microbatch) != (self.steps_per_epoch, 0):
            raise fault("sampler.state", "step {step:,}, micro-batch {place:,}: the epoch has {steps:,} steps", step=self.step,
                        place=self.microbatch, steps=self.steps_per_epoch)

    def __iter__(self) -> Iterator[list[int]]:
        """Micro-batches of this rank to the end of the epoch, from where it stands; then it stands at the start of the next."""
        while self.step < self.steps_per_epoch:
            mine = self._step_packing(self.step)
            while self.microbatch < len(mine):
                self.microbatch += 1
                yield mine[self.microbatch - 1]
            self.step, self.microbatch = self.step + 1, 0
        self.set_epoch(self.epoch + 1)

    def __len__(self) -> int:
        """Micro-batches of this rank in the whole epoch."""
        if self._count is None:
            self._count = sum(self.microbatches_of(step) for step in range(self.steps_per_epoch))
        return self._count

    def _order(self) -> NDArray[np.int64]:
        """The samples of this epoch."""
        if not self.shuffle:
            return np.arange(len(self.lengths))
        key = self.seed, self.epoch
        if self._shuffled is None or self._shuffled[0] != key:
            self._shuffled = key, np.random.default_rng(key).permutation(len(self.lengths))
        return self._shuffled[1]

    def _step_packing(self, step: int) -> list[list[int]]:
        """Micro-batches of this rank in a step."""
        if self._packed is None or self._packed[0] != (self.epoch, step):
            samples = self.samples_of(step)
            asked: dict[str, Any] = {"multiple": self.multiple, "align": self.align, "oversize": self.oversize}
            ranks = pack(self.lengths[samples], self.max_tokens, self.data_parallel, self.cost, **asked)
            self._packed = (self.epoch, step), [[samples[each].tolist() for each in rank] for rank in ranks]
        return self._packed[1][self.rank]
