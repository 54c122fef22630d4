"""``nvidia-smi --query-gpu=... --format=csv``: columns by name, units in the header or in the cells or in neither.

The index may be missing: then the uuid or the bus tells devices apart, else the order of rows that share a time.
``noheader`` leaves nothing to tell columns by and is not read.
"""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING

from meshwright.domain.observed import Counters
from meshwright.readers.counters.series import UNITS, AllSeries, reasons_of
from meshwright.readers.formats import Format
from meshwright.readers.lines import lines

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


def read(source: Source) -> tuple[Counters, ...]:
    """Every device's samples; a header that comes again, with other columns perhaps, begins anew."""
    every = AllSeries()
    columns: list[tuple[str, str]] = []
    bad = place = 0
    previous = ""
    for line in lines(source):
        cells = [each.strip() for each in next(csv.reader([line.text], skipinitialspace=True), [])]
        heads = [_HEAD.match(each) for each in cells]
        if len(cells) > 1 and all(heads) and any(found and found[1] in FIGURES for found in heads):
            columns = [(found[1], (found[2] or "").lower()) for found in heads if found]
            continue
        if not columns or not cells:
            continue
        if len(cells) != len(columns):
            bad += 1
            continue
        row = {name: (cell, unit) for (name, unit), cell in zip(columns, cells, strict=True)}
        device = next((row[name][0] for name in DEVICES if name in row), "")
        time = row.get("timestamp", ("", ""))[0]
        if not device:
            place = place + 1 if time and time[:19] == previous[:19] else 0
            device = str(place)
        previous = time
        series = every.of(device)
        if series is None:
            break
        series.name = series.name or row.get("name", row.get("gpu_name", ("", "")))[0][:80]
        figures: dict[str, float] = {}
        for name, (cell, unit) in row.items():
            if name in FIGURES and (value := value_of(cell, unit or FIGURES[name][1])) is not None:
                figures[FIGURES[name][0]] = value
        if figures:
            series.add(figures, _reasons({name: cell for name, (cell, _) in row.items()}), seconds_of(time))
        else:
            bad += 1
    found = every.all()
    notes = (f"{bad:,} lines do not have the header's columns, or no figure",) if bad else ()
    return (Counters(file=source.shown, format="nvidia_smi_csv", devices=found, notes=notes),) if found else ()


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


def _reasons(row: dict[str, str]) -> tuple[str, ...]:
    """Why clocks are held down, from the bits or from a column each."""
    found: list[str] = []
    for name, cell in row.items():
        head, _, last = name.partition(".")
        if head not in {"clocks_throttle_reasons", "clocks_event_reasons"}:
            continue
        if last == "active" and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell):
            found += reasons_of(int(cell, 16))
        elif last in ACTIVE and cell == "Active":
            found.append(ACTIVE[last])
    return tuple(dict.fromkeys(found))


def _told(sample: bytes) -> bool:
    return _TOLD.search(sample) is not None


FORMAT = Format(name="nvidia_smi_csv", says="samples of nvidia-smi --query-gpu --format=csv", told=_told, read=read)
