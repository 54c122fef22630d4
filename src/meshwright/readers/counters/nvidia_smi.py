"""``nvidia-smi --query-gpu=... --format=csv``: columns by name, units in the header or in the cells or in neither.

The index may be missing: then the uuid or the bus tells devices apart, else the order of rows that share a time.
``noheader`` leaves nothing to tell columns by and is not read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING

from meshwright.domain.observed import Counters
from meshwright.readers.counters.series import UNITS, AllSeries, reasons_of
from meshwright.readers.formats import Format
from meshwright.readers.lines import lines
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.readers.source import Source

FIGURES = {
    "utilization.gpu": ("utilization_ratio", "%"), "utilization.memory": ("memory_utilization_ratio", "%"),
    "memory.used": ("memory_used_bytes", "mib"), "memory.total": ("memory_total_bytes", "mib"),
    "memory.free": ("memory_free_bytes", "mib"),
    "power.draw": ("power_w", "w"), "power.draw.average": ("power_w", "w"), "power.draw.instant": ("power_w", "w"),
    "power.limit": ("power_limit_w", "w"), "enforced.power.limit": ("power_limit_w", "w"),
    "clocks.sm": ("clock_hz", "mhz"), "clocks.current.sm": ("clock_hz", "mhz"), "clocks.gr": ("graphics_clock_hz", "mhz"),
    "clocks.current.graphics": ("graphics_clock_hz", "mhz"), "clocks.mem": ("memory_clock_hz", "mhz"),
    "clocks.current.memory": ("memory_clock_hz", "mhz"), "clocks.max.sm": ("max_clock_hz", "mhz"),
    "temperature.gpu": ("temperature_c", "c"), "temperature.memory": ("memory_temperature_c", "c"),
}
"""Column -> figure, and the unit that it has where neither header nor cell says (``nounits``)."""
ACTIVE = {
    "sw_power_cap": "software power cap", "hw_slowdown": "hardware slowdown", "sw_thermal_slowdown": "software thermal",
    "hw_thermal_slowdown": "hardware thermal", "hw_power_brake_slowdown": "power brake",
}
"""Last part of ``clocks_throttle_reasons.*`` and ``clocks_event_reasons.*`` -> reason."""
DEVICES = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
_HEAD = re.compile(r"^([a-z_]+(?:\.[a-z_]+)*)\s*(?:\[([^\]]{0,10})\])?$")
_CELL = re.compile(r"^([+-]?\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z%]{0,4})$")
_TIME = re.compile(r"^(\d{4})[/-](\d\d)[/-](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_TOLD = re.compile(rb"(?m)^[ \t]*(?:[a-z_.]{1,60}(?: \[[^\]\n]{0,10}\])?, ?){0,60}"
                   rb"(?:utilization\.gpu|memory\.used|power\.draw|clocks\.[a-z.]{1,30}|temperature\.gpu)(?: \[|, |\s*$)")


@lru_cache(maxsize=64)
def seconds_of(text: str) -> float | None:
    """Seconds of a time such as ``2020/11/12 13:48:11.412``, taken as UTC; None where it is none."""
    found = _TIME.match(text.strip())
    if found is None:
        return None
    try:
        at = datetime(*(int(each) for each in found.groups()[:6]), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    return at.timestamp() + (int(found[7].ljust(6, "0")) * 1e-6 if found[7] else 0.0)


class _Header(Value, frozen=True):
    """Which column holds what; -1 where none does."""

    width: int
    figures: tuple[tuple[int, str, str], ...]
    """Column, figure, unit of cells that have none."""
    reasons: tuple[tuple[int, str], ...]
    device: int
    time: int
    name: int


def _header(cells: Sequence[str]) -> _Header | None:
    """The header that a line is; None for other lines."""
    heads = [_HEAD.match(each) for each in cells]
    names = [found[1] for found in heads if found]
    if len(names) < max(2, len(cells)) or not any(each in FIGURES for each in names):
        return None

    def place(*wanted: str) -> int:
        return next((names.index(each) for each in wanted if each in names), -1)

    units = [(found[2] or "").lower() for found in heads if found]
    return _Header(
        width=len(cells), device=place(*DEVICES), time=place("timestamp"), name=place("name", "gpu_name"),
        figures=tuple((at, FIGURES[name][0], unit or FIGURES[name][1])
                      for at, (name, unit) in enumerate(zip(names, units, strict=True)) if name in FIGURES),
        reasons=tuple((at, name.rpartition(".")[2]) for at, name in enumerate(names)
                      if name.startswith(("clocks_throttle_reasons.", "clocks_event_reasons."))))


def read(source: Source) -> tuple[Counters, ...]:
    """Every device's samples; a header that comes again, with other columns perhaps, begins anew."""
    every = AllSeries()
    header: _Header | None = None
    bad = place = 0
    previous = ""
    for line in lines(source):
        cells = [each.strip() for each in next(csv.reader([line.text], skipinitialspace=True), [])]
        if header is None or (cells and _HEAD.match(cells[-1])):
            found = _header(cells)
            if found or header is None:
                header = found
                continue
        if len(cells) != header.width:
            bad += bool(cells)
            continue
        time = cells[header.time] if header.time >= 0 else ""
        device = cells[header.device] if header.device >= 0 else ""
        if not device:
            place = place + 1 if time and time[:19] == previous[:19] else 0
            device = str(place)
        previous = time
        series = every.of(device)
        if series is None:
            break
        if header.name >= 0:
            series.name = series.name or cells[header.name][:80]
        values = ((figure, value_of(cells[at], unit)) for at, figure, unit in header.figures)
        figures = {figure: value for figure, value in values if value is not None}
        if figures:
            series.add(figures, _reasons((last, cells[at]) for at, last in header.reasons), seconds_of(time))
        else:
            bad += 1
    devices = every.all()
    notes = (f"{bad:,} lines do not have the header's columns, or no figure",) if bad else ()
    return (Counters(file=source.shown, format="nvidia_smi_csv", devices=devices, notes=notes),) if devices else ()


def value_of(cell: str, unit: str) -> float | None:
    """A cell in SI or as a ratio; None for ``[N/A]``, ``[Not Supported]`` and whatever else is no number.

    >>> value_of("99 %", ""), value_of("30994 MiB", "mib"), value_of("[N/A]", "w")
    (0.99, 32499564544.0, None)
    """
    found = _CELL.match(cell)
    factor = UNITS.get((found[2] or unit).lower()) if found else None
    if found is None or factor is None:
        return None
    value = float(found[1]) * factor
    return value if isfinite(value) else None


def _reasons(cells: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Why clocks are held down, from the bits or from a column each."""
    found: list[str] = []
    for last, cell in cells:
        if last == "active" and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell):
            found += reasons_of(int(cell, 16))
        elif last in ACTIVE and cell == "Active":
            found.append(ACTIVE[last])
    return tuple(dict.fromkeys(found))


def _told(sample: bytes) -> bool:
    return _TOLD.search(sample) is not None


FORMAT = Format(name="nvidia_smi_csv", says="samples of nvidia-smi --query-gpu --format=csv", told=_told, read=read)
