"""Clusters: a shape of ``data/clusters.yaml`` or of a user's file, at a size."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog.device_sheet import build_device, device, device_names, read_device, record_of
from meshwright.catalog.figures import Bandwidth, Count, Duration, Power, Provenance, Size, provenance_of, record_in
from meshwright.catalog.measured_sheet import measured_of, measured_provenance
from meshwright.catalog.sheets import Names, Sheet, aliases_of, looks_like_path, read_sheet, shipped
from meshwright.domain.cluster import Cluster, Device, Link
from meshwright.errors import InputError, Message, fault
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_DEVICES = 10**7


class LinkRecord(Value, frozen=True, kw_only=True):
    """One tier; without a bandwidth it is the device's own scale-up bandwidth."""

    latency: Duration
    bandwidth: Bandwidth | None = None
    in_network_reduction: bool = False
    full_mesh: bool = False
    flat_domains: Count | None = None


class ClusterRecord(Value, frozen=True, kw_only=True):
    """A block of the file after ``like`` is filled in; the keys that a contributor writes."""

    device: str
    devices_per_node: int
    scale_up_devices: int
    scale_up: LinkRecord
    network: LinkRecord
    host_memory: Size
    host_link: Bandwidth
    node_power: Power
    num_devices: int | None = None
    nodes: int | None = None
    oversubscription: Count | None = None
    pod_devices: int | None = None
    aliases: tuple[str, ...] = ()
    source: str = ""


def clusters() -> tuple[str, ...]:
    """Names of the catalogue's cluster shapes, sorted."""
    return cluster_names().names


@cache
def cluster_names() -> Names:
    """Every spelling of every shape."""
    return Names("cluster", aliases_of(shipped("clusters.yaml").clusters), "meshwright catalog clusters")


def load_cluster(name_or_path: str | Cluster, *, num_devices: int | None = None, nodes: int | None = None) -> Cluster:
    """A shape of the catalogue, the one cluster of a YAML file, or the value itself, at its own size or at the size asked for."""
    if isinstance(name_or_path, Cluster):
        return _sized(name_or_path, num_devices=num_devices, nodes=nodes)
    name = cluster_names().find(name_or_path)
    if name is not None:
        cluster = _shape(name)
    elif looks_like_path(name_or_path):
        cluster = _from_file(name_or_path)
    else:
        cluster = _shape(cluster_names().resolve(name_or_path))
    return _sized(cluster, num_devices=num_devices, nodes=nodes)


def cluster_for(
    device_name: str, *, num_devices: int | None = None, nodes: int | None = None, devices_per_node: int | None = None
) -> Cluster:
    """The shape that a device usually comes in, with so many devices or nodes (else one node, or one rack)."""
    canonical = device_names().resolve(device_name)
    shape = replace(_shape(cluster_names().resolve(record_of(canonical).cluster)), device=device(canonical))
    if devices_per_node is not None:
        if devices_per_node < 1:
            raise fault("cluster.range", "devices_per_node={value} must be at least 1", value=devices_per_node)
        whole_node = shape.scale_up_devices == shape.devices_per_node
        scale_up = devices_per_node if whole_node else shape.scale_up_devices
        shape = replace(shape, devices_per_node=devices_per_node, scale_up_devices=scale_up)
        if num_devices is None and nodes is None:
            shape = replace(shape, num_devices=devices_per_node)
    return _sized(shape, num_devices=num_devices, nodes=nodes)


def cluster_provenance(name_or_path: str) -> Mapping[str, Provenance]:
    """Every figure of a shape, or of the one cluster of a file: value, unit and source as written in the file."""
    if cluster_names().find(name_or_path) is None and looks_like_path(name_or_path):
        sheet = read_sheet(name_or_path)
        name = _only(sheet)
    else:
        sheet, name = shipped("clusters.yaml"), cluster_names().resolve(name_or_path)
    record = _record(sheet, name)
    own = {}
    if record.device in sheet.devices:
        own = provenance_of(read_device(sheet, record.device), sheet.sources, "device")
    return own | provenance_of(record, sheet.sources) | measured_provenance(sheet, name)


@cache
def _shape(name: str) -> Cluster:
    sheet = shipped("clusters.yaml")
    record = _record(sheet, name)
    return _build(name, record, device(record.device), sheet)


def _from_file(path: str) -> Cluster:
    """The one cluster of a user's file, on a device of the same file or of the catalogue."""
    sheet = read_sheet(path)
    name = _only(sheet)
    record = _record(sheet, name)
    if record.device in sheet.devices:
        own = build_device(record.device, read_device(sheet, record.device), sheet)
    elif device_names().find(record.device):
        own = device(record.device)
    else:
        raise InputError(_unknown_device(record.device, sheet, sheet.where("clusters", name)))
    return _build(name, record, own, sheet)


def _only(sheet: Sheet) -> str:
    """The name of the one cluster of a file."""
    if len(sheet.clusters) != 1:
        raise fault(
            "cluster.one", "holds {count} clusters, one is expected under 'clusters'",
            path=sheet.path, count=len(sheet.clusters),
        )
    return next(iter(sheet.clusters))


def _record(sheet: Sheet, name: str) -> ClusterRecord:
    where = sheet.where("clusters", name)
    block = _filled(sheet, name, ())
    try:
        record = record_in(sheet, block, ClusterRecord, where=where)
    except InputError as error:
        raise InputError([*error.messages, *_block_faults(sheet, block, where)]) from None
    counts = {"devices_per_node": record.devices_per_node, "scale_up_devices": record.scale_up_devices,
              "num_devices": record.num_devices, "nodes": record.nodes, "pod_devices": record.pod_devices}
    faults = [
        Message("cluster.range", "{value} is not within 1..{high}", {"value": count, "high": MAX_DEVICES}, f"{where}.{key}")
        for key, count in counts.items()
        if count is not None and not 1 <= count <= MAX_DEVICES
    ]
    if record.oversubscription and record.oversubscription.base < 1:
        value = {"value": record.oversubscription.base}
        faults.append(Message("cluster.positive", "{value} must be at least 1", value, f"{where}.oversubscription"))
    if record.num_devices is not None and record.nodes is not None:
        faults.append(Message("cluster.size", "give nodes or num_devices, not both", {}, where))
    if faults:
        raise InputError(faults)
    return record


