"""AdamW over this rank's own elements: PyTorch's, on local tensors, so that every mesh of parameters is one case.

Under ZeRO-1 a rank updates its slice of every parameter and gathers the others' slices, layer by layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch.distributed import ProcessGroup

    Owners = Callable[[str], ProcessGroup | None]
    """Name of a parameter -> ranks that share its optimizer state; None: this rank has all of its own."""

LEARNING_RATE = 1e-3
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1


def local(tensor: Tensor) -> Tensor:
    """This rank's elements."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def settle_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum gradients that tensor parallelism left in parts; sharded modules have done so already."""
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and isinstance(parameter, DTensor) and gradient.placements != parameter.placements:
            parameter.grad = gradient.redistribute(placements=parameter.placements)


@dataclass(slots=True, eq=False)
class _Slice:
    """One parameter: all local elements in a row, and the own ones as an optimizer's parameter that shares their memory."""

    parameter: nn.Parameter
    group: ProcessGroup | None
    begin: int = 0
    end: int = 0
    own: Tensor | None = None

    def __post_init__(self) -> None:
        flat = self.flat
        size, place = (1, 0) if self.group is None else (self.group.size(), dist.get_rank(self.group))
        length = -(-flat.numel() // size)
        self.begin, self.end = (min(edge * length, flat.numel()) for edge in (place, place + 1))
        self.own = flat[self.begin : self.end].requires_grad_()

    @property
    def flat(self) -> Tensor:
        return local(self.parameter.detach()).view(-1)

    @property
    def padded(self) -> int:
        """Elements of every rank's slice, the last one filled up."""
        return self.flat.numel() if self.group is None else -(-self.flat.numel() // self.group.size())


class OwnedAdamW:
    """AdamW whose states are this rank's own; ``units``: parameters by name of what is gathered at once, a layer say."""

    def __init__(self, units: Sequence[Sequence[tuple[str, nn.Parameter]]], owners: Owners) -> None:
        self._units = [[_Slice(parameter, owners(name)) for name, parameter in unit] for unit in units]
        own = [piece.own for unit in self._units for piece in unit if piece.own is not None]
        self.inner = torch.optim.AdamW(own, lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)

    def step(self) -> None:
        """Update the own elements, then gather the others'."""
        for unit in self._units:
            for piece in unit:
                gradient = piece.parameter.grad
                assert piece.own is not None, "it is made with the slice"
                piece.own.data = piece.flat[piece.begin : piece.end]  # sharded modules may have moved it
                piece.own.grad = None if gradient is None else local(gradient).reshape(-1)[piece.begin : piece.end]
        self.inner.step()
        self.inner.zero_grad()
        for unit in self._units:
            for group in dict.fromkeys(piece.group for piece in unit if piece.group is not None):
                _gather([piece for piece in unit if piece.group is group], group)

    def states_bytes(self) -> int:
        """Bytes of the moments."""
        states = (value for state in self.inner.state.values() for value in state.values() if isinstance(value, Tensor))
        return sum(value.numel() * value.element_size() for value in states if value.dim())


@torch.no_grad()
def _gather(pieces: Sequence[_Slice], group: ProcessGroup) -> None:
    """Everybody's slices of some parameters, in one exchange."""
    widths = [piece.padded for piece in pieces]
    mine = pieces[0].flat.new_zeros(sum(widths))
    for piece, target in zip(pieces, torch.split(mine, widths), strict=True):
        target[: piece.end - piece.begin] = piece.flat[piece.begin : piece.end]
    everybody = mine.new_empty((group.size(), mine.numel()))
    dist.all_gather_into_tensor(everybody.view(-1), mine, group=group)
    for piece, columns in zip(pieces, torch.split(everybody, widths, dim=1), strict=True):
        flat = piece.flat
        flat.copy_(columns.reshape(-1)[: flat.numel()])
