"""What devices counted while a run went on."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from meshwright.value import Value


class DeviceSeries(Value, frozen=True, kw_only=True):
    """Samples of one device; ratios, watts, bytes, hertz, degrees."""

    device: str
    host: str = ""
    name: str = ""
    """``NVIDIA H100 80GB HBM3``."""
    samples: int = 0
    period_s: float | None = None
    means: Mapping[str, float] = field(default_factory=dict)
    """Figure -> mean: ``utilization_ratio``, ``memory_used_bytes``, ``memory_total_bytes``, ``power_w``, ``clock_hz``,
    ``temperature_c``, ``tensor_active_ratio``, ``sm_active_ratio``, ``dram_active_ratio``."""
    least: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    throttled: Mapping[str, int] = field(default_factory=dict)
    """Reason -> samples: ``software power cap``, ``hardware slowdown``, ``thermal``, ``power brake``."""


class Counters(Value, frozen=True, kw_only=True):
    """A file of samples."""

    file: str
    format: str
    devices: tuple[DeviceSeries, ...]
    notes: tuple[str, ...] = ()
