"""Networks, judged: how a communication library set itself up.

Pure: what is known of the cluster is handed in, and what is not known makes no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import Finding, seen_at
from meshwright.domain.observed import NetworkSetup, Place

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Severity

FAR = 0.5
"""Share of a link's rate below which what the library believes is far under it."""
TRUE = frozenset({"1", "true", "yes", "on"})
PINNED = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NTHREADS",
    "NCCL_BUFFSIZE",
    "NCCL_P2P_NET_CHUNKSIZE",
)
"""Variables that take a choice from the library which it makes better by size and topology."""
SWITCHED_OFF = {
    "NCCL_P2P_DISABLE": "direct transfers between the devices of a node",
    "NCCL_SHM_DISABLE": "shared memory",
    "NCCL_IB_DISABLE": "InfiniBand and RoCE",
    "NCCL_IBEXT_DISABLE": "the external InfiniBand plug-in",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of the cluster; None where it is not."""

    nodes: int | None = None
    devices_per_node: int | None = None
    nvlink: bool | None = None
    multicast: bool | None = None
    """Whether the switch between the devices of a node reduces by itself (NVLink SHARP: NVSwitch with Hopper or newer)."""
    rdma: bool | None = None
    """Whether nodes are joined by InfiniBand, RoCE or EFA."""
    adapters_per_node: int | None = None
    link_bytes_per_s: float | None = None
    """Between nodes, of one device."""


UNKNOWN = Surroundings()


def judge_setup(setup: NetworkSetup, known: Surroundings = UNKNOWN) -> tuple[Finding, ...]:
    """What is wrong with a set-up, in the order in which it would be mended."""
    return tuple(_setup(setup, known))


def _place(setup: NetworkSetup, *facts: str) -> Place:
    """Where the first of the facts was said."""
    lines = [setup.where[each] for each in facts if each in setup.where]
    signs = [each.place.line for each in setup.signs if each.id in facts and each.place.line]
    return Place(file=setup.file, line=next(iter([*signs, *lines]), None))


def why_tcp(setup: NetworkSetup) -> tuple[str, ...]:
    """Why a library took TCP, as far as it says: ``environment``, ``no_verbs``, ``no_device``, ``no_plugin``; else ``unknown``."""
    given = {name: value.lower() for name, value in setup.environment.items()}
    signs = {each.id for each in setup.signs}
    reasons = []
    if given.get("NCCL_IB_DISABLE") in TRUE or given.get("NCCL_NET") == "socket" or given.get("NCCL_NET_PLUGIN") == "none":
        reasons.append("environment")
    reasons += [reason for reason in ("no_verbs", "no_device") if f"network.{reason}" in signs]
    if not reasons and "network.no_plugin" in signs:
        reasons.append("no_plugin")
    return tuple(reasons) or ("unknown",)


_WHY = {
    "environment": "the environment says so",
    "no_verbs": "libibverbs cannot be opened",
    "no_device": "no RDMA device is seen",
    "no_plugin": "no network plug-in is found",
    "unknown": "the log does not say why",
}


def _setup(setup: NetworkSetup, known: Surroundings) -> Iterator[Finding]:
    given = setup.environment
    nodes = known.nodes or setup.nodes
    tcp = setup.network.lower() == "socket" or bool(setup.transports.get("NET/Socket"))
    loopback = tcp and bool(setup.interfaces) and all(each in {"lo", "lo0"} for each in setup.interfaces)
    if tcp and nodes != 1 and known.rdma is not False:
        reasons = why_tcp(setup)
        facts = ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN") if reasons[0] == "environment" else (f"network.{reasons[0]}",)
        yield seen_at(
            _place(setup, *facts, "NET/Socket", "network"), "error", "network.tcp",
            "TCP goes between nodes instead of RDMA: {why}", remedy=f"network.tcp.{reasons[0]}",
            why=" and ".join(_WHY[each] for each in reasons), reasons=reasons,
        )
    if loopback or given.get("NCCL_SOCKET_IFNAME", "").lstrip("=") in {"lo", "lo0"}:
        yield seen_at(
            _place(setup, "NCCL_SOCKET_IFNAME", "interfaces"), "error" if nodes != 1 else "advice", "network.loopback",
            "the loopback interface is used: it reaches no other node",
        )
    yield from _direct(setup)
    yield from _inside(setup, known)
    off = [name for name in SWITCHED_OFF if given.get(name, "").lower() in TRUE]
    if tcp:
        off = [name for name in off if not name.startswith("NCCL_IB")]
    for name in off:
        yield seen_at(
            _place(setup, name), "warning", "network.switched_off", "{name}={value} turns off {what}",
            name=name, value=given[name], what=SWITCHED_OFF[name],
        )
    yield from _complaints(setup)
    pinned = [name for name in PINNED if name in given]
    if pinned:
        yield seen_at(
            _place(setup, *pinned), "advice", "network.pinned",
            "{settings} take a choice from the library that depends on size and topology",
            settings=", ".join(f"{name}={given[name]}" for name in pinned), names=", ".join(pinned),
        )
    if given.get("NCCL_DEBUG", "").upper() in {"INFO", "TRACE"}:
        yield seen_at(
            _place(setup, "NCCL_DEBUG"), "advice", "network.debugging", "NCCL_DEBUG={level} is left on", level=given["NCCL_DEBUG"]
        )
    yield from _adapters(setup, known)


def _direct(setup: NetworkSetup) -> Iterator[Finding]:
    """GPUDirect between nodes."""
    between = {
        name: number for name, number in setup.transports.items() if name.startswith("NET/") and not name.startswith("NET/Socket")
    }
    direct = sum(number for name, number in between.items() if name.endswith("/GDRDMA"))
    without = sum(between.values()) - direct
    told = any(each.id == "network.not_direct" and "NET/Socket" not in each.text for each in setup.signs)
    if without or (told and not direct and setup.network.lower() != "socket"):
        names = [name for name in between if not name.endswith("/GDRDMA")]
        yield seen_at(
            _place(setup, *(["network.not_direct"] if told else []), *names), "warning", "network.not_direct",
            "{without} of {all} channels between nodes go through host memory: GPUDirect RDMA is off",
            without=without, all=without + direct,
        )


def _inside(setup: NetworkSetup, known: Surroundings) -> Iterator[Finding]:
    """Between the devices of a node."""
    shared = setup.transports.get("SHM", 0)
    if shared and known.nvlink is not False:
        off = any(each.id == "network.peer_to_peer_off" for each in setup.signs) or "NCCL_P2P_DISABLE" in setup.environment
        severity: Severity = "warning" if known.nvlink or off else "advice"
        yield seen_at(
            _place(setup, "network.peer_to_peer_off", "NCCL_P2P_DISABLE", "SHM"), severity, "network.shared_memory",
            "{shared} of {all} channels inside a node go through host memory, as where devices have no direct path",
            shared=shared, all=shared + sum(number for name, number in setup.transports.items() if name.startswith("P2P/")),
        )
    if known.multicast and setup.channels.get("nvls") == 0 and (known.devices_per_node or 2) > 1:
        yield seen_at(
            _place(setup, "nvls", "NCCL_NVLS_ENABLE"), "warning", "network.no_multicast",
            "no NVLS channel is open although the switch reduces by itself",
        )


def _complaints(setup: NetworkSetup) -> Iterator[Finding]:
    """Transfers that failed; other warnings of the library are signs of any log."""
    for each in setup.signs:
        if each.id == "network.completion":
            yield seen_at(
                each.place, "warning", "network.completion", "a transfer ended with status {status} ({times:,} times): {text}",
                status="?" if each.value is None else int(each.value), times=each.times, text=each.text,
            )


def _adapters(setup: NetworkSetup, known: Surroundings) -> Iterator[Finding]:
    """Adapters that are in use or missing, and what the library believes of them."""
    names = [each for each in setup.interfaces if "/" in each]
    bonds = [each for each in names if "bond" in each]
    if bonds and len(bonds) < len(names):
        yield seen_at(
            _place(setup, "interfaces"), "advice", "network.storage_adapter",
            "{names} joins the others: it may be the adapter of the storage", names=", ".join(bonds),
        )
    if names and known.adapters_per_node and len(names) < known.adapters_per_node:
        yield seen_at(
            _place(setup, "interfaces", "NCCL_IB_HCA"), "warning", "network.adapters",
            "{found} of {all} adapters of a node are used", found=len(names), all=known.adapters_per_node,
        )
    believed = setup.bandwidth_bytes_per_s
    if believed and known.link_bytes_per_s and believed < FAR * known.link_bytes_per_s:
        yield seen_at(
            _place(setup, "bandwidth"), "warning", "network.believed",
            "the library believes in {believed:.1f} GB/s where the link has {link:.1f}",
            believed=believed / 1e9, link=known.link_bytes_per_s / 1e9,
        )
