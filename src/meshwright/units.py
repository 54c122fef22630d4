"""SI constants, and the one place where base units become words for people.

Inside the program sizes are bytes, times are seconds and work is FLOP; GiB, ms and TFLOP/s appear only here and in the
catalogue's figures.
"""

from __future__ import annotations

KILO, MEGA, GIGA, TERA, PETA = 1e3, 1e6, 1e9, 1e12, 1e15
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
MICRO, MILLI = 1e-6, 1e-3
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0

FACTORS: dict[str, float] = {
    "1": 1.0, "ratio": 1.0, "count": 1.0,
    "B": 1.0, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "KB": KILO, "MB": MEGA, "GB": GIGA, "TB": TERA,
    "B/s": 1.0, "GB/s": GIGA, "TB/s": TERA, "GiB/s": GIB, "Gbit/s": GIGA / 8,
    "s": 1.0, "ms": MILLI, "us": MICRO,
    "FLOP/s": 1.0, "GFLOP/s": GIGA, "TFLOP/s": TERA, "PFLOP/s": PETA,
    "W": 1.0, "kW": KILO,
}
"""Unit of a catalogue figure -> factor to the base unit. An unknown unit is an error of the data file."""


def gib(size_bytes: float) -> str:
    """Bytes as GiB with one decimal, for people."""
    return f"{size_bytes / GIB:z.1f} GiB"


def count(value: float) -> str:
    """A count with the suffix K, M, B or T and three significant figures, for people.

    >>> count(999.4e6), count(999.6e6), count(70.6e9)
    ('999M', '1B', '70.6B')
    """
    for factor, suffix in ((TERA, "T"), (GIGA, "B"), (MEGA, "M"), (KILO, "K")):
        if abs(value) >= factor * (1.0 - 0.5 / KILO):  # what three figures round up to it
            return f"{value / factor:z.3g}{suffix}"
    return f"{value:z.3g}"
