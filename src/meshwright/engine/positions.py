"""Positions: rotary embedding, ALiBi slopes, and which tokens may look at which."""

from __future__ import annotations

from math import log2

import torch
from torch import Tensor


def rotate(x: Tensor, *, base: float, ratio: float = 1.0, first: int = 0) -> Tensor:
    """Rotary embedding of the leading share of a head.

    Shapes:  ``[batch, heads, tokens, width]`` -> the same; ``first`` is the position of the first token.
    Source:  Su et al. 2021 (arXiv 2104.09864), in the halves of GPT-NeoX.
    """
    width = int(x.shape[-1] * ratio) // 2 * 2
    turned, kept = x[..., :width], x[..., width:]
    steps = torch.arange(0, width, 2, device=x.device, dtype=torch.float32)
    places = torch.arange(first, first + x.shape[2], device=x.device, dtype=torch.float32)
    angles = torch.outer(places, base ** (-steps / width))
    cosine, sine = (torch.cat([each, each], dim=-1).to(x.dtype) for each in (angles.cos(), angles.sin()))
    one, other = turned.chunk(2, dim=-1)
    result = turned * cosine + torch.cat([-other, one], dim=-1) * sine
    return result if not kept.shape[-1] else torch.cat([result, kept], dim=-1)


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
