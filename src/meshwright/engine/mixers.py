"""Linear mixers as PyTorch modules: gated delta nets and Mamba-2 layers. Projections, convolution, recurrence, gated norm, output.

Convolution, recurrence and norm keep their inputs alone, as the fused kernels of frameworks do (``kernels``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from meshwright.domain.mixers import GatedDelta, Mamba2
from meshwright.engine.kernels import fused
from meshwright.engine.norms import EPSILON
from meshwright.engine.scans import causal_convolution, delta_rule, gated_norm, state_space

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from meshwright.domain.mixers import Mixer

BUILT = (GatedDelta, Mamba2)
"""Mixers that there are modules of."""


def whole_here(parameter: Tensor) -> Tensor:
    """This rank's values of a parameter; where every tensor rank has all of it, its gradient is a part that is summed later."""
    if not isinstance(parameter, DTensor):
        return parameter
    return parameter.to_local(grad_placements=[Partial() if isinstance(each, Replicate) else each for each in parameter.placements])


class Convolution(nn.Module):
    """A causal convolution of each channel, and SiLU."""

    initial_scale = 25.0
    """Taps are of the order of one half at first: channels come through, and a wrong slice of them shows."""

    def __init__(self, channels: int, taps: int, *, bias: bool = False) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.empty(channels, taps))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, tokens, channels]`` -> the same."""
        return fused(causal_convolution, x, whole_here(self.taps), None if self.bias is None else whole_here(self.bias))


class GatedNorm(nn.RMSNorm):
    """An RMS norm with a gate behind it, or in front of it over groups of elements (``groups`` of this rank's width)."""

    def __init__(self, width: int, *, group: int = 0) -> None:
        super().__init__(width, eps=EPSILON)
        self.group = group
        """Elements that are normalised together; 0: all of them, the gate behind."""

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:  # type: ignore[override]
        """``[..., width]`` and its gate -> the same."""
        weight = whole_here(self.weight)
        if not self.group:
            return fused(partial(gated_norm, epsilon=EPSILON, gate_first=False), x, gate, weight)
        parts = (each.reshape(*each.shape[:-1], -1, self.group) for each in (x, gate, weight))
        return fused(partial(gated_norm, epsilon=EPSILON, gate_first=True), *parts).flatten(-2)


class GatedDeltaBlock(nn.Module):
    """A gated delta net, as Qwen3-Next has it."""

    COLUMNS = ("query", "key", "value", "gate", "strength", "step")
    SPLIT = ("rate", "step_bias")

    def __init__(self, hidden: int, mixer: GatedDelta) -> None:
        super().__init__()
        self.mixer = mixer
        widths = (mixer.key_width, mixer.key_width, mixer.value_width, mixer.value_width, mixer.value_heads, mixer.value_heads)
        for name, width in zip(self.COLUMNS, widths, strict=True):
            self.add_module(name, nn.Linear(hidden, width, bias=False))
        self.query_taps, self.key_taps = (Convolution(mixer.key_width, mixer.convolution) for _ in range(2))
        self.value_taps = Convolution(mixer.value_width, mixer.convolution)
        self.rate, self.step_bias = (nn.Parameter(torch.empty(mixer.value_heads)) for _ in range(2))
        self.norm = GatedNorm(mixer.value_dim)
        self.output = nn.Linear(mixer.value_width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, tokens, hidden]`` -> the same."""
        mixer = self.mixer
        query, key, value, gate, strength, step = (self.get_submodule(name)(x) for name in self.COLUMNS)
        query, key = (each.unflatten(-1, (-1, mixer.key_dim)) for each in (self.query_taps(query), self.key_taps(key)))
        value, gate = (each.unflatten(-1, (-1, mixer.value_dim)) for each in (self.value_taps(value), gate))
        mixed = fused(
            partial(delta_rule, chunk=mixer.chunk_tokens), query, key, value, strength, step,
            whole_here(self.rate), whole_here(self.step_bias), scan=True,
        )
        out: Tensor = self.output(self.norm(mixed, gate).flatten(-2))
        return out


class Mamba2Block(nn.Module):
    """A Mamba-2 layer, as Nemotron-H has it."""

    COLUMNS = ("gate", "value", "inward", "outward", "step")
    SPLIT = ("rate", "step_bias", "skip")

    def __init__(self, hidden: int, mixer: Mamba2) -> None:
        super().__init__()
        self.mixer = mixer
        widths = (mixer.value_width, mixer.value_width, mixer.key_width, mixer.key_width, mixer.num_heads)
        for name, width in zip(self.COLUMNS, widths, strict=True):
            self.add_module(name, nn.Linear(hidden, width, bias=mixer.bias))
        for name, width in (("value", mixer.value_width), ("inward", mixer.key_width), ("outward", mixer.key_width)):
            self.add_module(f"{name}_taps", Convolution(width, mixer.convolution, bias=mixer.convolution_bias))
        self.rate, self.step_bias, self.skip = (nn.Parameter(torch.empty(mixer.num_heads)) for _ in range(3))
        self.norm = GatedNorm(mixer.value_width, group=mixer.value_width // mixer.num_groups) if mixer.norm else None
        self.output = nn.Linear(mixer.value_width, hidden, bias=mixer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, tokens, hidden]`` -> the same."""
        mixer = self.mixer
        gate, value, inward, outward, step = (self.get_submodule(name)(x) for name in self.COLUMNS)
        value, inward, outward = (
            self.get_submodule(f"{name}_taps")(each).unflatten(-1, (-1, width)) for name, each, width in (
                ("value", value, mixer.head_dim), ("inward", inward, mixer.state_dim), ("outward", outward, mixer.state_dim))
        )
        mixed = fused(
            partial(state_space, chunk=mixer.chunk_tokens), value, step, inward, outward,
            *(whole_here(self.get_parameter(name)) for name in self.SPLIT), scan=True,
        ).flatten(-2)
        done = mixed * nn.functional.silu(gate) if self.norm is None else self.norm(mixed, gate)
        out: Tensor = self.output(done)
        return out


def mixer_block(hidden: int, mixer: Mixer) -> GatedDeltaBlock | Mamba2Block:
    """The module of a mixer."""
    if isinstance(mixer, GatedDelta):
        return GatedDeltaBlock(hidden, mixer)
    assert isinstance(mixer, Mamba2), "others were refused"
    return Mamba2Block(hidden, mixer)


def split_mixers(part: nn.Module, mesh: DeviceMesh) -> None:
    """Weights of mixers that are no products, over tensor ranks by heads, groups and channels; what all heads share is whole."""
    for module in part.modules():
        if isinstance(module, Convolution):
            _split(module, ("taps", "bias"), mesh)
        elif isinstance(module, GatedDeltaBlock | Mamba2Block):
            _split(module, module.SPLIT, mesh)
        elif isinstance(module, GatedNorm):
            _split(module, ("weight",), mesh, whole=not module.group)


def _split(module: nn.Module, names: tuple[str, ...], mesh: DeviceMesh, *, whole: bool = False) -> None:
    placement = Replicate() if whole else Shard(0)
    for name in names:
        parameter = getattr(module, name)
        if parameter is not None:
            setattr(module, name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=None)))
