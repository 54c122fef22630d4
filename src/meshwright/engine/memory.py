"""Memory of a rank by category: exact where tensors can be counted, by hooks or by the allocator where not."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from meshwright.engine.optimizer import local

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshwright.engine.step import Trainer


class Saved:
    """Bytes that autograd keeps for the backward pass: now, and at most. Parameters and what shares their memory do not count."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self._held: dict[int, int] = {}
        self.bytes = self.peak_bytes = 0

    def keep(self, tensor: Tensor) -> _Kept:
        """What autograd holds in place of a tensor; its memory counts until the last one that shares it is gone."""
        kept = _Kept(tensor)
        whole = _inner(tensor).untyped_storage()
        address, size = whole.data_ptr(), whole.nbytes()
        if address not in self._known:
            if not self._held.get(address):
                self.bytes += size
                self.peak_bytes = max(self.peak_bytes, self.bytes)
            self._held[address] = self._held.get(address, 0) + 1
            weakref.finalize(kept, self._release, address, size)
        return kept

    def _release(self, address: int, size: int) -> None:
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]
            self.bytes -= size


def _inner(tensor: Tensor) -> Tensor:
    """The tensor that has the memory: distributed ones and those that still arrive wrap it."""
    while is_traceable_wrapper_subclass(tensor):
        tensor = getattr(tensor, tensor.__tensor_flatten__()[0][0])
    return tensor


class _Kept:
    """A saved tensor that one can wait for."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@contextmanager
def saved_bytes(trainer: Trainer) -> Iterator[Saved]:
    """Count what the forward passes inside keep. Slows them down: not for measured steps.

    Holds:   gathered parameters of sharded modules count where they are saved, for they live as long.
    """
    counted = Saved(trainer.own_parameters())
    with torch.autograd.graph.saved_tensors_hooks(counted.keep, lambda kept: kept.tensor):
        yield counted


def bytes_of(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of this rank's elements."""
    return sum(local(each).numel() * each.element_size() for each in tensors if each is not None)
