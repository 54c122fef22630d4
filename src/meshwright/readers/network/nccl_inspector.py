"""NCCL Inspector: what a running job measured of its own collectives, as lines of JSON or for Prometheus.

Records of one rank, operation, size and communicator are one row with their mean. Absence is no evidence: the plug-in leaves out
small messages, keeps a ring of the last ones, and writes when a communicator is torn down (``plugins/profiler/inspector`` of
NVIDIA/nccl).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.domain.observed import Bandwidth, Bandwidths
from meshwright.readers.formats import Format
from meshwright.readers.lines import anchored
from meshwright.readers.loose import amount, mapping, text, whole
from meshwright.readers.network.rates import bus_factor

if TYPE_CHECKING:
    from meshwright.readers.source import Source

MAX_ROWS = 100_000
ABSENCE = "the inspector leaves out messages below 8 KiB and writes at the end: what is not in the file may still have happened"
_METRIC = re.compile(r"^nccl_(?:collective_|p2p_)?(bus_bandwidth_gbs|exec_time_microseconds)\{(.{1,4000})\}\s+(\S{1,40})")
_LABEL = re.compile(r'(\w{1,60})="([^"]{0,200})"')
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})([KMGT]?B)$")
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


@dataclass(slots=True)
class _Sum:
    """Records that are alike."""

    line: int
    count: int = 0
    time_s: float = 0.0
    algorithm: float = 0.0
    bus: float = 0.0


Key = tuple[str, float, str, int, int | None]
"""Operation, message, communicator, its ranks, and the rank that measured."""


def read(source: Source) -> tuple[Bandwidths, ...]:
    """What was measured, by operation, size and communicator."""
    sums: dict[Key, _Sum] = {}
    signs = {"host": 0, "wrong": 0}
    nodes = 0
    for (line, *_) in anchored(source, (b'"coll_perf"', b'"p2p_perf"')):
        try:
            record = mapping(json.loads(line.text, strict=False, parse_constant=lambda _: None))
        except (ValueError, RecursionError):
            signs["wrong"] += 1
            continue
        header = mapping(record.get("header"))
        kind = "coll" if "coll_perf" in record else "p2p"
        measured = mapping(record.get(f"{kind}_perf"))
        size, time = amount(measured.get(f"{kind}_msg_size_bytes")), amount(measured.get(f"{kind}_exec_time_us"))
        bus, algorithm = amount(measured.get(f"{kind}_busbw_gbs")), amount(measured.get(f"{kind}_algobw_gbs"))
        if size is None or time is None or bus is None:
            signs["wrong"] += 1
            continue
        signs["host"] += "cpu" in text(measured.get(f"{kind}_timing_source")).lower()
        nodes = max(nodes, whole(header.get("nnodes")) or 0)
        communicator = text(header.get("comm_name")) or text(header.get("id"))
        key = (text(measured.get(kind)), size, communicator, whole(header.get("n_ranks")) or 0, whole(header.get("rank")))
        _add(sums, key, line.number, time * 1e-6, (algorithm if algorithm is not None else bus) * 1e9, bus * 1e9)
    nodes = max(nodes, _prometheus(source, sums))
    if not sums:
        return ()
    rows = tuple(Bandwidth(
        operation=operation, message_bytes=size, time_s=each.time_s / each.count, algorithm_bytes_per_s=each.algorithm / each.count,
        bus_bytes_per_s=each.bus / each.count, line=each.line, ranks=ranks or None, count=each.count, group=group, rank=rank,
    ) for (operation, size, group, ranks, rank), each in sums.items())
    notes = [ABSENCE]
    if signs["wrong"]:
        notes.append(f"{signs['wrong']:,} lines are broken and left out")
    if signs["host"]:
        notes.append(f"{signs['host']:,} records are timed on the host, not on the device")
    return (Bandwidths(file=source.shown, format="nccl_inspector", rows=rows, ranks=max(each.ranks or 0 for each in rows) or None,
                       nodes=nodes or None, notes=tuple(notes)),)


def _add(sums: dict[Key, _Sum], key: Key, line: int, time_s: float, algorithm: float, bus: float) -> None:
    if key in sums or len(sums) < MAX_ROWS:
        each = sums.setdefault(key, _Sum(line))
        each.count += 1
        each.time_s, each.algorithm, each.bus = each.time_s + time_s, each.algorithm + algorithm, each.bus + bus


def _prometheus(source: Source, sums: dict[Key, _Sum]) -> int:
    """Rows of the Prometheus form, a message being the middle of its range; the most nodes that a communicator has."""
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for (line, *_) in anchored(source, (b"bus_bandwidth_gbs{", b"exec_time_microseconds{")):
        if (metric := _METRIC.match(line.text)) and (value := amount(metric[3])) is not None and len(found) < MAX_ROWS:
            found.setdefault(metric[2], {})["bus" if "bandwidth" in metric[1] else "time"] = (value, line.number)
    nodes = 0
    for labels, values in found.items():
        said = dict(_LABEL.findall(labels))
        span = _RANGE.match(said.get("message_size", ""))
        if span is None or "bus" not in values or "time" not in values:
            continue
        size = (int(span[1]) + int(span[2])) / 2 * _UNITS[span[3]]
        operation, ranks = said.get("collective") or said.get("p2p_operation", ""), whole(said.get("nranks", "")) or 0
        bus = values["bus"][0] * 1e9
        nodes = max(nodes, whole(said.get("n_nodes", "")) or 0)
        _add(sums, (operation, size, said.get("comm_name", ""), ranks, None), values["bus"][1], values["time"][0] * 1e-6,
             bus / bus_factor(operation, ranks), bus)
    return nodes


def _told(sample: bytes) -> bool:
    return b'"coll_perf"' in sample or b'"p2p_perf"' in sample or b"nccl_bus_bandwidth_gbs{" in sample


FORMAT = Format(name="nccl_inspector", says="records of NCCL's inspector plug-in", told=_told, read=read)
