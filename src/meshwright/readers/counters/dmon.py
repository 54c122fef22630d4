"""``nvidia-smi dmon`` and ``dcgmi dmon``: columns under headers that come again and again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.domain.observed import Counters
from meshwright.readers.counters.series import UNITS, AllSeries
from meshwright.readers.formats import Format
from meshwright.readers.lines import lines
from meshwright.readers.loose import amount

if TYPE_CHECKING:
    from meshwright.readers.source import Source

FIGURES = {
    "pwr": ("power_w", "W"), "gtemp": ("temperature_c", "C"), "temp": ("temperature_c", "C"),
    "mtemp": ("memory_temperature_c", "C"),
    "sm": ("utilization_ratio", "%"), "mem": ("memory_utilization_ratio", "%"), "mclk": ("memory_clock_hz", "MHz"),
    "pclk": ("clock_hz", "MHz"), "fb": ("memory_used_bytes", "MiB"),
    "GPUTL": ("utilization_ratio", "%"), "MCUTL": ("memory_utilization_ratio", "%"), "POWER": ("power_w", "W"),
    "TMPTR": ("temperature_c", "C"), "MMTMP": ("memory_temperature_c", "C"), "SMCLK": ("clock_hz", "MHz"),
    "MMCLK": ("memory_clock_hz", "MHz"), "FBUSD": ("memory_used_bytes", "MiB"), "FBTTL": ("memory_total_bytes", "MiB"),
    "SMACT": ("sm_active_ratio", ""), "SMOCC": ("sm_occupancy_ratio", ""), "TENSO": ("tensor_active_ratio", ""),
    "DRAMA": ("dram_active_ratio", ""), "GRACT": ("graphics_active_ratio", ""),
}
"""Column -> figure and unit: lower case of nvidia-smi, upper case of dcgmi (whose activities are ratios)."""
VIOLATIONS = {"pviol": "software power cap", "tviol": "thermal"}
SENTINEL = 2**62
"""Blank values of DCGM lie above."""
_HEAD = re.compile(r"^#\s*(?:Entity|gpu|Date)\b")
_TOLD = re.compile(rb"(?m)^#[ \t]*(?:Entity[ \t]{1,20}[A-Z0-9]{3,6}|gpu[ \t]{1,20}(?:pwr|sm|mclk|fb|rxpci))\b")


def read(source: Source) -> tuple[Counters, ...]:
    """Every device's samples."""
    every = AllSeries()
    columns: list[str] = []
    bad = 0
    for line in lines(source):
        text = line.text.strip()
        if _HEAD.match(text):
            columns = text.lstrip("#").split()
            continue
        if not columns or not text or text.startswith(("#", "ID")):
            continue
        cells = text.split()
        device, cells, names = _device(cells, columns)
        if device is None or len(cells) < len(names):
            bad += 1
            continue
        row = dict(zip(names, cells, strict=False))
        figures = {}
        for name, cell in row.items():
            value = amount(cell)
            if name in FIGURES and value is not None and value < SENTINEL:
                figure, unit = FIGURES[name]
                figures[figure] = value * UNITS[unit.lower()]
        series = every.of(device)
        if series is None:
            break
        if figures:
            series.add(figures, tuple(reason for name, reason in VIOLATIONS.items() if (amount(row.get(name)) or 0) > 0))
    found = every.all()
    notes = (f"{bad:,} lines do not have the header's columns",) if bad else ()
    return (Counters(file=source.shown, format="dmon", devices=found, notes=notes),) if found else ()


def _device(cells: list[str], columns: list[str]) -> tuple[str | None, list[str], list[str]]:
    """Which device a row is of, its other cells, and their columns: ``GPU 0`` under ``Entity``, a number under ``gpu``."""
    if columns[0] == "Entity":
        if len(cells) < 2 or not cells[0].isalpha() or not re.fullmatch(r"\d{1,6}", cells[1]):
            return None, [], []
        return (cells[1] if cells[0] == "GPU" else f"{cells[0]} {cells[1]}"), cells[2:], columns[1:]
    at = columns.index("gpu") if "gpu" in columns else -1
    if at < 0 or len(cells) <= at or not re.fullmatch(r"\d{1,6}", cells[at]):
        return None, [], []
    return cells[at], cells[at + 1:], columns[at + 1:]


def _told(sample: bytes) -> bool:
    return _TOLD.search(sample) is not None


FORMAT = Format(name="dmon", says="samples of nvidia-smi dmon and dcgmi dmon", told=_told, read=read)
