"""Devices: one block of ``data/devices.yaml`` each."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog.figures import (
    Bandwidth,
    Count,
    Power,
    Provenance,
    Size,
    Work,
    assumed_in,
    provenance_of,
    record_in,
)
from meshwright.catalog.sheets import Names, Sheet, aliases_of, shipped
from meshwright.domain.cluster import Device
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping


class DeviceRecord(Value, frozen=True, kw_only=True):
    """A block of the file; the keys that a contributor writes."""

    family: str
    cluster: str
    memory: Size
    memory_bandwidth: Bandwidth
    peak: dict[str, Work]
    units: Count
    scale_up: Bandwidth
    power: Power
    synchronous: bool = False
    aliases: tuple[str, ...] = ()


def devices() -> tuple[str, ...]:
    """Names of the catalogue's devices, sorted."""
    return device_names().names


@cache
def device_names() -> Names:
    """Every spelling of every device."""
    return Names("device", aliases_of(shipped("devices.yaml").devices), "meshwright catalog devices")


@cache
def device(name: str) -> Device:
    """A device by name or alias, in any case of letters."""
    canonical = device_names().resolve(name)
    return build_device(canonical, record_of(canonical), shipped("devices.yaml"))


@cache
def record_of(name: str) -> DeviceRecord:
    """The structured block of a device by its name."""
    sheet = shipped("devices.yaml")
    return read_device(sheet, name)


def read_device(sheet: Sheet, name: str) -> DeviceRecord:
    """The structured block of a device in any sheet."""
    return record_in(sheet, sheet.devices[name], DeviceRecord, where=sheet.where("devices", name))


def build_device(name: str, record: DeviceRecord, sheet: Sheet) -> Device:
    """The value that the program works with."""
    return Device(
        name=name,
        family=record.family,
        memory_bytes=int(record.memory.base),
        memory_bytes_per_s=record.memory_bandwidth.base,
        peak_flops_per_s={dtype: peak.base for dtype, peak in record.peak.items()},
        num_units=int(record.units.base),
        scale_up_bytes_per_s=record.scale_up.base,
        power_w=record.power.base,
        aliases=record.aliases,
        source="; ".join(dict.fromkeys(figure.source for figure in provenance_of(record, sheet.sources).values())),
        assumed=assumed_in(record),
        synchronous=record.synchronous,
    )


def device_provenance(name: str) -> Mapping[str, Provenance]:
    """Every figure of a device: value, unit and source as written in the file."""
    return provenance_of(record_of(device_names().resolve(name)), shipped("devices.yaml").sources)
