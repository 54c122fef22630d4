"""What stands for one fused kernel: it keeps its inputs and nothing else, and computes the rest again in its backward."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Scanning:
    """Whether a recurrence runs now, forward or backward: who counts work asks, for its products are no projections."""

    now = False


def scanning() -> bool:
    """Whether what runs now is the recurrence of a linear mixer."""
    return _Scanning.now


@contextmanager
def _as(scan: bool) -> Iterator[None]:
    before, _Scanning.now = _Scanning.now, scan
    try:
        yield
    finally:
        _Scanning.now = before


class _Fused(torch.autograd.Function):
    """A function of tensors whose inputs alone are kept."""

    @staticmethod
    def forward(context: Any, function: Callable[..., Tensor], scan: bool, *inputs: Tensor | None) -> Tensor:
        """The function's value, without a graph."""
        context.function, context.scan = function, scan
        context.save_for_backward(*inputs)
        with _as(scan):
            return function(*inputs)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The function again, with a graph, and through it."""
        wanted = context.needs_input_grad[2:]
        inputs = [
            each if each is None else each.detach().requires_grad_(needed)
            for each, needed in zip(context.saved_tensors, wanted, strict=True)
        ]
        with torch.enable_grad(), _as(context.scan):
            out = context.function(*inputs)
            asked = [each for each, needed in zip(inputs, wanted, strict=True) if needed and each is not None]
            found = iter(torch.autograd.grad(out, asked, gradient))
        return (None, None, *(next(found) if needed else None for needed in wanted))


def fused(function: Callable[..., Tensor], *inputs: Tensor | None, scan: bool = False) -> Tensor:
    """``function(*inputs)``, of which backward keeps the inputs alone.

    ``scan``: it is the recurrence of a linear mixer.
    """
    result: Tensor = _Fused.apply(function, scan, *inputs)  # type: ignore[no-untyped-call]
    return result
