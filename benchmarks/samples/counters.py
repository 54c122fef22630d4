"""Samples of nvidia-smi and DCGM."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.samples import Expected
from meshwright.domain.observed import Counters
from meshwright.readers.formats import Observed

_CSV, _DMON = "nvidia_smi_csv/unikl_v100_util.csv", "nvidia_smi_csv/issue_mozilla_DeepSpeech_178_dmon.txt"
_DCGM = "dcgm/dcgm_exporter_readme.prom"


def _counted(file: str, what: str, want: float | str | None, got: Callable[[Counters], float | str | None],
             tolerance_ratio: float = 1e-6) -> Expected:
    def ask(observed: Observed) -> float | str | None:
        return got(next(each for each in observed.observations if isinstance(each, Counters)))

    return Expected(file=file, what=what, want=want, got=ask, tolerance_ratio=tolerance_ratio)


def _each(figure: str, unit: float) -> Callable[[Counters], str]:
    return lambda counters: "/".join(f"{each.means[figure] / unit:.0f}" for each in counters.devices)


EXPECTED: tuple[Expected, ...] = (
    _counted(_CSV, "devices", "0", lambda counters: ",".join(each.device for each in counters.devices)),
    _counted(_CSV, "samples", 9, lambda counters: counters.devices[0].samples),
    _counted(_CSV, "seconds between them", 5, lambda counters: counters.devices[0].period_s, 1e-3),
    _counted(_CSV, "mean utilisation, %", 91.56, lambda counters: counters.devices[0].means["utilization_ratio"] * 100, 1e-4),
    _counted(_CSV, "least utilisation, %", 32, lambda counters: counters.devices[0].least["utilization_ratio"] * 100),
    _counted(_CSV, "memory used, MiB", 30994, lambda counters: counters.devices[0].means["memory_used_bytes"] / 2**20),
    _counted(_CSV, "memory, MiB", 32480, lambda counters: counters.devices[0].means["memory_total_bytes"] / 2**20),
    _counted(_DMON, "devices", "0,1,2,3", lambda counters: ",".join(each.device for each in counters.devices)),
    _counted(_DMON, "utilisation, %", "25/18/24/18", _each("utilization_ratio", 0.01)),
    _counted(_DMON, "power, W", "111/111/112/86", _each("power_w", 1)),
    _counted(_DMON, "memory used, MB", "11651/11653/11653/11660", _each("memory_used_bytes", 2**20)),
    _counted(_DCGM, "clock, MHz", 139, lambda counters: counters.devices[0].means["clock_hz"] / 1e6),
    _counted(_DCGM, "memory clock, MHz", 405, lambda counters: counters.devices[0].means["memory_clock_hz"] / 1e6),
    _counted(_DCGM, "memory temperature: blank", None, lambda counters: counters.devices[0].means.get("memory_temperature_c")),
)
