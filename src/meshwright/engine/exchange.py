"""Everybody sends everybody their part, with gradients that travel back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.distributed.nn.functional import all_to_all_single

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.distributed import ProcessGroup


def exchange(x: Tensor, group: ProcessGroup, received: Sequence[int] | None = None, sent: Sequence[int] | None = None) -> Tensor:
    """Rows of ``x`` to the ranks of a group in order, and theirs back: equal parts, or ``sent`` and ``received`` rows by rank."""
    rows = x.shape[0] if received is None else sum(received)
    out: Tensor = all_to_all_single(  # type: ignore[no-untyped-call]
        torch.empty((rows, *x.shape[1:]), dtype=x.dtype, device=x.device), x, received, sent, group=group
    )
    return out
