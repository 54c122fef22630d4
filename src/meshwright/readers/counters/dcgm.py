"""What DCGM's exporter says, as Prometheus text, once or scraped many times into one file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.domain.observed import Counters
from meshwright.readers.counters.series import AllSeries, reasons_of
from meshwright.readers.formats import Format
from meshwright.readers.lines import anchored
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
SENTINEL = 2**62
"""Blank values (9223372036854775792 and what follows) lie above; those of 32 bits are 2147483632 and what follows."""
BLANK_32 = range(2147483632, 2147483648)
_METRIC = re.compile(r"^(DCGM_FI_[A-Z0-9_]{1,80})\{(.{0,4000})\}\s+(\S{1,40})")
_LABEL = re.compile(r'(\w{1,60})="([^"]{0,200})"')


def read(source: Source) -> tuple[Counters, ...]:
    """Every device's fields; a field that comes again for a device is its next sample."""
    every = AllSeries()
    pending: dict[tuple[str, str], dict[str, float]] = {}
    reasons: dict[tuple[str, str], tuple[str, ...]] = {}
    blank = 0

    def close(key: tuple[str, str]) -> None:
        series = every.of(key[1], key[0])
        figures = pending.pop(key, {})
        if series is not None and figures:
            series.add(figures, reasons.pop(key, ()))

    for (line, *_) in anchored(source, (b"DCGM_FI_",)):
        found = _METRIC.match(line.text)
        if found is None:
            continue
        labels: dict[str, str] = dict(_LABEL.findall(found[2]))
        key = (labels.get("Hostname", labels.get("hostname", "")), labels.get("gpu", labels.get("UUID", "")))
        value = amount(found[3])
        if value is None or value >= SENTINEL or int(value) in BLANK_32:
            blank += 1
            continue
        if every.of(key[1], key[0]) is None:
            break
        series = every.found[key]
        series.name = series.name or labels.get("modelName", "")
        if found[1] in REASONS:
            reasons[key] = reasons_of(int(value))
        elif found[1] in FIGURES:
            figure, factor = FIGURES[found[1]]
            if figure in pending.get(key, {}):
                close(key)
            pending.setdefault(key, {})[figure] = value * factor
    for key in list(pending):
        close(key)
    devices = every.all()
    notes = (f"{blank:,} blank values are left out",) if blank else ()
    return (Counters(file=source.shown, format="dcgm", devices=devices, notes=notes),) if devices else ()


def _told(sample: bytes) -> bool:
    return b"DCGM_FI_" in sample


FORMAT = Format(name="dcgm", says="fields of DCGM's exporter (Prometheus text)", told=_told, read=read)
