"""What is known of the network: how a communication library set itself up, and what benchmarks reached."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from meshwright.domain.observed.log import Sign
from meshwright.value import Value


class NetworkSetup(Value, frozen=True, kw_only=True):
    """What NCCL, RCCL or HCCL says when it sets itself up."""

    file: str
    format: str
    network: str = ""
    """``IB``, ``Socket``, ``AWS Libfabric``: what goes between nodes."""
    interfaces: tuple[str, ...] = ()
    """Adapters in use, as named: ``mlx5_0:1/IB``, ``eno3``."""
    channels: Mapping[str, int] = field(default_factory=dict)
    """``collective``, ``collnet``, ``nvls``, ``point-to-point`` -> channels."""
    transports: Mapping[str, int] = field(default_factory=dict)
    """``P2P/IPC``, ``SHM``, ``NET/IB``, ``NET/IB/GDRDMA``, ``NET/Socket`` -> lines of channels."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the library says it was given."""
    communicators: tuple[tuple[int, int], ...] = ()
    """Ranks and nodes of each that was initialised; 0 nodes where it does not say."""
    bandwidth_bytes_per_s: float | None = None
    """What the library believes of one path (``maxBw``)."""
    total_bandwidth_bytes_per_s: float | None = None
    """And of all that leave a device (``totalBw``)."""
    version: str = ""
    world: int | None = None
    nodes: int | None = None
    adapters: tuple[int, ...] = ()
    """Numbers of the adapters that channels between nodes go through."""
    forwarded: int = 0
    """Lines of channels that go through the adapter of another device of the node (PXN)."""
    trees: int = 0
    """Ranks that told their place in the trees."""
    direct: bool | None = None
    """Whether the library says that adapters reach device memory by themselves (GPUDirect)."""
    where: Mapping[str, int] = field(default_factory=dict)
    """What was said -> the line that says it first: ``network``, ``nvls``, a transport, a variable."""
    signs: tuple[Sign, ...] = ()
    notes: tuple[str, ...] = ()


class Bandwidth(Value, frozen=True, kw_only=True):
    """One measured size of one operation."""

    operation: str
    message_bytes: float
    time_s: float | None
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    line: int | None = None
    ranks: int | None = None
    """Said, or worked out of the two rates."""
    in_place: bool | None = None
    count: int = 1
    group: str = ""
    rank: int | None = None
    """Whose time it is, where each rank measures its own."""


class Bandwidths(Value, frozen=True, kw_only=True):
    """A benchmark's table, or what a running job measured of its own collectives."""

    file: str
    format: str
    rows: tuple[Bandwidth, ...]
    ranks: int | None = None
    nodes: int | None = None
    signs: tuple[Sign, ...] = ()
    notes: tuple[str, ...] = ()
