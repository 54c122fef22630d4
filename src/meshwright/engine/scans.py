"""Recurrences of linear mixers in chunks, and what stands around them, as pure functions of tensors in FP32 (or FP64)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

NORM_FLOOR = 1e-6
"""What the length of a query or key is kept above."""


def wide(x: Tensor) -> Tensor:
    """In FP32, or as it is where it is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def causal_convolution(x: Tensor, taps: Tensor, bias: Tensor | None) -> Tensor:
    """SiLU of a convolution of every channel over the tokens before and at each place.

    Shapes:  x ``[batch, tokens, channels]``, taps ``[channels, taps]``, bias ``[channels]`` -> as x.
    """
    behind = functional.pad(wide(x).transpose(1, 2), (taps.shape[1] - 1, 0))
    out = functional.conv1d(behind, wide(taps)[:, None], None if bias is None else wide(bias), groups=x.shape[2])
    return functional.silu(out).transpose(1, 2).to(x.dtype)


def gated_norm(x: Tensor, gate: Tensor, weight: Tensor, *, epsilon: float, gate_first: bool) -> Tensor:
    """RMS norm over the last dimension of x, gated by SiLU behind it (gated delta net) or in front of it (Mamba-2).

    Shapes:  x, gate ``[..., width]``; weight broadcasts over x.
    """
    out, opened = wide(x), functional.silu(wide(gate))
    if gate_first:
        out = out * opened
    out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + epsilon) * weight
    return (out if gate_first else out * opened).to(x.dtype)


def _chunked(x: Tensor, chunk: int) -> Tensor:
    """``[batch, heads, tokens, ...]`` -> ``[batch, heads, chunks, chunk, ...]``, zeros behind the last token."""
    missing = -x.shape[2] % chunk
    if missing:
        x = torch.cat([x, x.new_zeros(*x.shape[:2], missing, *x.shape[3:])], dim=2)
    return x.reshape(*x.shape[:2], -1, chunk, *x.shape[3:])


def _decays(steps: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of decay step by step ``[..., chunk]`` -> their sums, and the decay from one place to a later one (else zero)."""
    sums = steps.cumsum(-1)
    later = torch.ones(steps.shape[-1], steps.shape[-1], dtype=torch.bool, device=steps.device).tril()
    between = (sums[..., :, None] - sums[..., None, :]).masked_fill(~later, float("-inf")).exp()
    return sums, between


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, strength: Tensor, step: Tensor, rate: Tensor, step_bias: Tensor, *, chunk: int
) -> Tensor:
    """Gated delta rule: S <- a (I - b k k') S + b k v', out S' q, with b = sigmoid(strength), a = exp(-exp(rate) softplus(step)).

    In chunks by the WY form: what the tokens of a chunk write is solved for at once (unit triangular system).

    Shapes:  query, key ``[batch, tokens, key heads, key width]``, value ``[batch, tokens, heads, width]``, strength, step
             ``[batch, tokens, heads]``, rate, step_bias ``[heads]`` -> as value.
    Source:  Yang et al. 2024 (arXiv 2412.06464) section 3; transformers Qwen3NextGatedDeltaNet is what it is held to.
    """
    dtype, tokens, times = value.dtype, value.shape[1], value.shape[2] // key.shape[2]
    decay = -wide(rate).exp() * functional.softplus(wide(step) + step_bias)
    beta = wide(strength.sigmoid())
    query, key = (each * torch.rsqrt(each.square().sum(-1, keepdim=True) + NORM_FLOOR) for each in (wide(query), wide(key)))
    query, key = (each.repeat_interleave(times, dim=2) for each in (query * query.shape[-1] ** -0.5, key))
    query, key, value, beta, decay = (
        _chunked(each.transpose(1, 2), chunk) for each in (query, key, wide(value), beta[..., None], decay)
    )
    sums, between = _decays(decay)
    begun, left = sums.exp()[..., None], (sums[..., -1:] - sums).exp()[..., None]
    among = (key * beta) @ key.transpose(-1, -2) * between
    one = torch.eye(chunk, dtype=key.dtype, device=key.device).expand_as(among)
    solved = torch.linalg.solve_triangular(among, one, upper=False, unitriangular=True)
    written, read = solved @ (value * beta), solved @ (key * beta * begun)
    scores = query @ key.transpose(-1, -2) * between
    query, key = query * begun, (key * left).transpose(-1, -2)
    state = value.new_zeros(*value.shape[:2], key.shape[-2], value.shape[-1])
    ends, outs = sums[..., -1].exp()[..., None, None], []
    for number in range(value.shape[2]):
        fresh = written[:, :, number] - read[:, :, number] @ state
        outs.append(query[:, :, number] @ state + scores[:, :, number] @ fresh)
        state = state * ends[:, :, number] + key[:, :, number] @ fresh
    return torch.cat(outs, dim=2)[:, :, :tokens].transpose(1, 2).to(dtype)


def state_space(
    x: Tensor, step: Tensor, inward: Tensor, outward: Tensor, rate: Tensor, step_bias: Tensor, skip: Tensor, *, chunk: int
) -> Tensor:
    """Mamba-2: S <- a S + d B x', out S' C + D x, with d = softplus(step), a = exp(-exp(rate) d); state-space dual form in chunks.

    Shapes:  x ``[batch, tokens, heads, width]``, step ``[batch, tokens, heads]``, inward (B), outward (C)
             ``[batch, tokens, groups, state]``, rate, step_bias, skip ``[heads]`` -> as x.
    Source:  Dao and Gu 2024 (arXiv 2405.21060) section 6; transformers NemotronHMamba2Mixer is what it is held to.
    """
    dtype, tokens, times = x.dtype, x.shape[1], x.shape[2] // inward.shape[2]
    moved = functional.softplus(wide(step) + step_bias)
    decay, straight = -wide(rate).exp() * moved, wide(x) * skip[:, None]
    values, inward, outward, decay = (
        _chunked(each.transpose(1, 2), chunk) for each in (wide(x) * moved[..., None], wide(inward), wide(outward), decay)
    )
    sums, between = _decays(decay)
    scores = (outward @ inward.transpose(-1, -2)).repeat_interleave(times, dim=1) * between
    inside = scores @ values
    left, begun = (sums[..., -1:] - sums).exp()[..., None], sums.exp()[..., None]
    added = (inward.repeat_interleave(times, dim=1) * left).transpose(-1, -2) @ values
    ends, states = sums[..., -1].exp()[..., None, None], [torch.zeros_like(added[:, :, 0])]
    for number in range(added.shape[2] - 1):
        states.append(states[-1] * ends[:, :, number] + added[:, :, number])
    across = (outward.repeat_interleave(times, dim=1) * begun) @ torch.stack(states, dim=2)
    out = (inside + across).flatten(2, 3)[:, :, :tokens].transpose(1, 2)
    return (out + straight).to(dtype)
