"""Dense feed-forward blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from meshwright.domain.model import Mlp


class FeedForward(nn.Module):
    """A dense feed-forward block: gated with SiLU, or two matrices with GELU."""

    def __init__(self, hidden: int, block: Mlp) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, block.width, bias=block.bias)
        self.gate = nn.Linear(hidden, block.width, bias=block.bias) if block.gated else None
        self.down = nn.Linear(block.width, hidden, bias=block.bias)

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, tokens, hidden]`` -> the same."""
        inner = functional.gelu(self.up(x)) if self.gate is None else functional.silu(self.gate(x)) * self.up(x)
        out: Tensor = self.down(inner)
        return out
