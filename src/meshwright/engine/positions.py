"""Positions: rotary embedding, ALiBi slopes, and which tokens may look at which."""

from __future__ import annotations

from math import log2
from typing import Any

import torch
from torch import Tensor


def rotate(x: Tensor, *, base: float, ratio: float = 1.0, first: int = 0) -> Tensor:
    """Rotary embedding of the leading share of a head.

    Shapes:  ``[batch, heads, tokens, width]`` -> the same; ``first`` is the position of the first token.
    Holds:   keeps nothing for the backward pass, which turns the gradient the other way.
    Source:  Su et al. 2021 (arXiv 2104.09864), in the halves of GPT-NeoX.
    """
    width = int(x.shape[-1] * ratio) // 2 * 2
    turned, kept = x[..., :width], x[..., width:]
    result: Tensor = _Turn.apply(turned, base, first)  # type: ignore[no-untyped-call]
    return result if not kept.shape[-1] else torch.cat([result, kept], dim=-1)


class _Turn(torch.autograd.Function):
    """Every pair of elements turned by its position."""

    @staticmethod
    def forward(context: Any, x: Tensor, base: float, first: int) -> Tensor:
        context.base, context.first = base, first
        return _turned(x, base, first, 1.0)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _turned(gradients[0], context.base, context.first, -1.0), None, None


def _turned(x: Tensor, base: float, first: int, sign: float) -> Tensor:
    width = x.shape[-1]
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    steps = torch.arange(0, width, 2, device=x.device, dtype=exact)
    places = torch.arange(first, first + x.shape[2], device=x.device, dtype=exact)
    angles = torch.outer(places, base ** (-steps / width))
    cosine, sine = (torch.cat([each, each], dim=-1).to(x.dtype) for each in (angles.cos(), sign * angles.sin()))
    one, other = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-other, one], dim=-1) * sine


def alibi_slopes(heads: int, device: torch.device) -> Tensor:
    """Slope of every head.

    Source:  Press et al. 2021 (arXiv 2108.12409): powers of 2^(-8/n), for n no power of two with those of 2n in between.
    """
    whole = 2 ** int(log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / whole) for i in range(whole)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / whole) for i in range(heads - whole)]
    return torch.tensor(slopes, device=device)


def allowed(tokens: int, window: int | None, documents: Tensor | None, device: torch.device) -> Tensor:
    """Which token may attend to which: ``[tokens, tokens]``, or ``[batch, 1, tokens, tokens]`` with packed documents."""
    place = torch.arange(tokens, device=device)
    distance = place[:, None] - place[None, :]
    mask = distance >= 0
    if window is not None:
        mask = mask & (distance < window)
    if documents is not None:
        mask = mask & (documents[:, None, :, None] == documents[:, None, None, :])
    return mask
