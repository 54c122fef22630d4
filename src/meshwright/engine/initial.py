"""Initial values of parameters: every layout starts from the same numbers, and a rank makes only its own."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from meshwright.engine.experts import Routed

if TYPE_CHECKING:
    from collections.abc import Mapping

DEVIATION = 0.02
TIED = {"head.output.weight": "embedding.tokens.weight"}
"""The name of a parameter that a model with tied embeddings has twice -> the name that counts."""


def fill(module: nn.Module, prefix: str, *, seed: int, device: torch.device, aliases: Mapping[str, str] | None = None) -> None:
    """Give every parameter on the meta device its initial values on ``device``; others are left as they are.

    A value depends on the seed, on the parameter's name in the whole model (``prefix`` + name here) and on its place in it, so that
    one process and any layout start from the same. Parameters that are shared stay shared. ``aliases``: name -> name that is meant.

    Holds:   on one sort of device; another sort draws other numbers.
    """
    made: dict[nn.Parameter, nn.Parameter] = {}
    names = aliases or {}
    for path, owner in module.named_modules():
        for name, parameter in list(owner.named_parameters(recurse=False)):
            if not parameter.is_meta:
                continue
            if parameter not in made:
                full = f"{prefix}.{path}.{name}".replace("..", ".").strip(".")
                made[parameter] = _made(owner, parameter, names.get(full, full), seed, device)
            owner.register_parameter(name, made[parameter])
        for name, buffer in list(owner.named_buffers(recurse=False)):
            if buffer.is_meta:
                owner.register_buffer(name, torch.zeros(buffer.shape, dtype=buffer.dtype, device=device))


def _made(owner: nn.Module, parameter: nn.Parameter, name: str, seed: int, device: torch.device) -> nn.Parameter:
    if isinstance(owner, Routed):
        rows = [_drawn(f"{name}.{owner.first + row}", parameter.shape[1:], seed, device) for row in range(parameter.shape[0])]
        return nn.Parameter(torch.stack(rows))
    values = _drawn(name, parameter.shape, seed, device)
    if isinstance(owner, nn.RMSNorm | nn.LayerNorm) and name.endswith("weight"):
        values = values + 1.0
    values = values * getattr(owner, "initial_scale", 1.0)
    if not isinstance(parameter, DTensor):
        return nn.Parameter(values)
    mesh = parameter.device_mesh
    for dimension, placement in enumerate(parameter.placements):
        if isinstance(placement, Shard):
            pieces = values.chunk(mesh.size(dimension), dim=placement.dim)
            values = pieces[mesh.get_local_rank(dimension)].contiguous()
    own = DTensor.from_local(
        values, mesh, parameter.placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
    )
    return nn.Parameter(own)


def _drawn(name: str, shape: torch.Size, seed: int, device: torch.device) -> Tensor:
    """Normal values of a whole parameter; not zeros or ones anywhere, so that a slice taken from the wrong place shows."""
    generator = torch.Generator(device).manual_seed((seed << 32) + crc32(name.encode()))
    return torch.empty(shape, device=device).normal_(std=DEVIATION, generator=generator)
