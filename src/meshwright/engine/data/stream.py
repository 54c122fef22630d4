"""Packed micro-batches of a stream: a bounded number of samples is held, and ranks agree on how many micro-batches they have."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import distributed
from torch.utils.data import IterableDataset

from meshwright.errors import fault
from meshwright.packing import Cost, Oversize, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


class PackedStream(IterableDataset[list[Any]]):
    """Lists of samples, one a micro-batch, of a rank's own stream: ``window`` samples are read, packed and given before the next.

    Ranks read streams of their own, so that they may need unequal numbers of micro-batches; ``agree`` makes one number of them, by
    default the maximum over the process group, and the samples are spread over so many. Where one of the ranks has no whole window
    any more, all end: what is left is not given. One stream is read by one process: with workers, give each its own.

    Units:   tokens.
    Errors:  ``InputError`` where fewer samples are held than micro-batches are agreed on.
    """

    def __init__(
        self, samples: Iterable[T], max_tokens: int, *, window: int, length: Callable[[T], int] = len,  # type: ignore[assignment]
        cost: Cost | None = None, align: int = 1, oversize: Oversize = "error", agree: Callable[[int], int] | None = None,
        group: Any = None,
    ) -> None:
        super().__init__()
        if window < 1:
            raise fault("stream.window", "a window of {window} samples: at least 1 is needed", window=window)
        self.samples, self.max_tokens, self.window, self.length = samples, max_tokens, window, length
        self.cost, self.align, self.oversize, self.group = cost, align, oversize, group
        self.agree = agree or self._most

    def __iter__(self) -> Iterator[list[Any]]:
        """Micro-batches of one window after the other; all ranks have as many windows and as many micro-batches in each."""
        source = iter(self.samples)
        while True:
            held = list(islice(source, self.window))
            whole = len(held) == self.window
            if self.agree(int(not whole)) != 0:  # one of the ranks has no whole window any more
                return
            lengths = np.fromiter(map(self.length, held), dtype=np.int64, count=len(held))
            packed = self._packed(lengths, 1)
            count = self.agree(len(packed))
            if count > len(packed):
                packed = self._packed(lengths, count)
            yield from ([held[item] for item in each] for each in packed)

    def _packed(self, lengths: np.ndarray[Any, np.dtype[np.int64]], count: int) -> list[list[int]]:
        """A window in a multiple of so many micro-batches."""
        return pack(lengths, self.max_tokens, 1, self.cost, multiple=count, align=self.align, oversize=self.oversize)[0]

    def _most(self, number: int) -> int:
        """The largest number of all ranks."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return number
        device = "cuda" if distributed.get_backend(self.group) == "nccl" else "cpu"
        found = torch.tensor([number], device=device)
        distributed.all_reduce(found, op=distributed.ReduceOp.MAX, group=self.group)
        return int(found.item())
