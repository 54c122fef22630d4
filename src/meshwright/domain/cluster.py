"""Devices and how they are wired: the scale-up domain (NVLink, HCCS, xGMI), then the network between nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.measured import Measured


class Device(Value, frozen=True, kw_only=True):
    """One accelerator as the framework sees it (a GCD or a die counts as one). Peaks are dense."""

    name: str
    family: str
    """Architecture family that shares efficiencies: ampere, hopper, blackwell, ada, volta, cdna3, ascend, cpu ..."""
    memory_bytes: int
    """What the allocator can use: capacity as the driver reports it."""
    memory_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    """Dense peak by data type: fp32, bf16, fp16, fp8, fp4. A missing type is not supported."""
    num_units: int
    """Streaming multiprocessors, compute units or AI cores: the grain of wave quantisation."""
    scale_up_bytes_per_s: float
    """One-direction bandwidth of the device into its scale-up domain (NVLink: half of the advertised total)."""
    power_w: float
    aliases: tuple[str, ...] = ()
    source: str = ""
    assumed: tuple[str, ...] = ()
    synchronous: bool = False
    """The host computes itself (a CPU): nothing is queued, so every operator's host time adds to the step."""

    def supports(self, dtype: str) -> bool:
        """Whether matrix units run this data type."""
        return dtype in self.peak_flops_per_s


class Link(Value, frozen=True, kw_only=True):
    """One tier of the interconnect, seen from one device."""

    bytes_per_s: float
    """One-direction bandwidth per device when all devices of a node talk (a NIC shared by two devices counts half)."""
    latency_s: float
    """Time of one step of a collective with an empty message."""
    in_network_reduction: bool = False
    """The switch reduces (NVLink SHARP, InfiniBand SHARP)."""
    flat_domains: float = 8.0
    """Scale-up domains over which a group keeps its bandwidth; beyond them it loses ``Constants.fabric_slope`` a doubling."""
    full_mesh: bool = False
    """Every pair of devices of the domain has its own link and no switch joins them: a group of some of them uses its own
    links only (HCCS on Atlas A2, xGMI on MI300X)."""


class Cluster(Value, frozen=True, kw_only=True):
    """``num_devices`` equal devices in nodes, nodes in scale-up domains, domains on a network."""

    name: str
    device: Device
    num_devices: int
    devices_per_node: int
    scale_up_devices: int
    """Devices that reach each other over the scale-up link; 72 for NVL72 although a node has 4; 1: none (then PCIe)."""
    scale_up: Link
    network: Link
    oversubscription: float = 1.0
    """Spine bandwidth demanded over offered: 1 is non-blocking, 2 halves the bandwidth between pods."""
    pod_devices: int | None = None
    """Devices under one leaf (or rail group), within which no oversubscription acts; None: all."""
    host_memory_bytes: int = 2 * 10**12
    """Memory of one host."""
    host_link_bytes_per_s: float = 25e9
    """One-direction bandwidth between host memory and one device (PCIe or C2C)."""
    node_power_w: float = 0.0
    """Power of a node beside its devices: hosts, NICs, fans."""
    source: str = ""
    measured: Measured | None = None
    """What a profile of this very cluster found; it stands above priors and calibrations."""

    def __post_init__(self) -> None:
        messages = [
            Message("cluster.positive", "{field}={value} must be at least 1", {"field": name, "value": value}, path=self.name)
            for name, value in (
                ("num_devices", self.num_devices),
                ("devices_per_node", self.devices_per_node),
                ("scale_up_devices", self.scale_up_devices),
                ("oversubscription", self.oversubscription),
            )
            if value < 1
        ]
        if messages:
            raise InputError(messages)

    @property
    def num_nodes(self) -> int:
        """Hosts, the last one possibly not full."""
        return -(-self.num_devices // self.devices_per_node)
