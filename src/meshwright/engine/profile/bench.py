"""What a benchmark gives to be timed, and what it is given to be built with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from meshwright.engine.profile.clock import Clock
from meshwright.engine.profile.jobs import World

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

Call: TypeAlias = Callable[[], object]
Copies: TypeAlias = Sequence[Call]
"""The same call on tensors of its own each; taken in turn, so that caches hold no more than in a step. What a call returns lives
until its turn comes again, as results of a step do."""

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
SEED_ELEMENTS = 2**16
SPAN_BYTES = {"cpu": 64 * 2**20}
"""Memory that the copies of a call go through together, beyond the caches."""
ACCELERATOR_SPAN_BYTES = 256 * 2**20
MOST_COPIES = 8
LEAST_S = 1e-9
"""What a difference of times counts where noise makes it nothing or less."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timed:
    """One part of a benchmark, and how often its work is in one call."""

    copies: Copies
    units: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """Parts that are timed in turn, and what follows from the seconds of one unit of each."""

    parts: Mapping[str, Timed]
    seconds: Callable[[Mapping[str, float]], float] = lambda parts: next(iter(parts.values()))
    values: Callable[[Mapping[str, float]], Mapping[str, float]] = lambda _: {}
    host: bool = False
    """The host's time is meant, launches and all; otherwise the device's."""


@dataclass(slots=True, eq=False)
class Place:
    """One rank: its device, clock and groups."""

    device: torch.device
    world: World
    clock: Clock = field(init=False)
    seed: Tensor = field(init=False)
    _groups: dict[tuple[int, str], ProcessGroup] = field(default_factory=dict)
    _meshes: dict[int, DeviceMesh] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = Clock(self.device)
        self.seed = torch.randn(SEED_ELEMENTS, device=self.device)

    @property
    def rank(self) -> int:
        """Of all that measure."""
        return dist.get_rank()

    def group(self, size: int, tier: str = "scale_up") -> ProcessGroup:
        """This rank's group of a size; every rank asks for the same ones in the same order."""
        if size == self.world.ranks:
            return dist.group.WORLD  # type: ignore[return-value]
        key = (size, tier)
        if key not in self._groups:
            for members in self.world.groups(size, tier):
                group = dist.new_group(members)
                if self.rank in members:
                    self._groups[key] = group
        return self._groups[key]

    def mesh(self, size: int) -> DeviceMesh:
        """Neighbours as a mesh of one dimension."""
        if size not in self._meshes:
            whole = init_device_mesh(self.device.type, (self.world.ranks // size, size), mesh_dim_names=("outer", "inner"))
            self._meshes[size] = whole["inner"]
        return self._meshes[size]

    def filled(self, *shape: int, dtype: str = "bf16", gradient: bool = False) -> Tensor:
        """Random numbers: few ones repeated, which the work does not notice and which are there at once."""
        count = prod(shape)
        flat = self.seed.to(DTYPES[dtype]).repeat(-(-count // SEED_ELEMENTS))[:count]
        return flat.clone().view(shape).requires_grad_(gradient)

    def copies(self, build: Callable[[], Call], own_bytes: float) -> Copies:
        """As many copies of a call as go beyond the caches, each of which has so many bytes of its own."""
        span = SPAN_BYTES.get(self.device.type, ACCELERATOR_SPAN_BYTES)
        return [build() for _ in range(max(1, min(MOST_COPIES, round(span / max(own_bytes, 1.0)))))]


def beyond(whole: str, *others: str, units: float = 1.0) -> Callable[[Mapping[str, float]], float]:
    """Seconds of one part beyond those of others, by so many units; never nothing or less."""
    return lambda parts: max((parts[whole] - sum(parts[name] for name in others)) / units, LEAST_S)


def named(**more: float) -> Callable[[Mapping[str, float]], Mapping[str, float]]:
    """Every part's seconds under its name, and further figures."""
    return lambda parts: {f"{name}_s": value for name, value in parts.items()} | more


def word(arguments: Mapping[str, Any], name: str) -> str:
    """An argument that is a word."""
    return str(arguments[name])


def number(arguments: Mapping[str, Any], name: str) -> int:
    """An argument that is a count."""
    return int(arguments[name])