def _block_faults(sheet: Sheet, block: object, where: str) -> list[Message]:
    """What is wrong with the values of a block beside their kinds, where those keep it from being a record."""
    found: list[Message] = []
    if not isinstance(block, dict):
        return found
    for key in ("devices_per_node", "scale_up_devices", "num_devices", "nodes", "pod_devices"):
        count = block.get(key)
        if isinstance(count, int) and not isinstance(count, bool) and not 1 <= count <= MAX_DEVICES:
            found.append(Message("cluster.range", "{value} is not within 1..{high}", {"value": count, "high": MAX_DEVICES},
                                 f"{where}.{key}"))
    if block.get("num_devices") is not None and block.get("nodes") is not None:
        found.append(Message("cluster.size", "give nodes or num_devices, not both", {}, where))
    named = block.get("device")
    try:
        if isinstance(named, str) and named in sheet.devices:
            read_device(sheet, named)
        elif isinstance(named, str) and device_names().find(named) is None:
            found.append(_unknown_device(named, sheet, where))
    except InputError as error:
        found += error.messages
    return found


def _unknown_device(name: str, sheet: Sheet, where: str) -> Message:
    hint = device_names().near(name, sheet.devices)
    return Message("catalog.unknown", "unknown {noun} {name!r}{hint}", {"noun": "device", "name": name, "hint": hint},
                   f"{where}.device")


def _filled(sheet: Sheet, name: str, seen: tuple[str, ...]) -> object:
    """A block with the keys of the shape that it is ``like``."""
    block = sheet.clusters[name]
    if not isinstance(block, dict) or "like" not in block:
        return block
    base_name, where = block["like"], f"{sheet.where('clusters', name)}.like"
    if not isinstance(base_name, str):
        raise fault("value.text", "is not the name of a cluster", path=where)
    if base_name in seen or base_name == name:
        raise fault("cluster.like", "the cluster is like itself", path=where)
    base_sheet = sheet if base_name in sheet.clusters else shipped("clusters.yaml")
    found = base_name if base_name in sheet.clusters else cluster_names().find(base_name)
    if found is None:
        hint = cluster_names().near(base_name, sheet.clusters)
        raise fault("catalog.unknown", "unknown cluster {name!r}{hint}", path=where, name=base_name, hint=hint)
    base = _filled(base_sheet, found, (*seen, name))
    kept = {key: value for key, value in base.items() if key != "aliases"} if isinstance(base, dict) else {}
    own = {key: value for key, value in block.items() if key != "like"}
    if {"nodes", "num_devices"} & own.keys():
        kept.pop("nodes", None)
        kept.pop("num_devices", None)
    return kept | own


def _build(name: str, record: ClusterRecord, own: Device, sheet: Sheet) -> Cluster:
    num_devices = record.num_devices or (record.nodes or 1) * record.devices_per_node
    return Cluster(
        name=name,
        device=own,
        num_devices=num_devices,
        devices_per_node=record.devices_per_node,
        scale_up_devices=record.scale_up_devices,
        scale_up=_link(record.scale_up, own.scale_up_bytes_per_s),
        network=_link(record.network, own.scale_up_bytes_per_s),
        oversubscription=record.oversubscription.base if record.oversubscription else 1.0,
        pod_devices=record.pod_devices,
        host_memory_bytes=int(record.host_memory.base),
        host_link_bytes_per_s=record.host_link.base,
        node_power_w=record.node_power.base,
        source=record.source or "; ".join(dict.fromkeys(figure.source for figure in provenance_of(record, sheet.sources).values())),
        measured=measured_of(sheet, name),
    )


def _link(record: LinkRecord, default_bytes_per_s: float) -> Link:
    return Link(
        bytes_per_s=record.bandwidth.base if record.bandwidth else default_bytes_per_s,
        latency_s=record.latency.base,
        in_network_reduction=record.in_network_reduction,
        full_mesh=record.full_mesh,
        flat_domains=record.flat_domains.base if record.flat_domains else 8.0,
    )


def _sized(cluster: Cluster, *, num_devices: int | None, nodes: int | None) -> Cluster:
    if num_devices is not None and nodes is not None and num_devices != nodes * cluster.devices_per_node:
        raise fault(
            "cluster.size", "devices={devices} is not nodes={nodes} times {per_node} devices per node",
            devices=num_devices, nodes=nodes, per_node=cluster.devices_per_node,
        )
    for key, value in (("devices", num_devices), ("nodes", nodes)):
        if value is not None and not 1 <= value <= MAX_DEVICES:
            raise fault("cluster.range", "{key}={value} is not within 1..{high}", key=key, value=value, high=MAX_DEVICES)
    if num_devices is None and nodes is not None:
        num_devices = nodes * cluster.devices_per_node
    per_node = cluster.devices_per_node
    if num_devices is not None and num_devices > per_node and num_devices % per_node:
        whole = num_devices // per_node * per_node
        raise fault(
            "cluster.ragged", "devices={count} are no whole nodes of {per_node}: {below} or {above}, or other devices per node",
            count=num_devices, per_node=per_node, below=whole, above=whole + per_node,
        )
    return cluster if num_devices is None else replace(cluster, num_devices=num_devices)
