"""What NCCL and RCCL say with ``NCCL_DEBUG=INFO``: network, channels, transports, overrides, communicators, complaints.

Lines of many ranks stand between other output and behind launchers' prefixes. Forms: NCCL 2.4 to 2.30, RCCL (``src/init.cc``,
``src/transport``, ``src/graph`` of NVIDIA/nccl).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from meshwright.domain.observed import NetworkSetup, Place, Sign
from meshwright.readers.formats import Format
from meshwright.readers.lines import Line, anchored

if TYPE_CHECKING:
    from meshwright.readers.source import Source

ANCHORS = (b"NCCL INFO", b"NCCL WARN", b"NCCL version", b"RCCL version")
MAX_NAMES = 4096
"""Hosts, communicators, variables and kinds of complaints that are told apart."""
MAX_RANK = 10**7

_SAID = re.compile(r"^(?P<host>[^\s:]{1,200}):\d+:\d+ ")
_CHANNEL = re.compile(
    r"(?:Channel|Ring|CollNet) \d+(?:/\d+)? : (?P<a>\d{1,8})(?:\[[0-9a-f]+\])?(?: -> (?P<b>\d{1,8})(?:\[[0-9a-f]+\])?)?"
    r"(?: \[(?:send|receive)\])? via (?P<via>.+)")
_NET = re.compile(r"NET/(?P<name>[^/]+)/(?P<adapter>\d{1,4})(?:\((?P<forwarder>\d+)\))?(?P<rest>.*)")
_CHANNELS = re.compile(r"(\d{1,6}) (coll|collnet|nvls|p2p) channels(?! per)")
_KINDS = {"coll": "collective", "collnet": "collnet", "nvls": "nvls", "p2p": "point-to-point"}
_VARIABLE = re.compile(r"\b((?:NCCL|RCCL|HSA|FI|MSCCL)_[A-Z0-9_]{1,60}) set (?:by environment )?to (.{0,300})")
_NETWORK = re.compile(r"Using network (.{1,60})")
_PLUGIN = re.compile(r"Assigned NET plugin (.{1,60}?) to comm")
_ADAPTERS = re.compile(r"NET/\w{1,20} : Using \[0\]([^;]+)")
_BETWEEN = re.compile(r"\[(?:\d{1,4}|RO)\]")
_DIRECT = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for HCA (\d+) '([^']{0,80})'")
_RINGS_DIRECT = re.compile(r"use ring PXN \d+ GDR (\d+)")
_BELIEVED = re.compile(r"=== System : maxBw (\d{1,9}(?:\.\d{1,6})?)(?: totalBw (\d{1,9}(?:\.\d{1,6})?))?")
_DONE = re.compile(
    r"comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d{1,8}) n[rR]anks (?P<ranks>\d{1,8})\b"
    r".*?(?:commId (?P<id>0x[0-9a-f]+) )?- Init COMPLETE")
_NODES = re.compile(r"comm (?P<comm>0x[0-9a-f]+) rank \d+ nRanks (?P<ranks>\d{1,8}) nNodes (?P<nodes>\d{1,8})")
_VERSION = re.compile(r"\b([NR]CCL) version[ :]+([\w.+\-]{1,60})")
_TREES = re.compile(r" Trees \[0\].{0,80}?->(\d{1,8})->")

COMPLAINTS = (
    ("network.no_device", re.compile(r"NET/IB : No device found")),
    ("network.no_verbs", re.compile(r"Failed to open libibverbs\.so")),
    ("network.no_plugin", re.compile(r"NET/Plugin\s?: (?:No plugin found|Could not find)")),
    ("network.not_direct", re.compile(r"GPU Direct RDMA Disabled for HCA")),
    ("network.completion", re.compile(r"Got completion (?:from peer|with error)")),
    ("network.peer_to_peer_off", re.compile(r"P2P is disabled between")),
    ("network.warning", re.compile(r"NCCL WARN")),
)
"""Identifier -> what its line says; the first that fits counts."""
_COMPLAIN = ("NET/", "WARN", "P2P is disabled", "GPU Direct", "libibverbs")
"""One of these is in every line that complains."""
_STATUS = re.compile(r"status=(?:[A-Z_]+\()?(\d{1,4})")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(slots=True)
class _Heard:
    """What was heard so far, in bounded memory."""

    file: str
    network: str = ""
    version: str = ""
    interfaces: dict[str, None] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    transports: Counter[str] = field(default_factory=Counter)
    environment: dict[str, str] = field(default_factory=dict)
    done: dict[str, tuple[int, str]] = field(default_factory=dict)
    unnamed: Counter[int] = field(default_factory=Counter)
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    adapters: set[int] = field(default_factory=set)
    in_trees: set[int] = field(default_factory=set)
    forwarded: int = 0
    highest: int = -1
    believed: float | None = None
    total: float | None = None
    direct: bool | None = None
    where: dict[str, int] = field(default_factory=dict)
    signs: dict[tuple[str, str], Sign] = field(default_factory=dict)
    lines: int = 0

    def first(self, what: str, line: Line) -> None:
        """Remember the line that says something first."""
        if len(self.where) < MAX_NAMES:
            self.where.setdefault(what, line.number)

    def hear(self, line: Line) -> None:
        """One line of the library."""
        text = line.text
        self.lines += 1
        if text.partition(":")[0] not in self.hosts and (said := _SAID.match(text)) and len(self.hosts) < MAX_NAMES:
            self.hosts.add(said["host"])
        if " via " in text and (found := _CHANNEL.search(text)):
            self.channel(found, line)
            return
        for literal, hear in _HEARD:
            if literal in text and hear(self, text, line):
                break
        self.complain(line)

    def variable(self, text: str, line: Line) -> bool:
        """A variable that the library was given."""
        found = _VARIABLE.search(text)
        if found and len(self.environment) < MAX_NAMES:
            self.environment[found[1]] = found[2].strip().removesuffix(".")
            self.first(found[1], line)
        return found is not None

    def chosen(self, text: str, line: Line) -> bool:
        """The network that goes between nodes."""
        found = _NETWORK.search(text) or _PLUGIN.search(text)
        if found:
            self.network = found[1].strip()
            self.first("network", line)
        return found is not None

    def counts(self, text: str, line: Line) -> bool:
        """How many channels there are; of several communicators the most."""
        counts = _CHANNELS.findall(text)
        for number, kind in counts:
            self.channels[_KINDS[kind]] = max(int(number), self.channels.get(_KINDS[kind], 0))
            self.first(_KINDS[kind], line)
        return bool(counts)

    def tree(self, text: str, line: Line) -> bool:
        """A rank's place in the trees."""
        found = _TREES.search(text)
        if found:
            self.ranked(int(found[1]))
            self.in_trees.add(int(found[1]))
        return found is not None

    def uses(self, text: str, line: Line) -> bool:
        """Adapters in use."""
        found = _ADAPTERS.search(text)
        if found and len(self.interfaces) < MAX_NAMES:
            names = (each.strip() for each in _BETWEEN.split(found[1])[:MAX_NAMES])
            self.interfaces.update(dict.fromkeys(_adapter(each) for each in names if each))
            self.first("interfaces", line)
        return found is not None

    def ready(self, text: str, line: Line) -> bool:
        """A communicator that is complete."""
        found = _DONE.search(text)
        if found is None:
            return False
        self.ranked(int(found["rank"]))
        ranks = int(found["ranks"])
        if ranks <= MAX_RANK and found["id"] and len(self.done) < MAX_NAMES:
            self.done.setdefault(found["id"], (ranks, found["comm"]))
        elif ranks <= MAX_RANK and not found["id"]:
            self.unnamed[ranks] += 1
        return True

    def spans(self, text: str, line: Line) -> bool:
        """How many nodes a communicator spans."""
        found = _NODES.search(text)
        if found and len(self.nodes) < MAX_NAMES:
            self.nodes[found["comm"]] = (int(found["ranks"]), int(found["nodes"]))
        return found is not None

    def believes(self, text: str, line: Line) -> bool:
        """What the library believes of the bandwidth."""
        found = _BELIEVED.search(text)
        if found:
            self.believed = float(found[1]) * 1e9
            self.total = float(found[2]) * 1e9 if found[2] else None
            self.first("bandwidth", line)
        return found is not None

    def rings(self, text: str, line: Line) -> bool:
        """Whether rings go by GPUDirect."""
        found = _RINGS_DIRECT.search(text)
        if found:
            self.directly(found[1] != "0", line)
        return found is not None

    def versioned(self, text: str, line: Line) -> bool:
        """The library's version."""
        found = _VERSION.search(text)
        if found:
            self.version = f"{found[1]} {found[2]}"
        return found is not None

    def channel(self, found: re.Match[str], line: Line) -> None:
        """A line that says how one rank reaches another."""
        for each in (found["a"], found["b"]):
            self.ranked(int(each or 0))
        via = found["via"].split(" comm ")[0].strip()
        net = _NET.match(via)
        if net:
            direct = "/GDRDMA" in net["rest"]
            kind = f"NET/{net['name']}" + ("/GDRDMA" if direct else "")
            self.adapters.add(int(net["adapter"]))
            self.forwarded += net["forwarder"] is not None
        elif via.startswith(("SHM", "direct shared memory")):
            kind = "SHM"
        elif via.startswith("COLLNET/"):
            kind = "COLLNET"
        else:
            kind = "/".join(via.split("/")[:2])[:60]
        if kind in self.transports or len(self.transports) < MAX_NAMES:
            self.transports[kind] += 1
            self.first(kind, line)

    def ranked(self, rank: int) -> None:
        """A rank was named."""
        if rank <= MAX_RANK:
            self.highest = max(self.highest, rank)

    def directly(self, able: bool, line: Line) -> None:
        """GPUDirect was said to be on or off; off counts where both are said."""
        self.direct = able if self.direct is None else self.direct and able
        self.first("direct" if able else "not direct", line)

    def complain(self, line: Line) -> None:
        """Keep a complaint, and how often it came."""
        if not any(each in line.text for each in _COMPLAIN):
            return
        if direct := _DIRECT.search(line.text):
            self.directly(direct[1] == "Enabled", line)
        id = next((id for id, pattern in COMPLAINTS if pattern.search(line.text)), None)
        if id is None:
            return
        text = line.text[line.text.find("NCCL "):] if "NCCL " in line.text else line.text
        key = (id, _VARYING.sub("#", text)[:120])
        if key in self.signs:
            self.signs[key] = replace(self.signs[key], times=self.signs[key].times + 1)
        elif len(self.signs) < MAX_NAMES:
            status = _STATUS.search(text) if id == "network.completion" else None
            self.signs[key] = Sign(id=id, place=Place(file=self.file, line=line.number), text=line.text[:400], rank=line.rank,
                                   value=float(status[1]) if status else None)

    def setup(self) -> NetworkSetup:
        """Everything together."""
        between = any(each.startswith(("NET/", "COLLNET")) for each in self.transports)
        said = [self.nodes.get(comm, (ranks, 0)) for ranks, comm in self.done.values()]
        said += [(ranks, 0) for ranks, number in self.unnamed.items() for _ in range(min(MAX_NAMES, -(-number // max(1, ranks))))]
        said = said or list(dict.fromkeys(self.nodes.values()))
        world = max([ranks for ranks, _ in said] + [self.highest + 1])
        nodes = max([each for _, each in said] + [len(self.hosts) if len(self.hosts) > 1 else 0])
        return NetworkSetup(
            file=self.file, format="nccl_debug", network=self.network, interfaces=tuple(self.interfaces), channels=self.channels,
            transports=dict(self.transports), environment=self.environment, communicators=tuple(said),
            bandwidth_bytes_per_s=self.believed, total_bandwidth_bytes_per_s=self.total, version=self.version, world=world or None,
            nodes=nodes or (1 if self.transports and self.hosts and not between else None), adapters=tuple(sorted(self.adapters)),
            forwarded=self.forwarded, trees=len(self.in_trees), direct=self.direct, where=self.where,
            signs=tuple(self.signs.values()),
        )


_HEARD = (
    ("set ", _Heard.variable), ("Using network", _Heard.chosen), ("Assigned NET plugin", _Heard.chosen),
    (" channels", _Heard.counts),
    (" Trees [0]", _Heard.tree), (": Using [0]", _Heard.uses), ("Init COMPLETE", _Heard.ready), (" nNodes ", _Heard.spans),
    ("=== System", _Heard.believes), (" GDR ", _Heard.rings), ("CCL version", _Heard.versioned),
)
"""What is in a line, and who hears it."""


def _adapter(text: str) -> str:
    """``mlx5_0:1/IB`` as it stands, ``eno3`` without its address."""
    return text if re.search(r":\d+/\w+$", text) else re.split("[:<]", text, maxsplit=1)[0]


def read(source: Source) -> tuple[NetworkSetup, ...]:
    """What the library says of itself, from all ranks in the file; nothing where it only names its version."""
    heard = _Heard(source.shown)
    for group in anchored(source, ANCHORS):
        heard.hear(group[0])
    return (heard.setup(),) if heard.lines and (heard.hosts or heard.transports or heard.network or heard.signs) else ()


def _told(sample: bytes) -> bool:
    return b"NCCL INFO" in sample or b"NCCL WARN" in sample


FORMAT = Format(name="nccl_debug", says="what NCCL or RCCL prints with NCCL_DEBUG=INFO", told=_told, read=read)
