"""Fields of DCGM: its exporter's Prometheus text, scraped once or many times into one file, or a table with commas."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.domain.observed import Counters
from meshwright.readers.counters.series import AllSeries, reasons_of
from meshwright.readers.formats import Format
from meshwright.readers.lines import lines
from meshwright.readers.loose import amount

if TYPE_CHECKING:
    from meshwright.readers.source import Source

FIGURES = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_ratio", 0.01), "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_utilization_ratio", 0.01),
    "DCGM_FI_DEV_SM_CLOCK": ("clock_hz", 1e6), "DCGM_FI_DEV_MEM_CLOCK": ("memory_clock_hz", 1e6),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1.0), "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temperature_c", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0), "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", 2.0**20),
    "DCGM_FI_DEV_FB_FREE": ("memory_free_bytes", 2.0**20), "DCGM_FI_DEV_FB_TOTAL": ("memory_total_bytes", 2.0**20),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_ratio", 1.0), "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_ratio", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_ratio", 1.0), "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_ratio", 1.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("graphics_active_ratio", 1.0),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_sent_bytes_per_s", 1.0),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_received_bytes_per_s", 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_sent_bytes_per_s", 1.0), "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_received_bytes_per_s", 1.0),
    "DCGM_FI_DEV_XID_ERRORS": ("xid", 1.0), "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit_w", 1.0),
}
"""Field -> figure and what one of it is."""
REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
HOSTS, DEVICES = ("Hostname", "hostname", "host"), ("gpu", "GPU-Id", "gpu_id", "Entity", "UUID")
"""Columns of tables."""
SENTINEL = 2**62
"""Blank values (9223372036854775792 and what follows) lie above; those of 32 bits are 2147483632 and what follows."""
BLANK_32 = range(2147483632, 2147483648)
_METRIC = re.compile(r"^(DCGM_FI_[A-Z0-9_]{1,80})\{(.{0,4000})\}\s+(\S{1,40})")
_LABEL = re.compile(r'(\w{1,60})="([^"]{0,200})"')


@dataclass(slots=True)
class _Samples:
    """What is known of each device: fields that came since its last sample was complete, and all its samples."""

    every: AllSeries = field(default_factory=AllSeries)
    pending: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    blank: int = 0

    def take(self, host: str, device: str, name: str, text: str, model: str = "") -> None:
        """One field; one that the device's sample has already begins the next."""
        value = amount(text)
        series = self.every.of(device, host)
        if value is None or value >= SENTINEL or int(value) in BLANK_32:
            self.blank += 1
        elif series is not None:
            series.name = series.name or model
            if name in REASONS:
                self.reasons[host, device] = reasons_of(int(value))
            elif name in FIGURES:
                figure, factor = FIGURES[name]
                if figure in self.pending.get((host, device), {}):
                    self.close(host, device)
                self.pending.setdefault((host, device), {})[figure] = value * factor

    def close(self, host: str, device: str) -> None:
        """The device's sample is complete."""
        series = self.every.of(device, host)
        figures = self.pending.pop((host, device), {})
        if series is not None and figures:
            series.add(figures, self.reasons.pop((host, device), ()))


def read(source: Source) -> tuple[Counters, ...]:
    """Every device's fields, from the exporter's text or from a table with the fields' names over its columns."""
    samples = _Samples()
    header: list[str] = []
    for line in lines(source):
        text = line.text
        if found := _METRIC.match(text):
            labels: dict[str, str] = dict(_LABEL.findall(found[2]))
            samples.take(labels.get("Hostname", labels.get("hostname", "")), labels.get("gpu", labels.get("UUID", "")),
                         found[1], found[3], labels.get("modelName", ""))
            continue
        cells = [each.strip() for each in text.split(",")]
        if len(cells) > 1 and any(each in FIGURES for each in cells):
            header = cells
        elif header and len(cells) == len(header):
            row = dict(zip(header, cells, strict=True))
            host = next((row[each] for each in HOSTS if each in row), "")
            device = next((row[each] for each in DEVICES if each in row), "0")
            for name in header:
                if name in FIGURES or name in REASONS:
                    samples.take(host, device, name, row[name])
            samples.close(host, device)
    for host, device in list(samples.pending):
        samples.close(host, device)
    devices = samples.every.all()
    notes = (f"{samples.blank:,} blank values are left out",) if samples.blank else ()
    return (Counters(file=source.shown, format="dcgm", devices=devices, notes=notes),) if devices else ()


def _told(sample: bytes) -> bool:
    return b"DCGM_FI_" in sample


FORMAT = Format(name="dcgm", says="fields of DCGM (its exporter's text, or a table)", told=_told, read=read)
