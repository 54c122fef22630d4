"""Set-ups of NCCL, bandwidth benchmarks and NCCL's inspector."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from benchmarks.samples import Expected
from meshwright.diagnose.bandwidth import judge_table
from meshwright.diagnose.finding import Finding
from meshwright.diagnose.network import judge_setup
from meshwright.domain.observed import Bandwidth, Bandwidths, NetworkSetup
from meshwright.readers.formats import Observed


def _setup(observed: Observed) -> NetworkSetup:
    return next(each for each in observed.observations if isinstance(each, NetworkSetup))


def _table(observed: Observed) -> Bandwidths:
    return next(each for each in observed.observations if isinstance(each, Bandwidths))


def _says(file: str, what: str, want: float | str | None, got: Callable[[NetworkSetup], float | str | None]) -> Expected:
    return Expected(file=file, what=what, want=want, got=lambda observed: got(_setup(observed)))


def _reaches(file: str, what: str, want: float | str | None, got: Callable[[Bandwidths], float | str | None],
             tolerance_ratio: float = 1e-6) -> Expected:
    return Expected(file=file, what=what, want=want, got=lambda observed: got(_table(observed)), tolerance_ratio=tolerance_ratio)


def _times(id: str) -> Callable[[NetworkSetup], float]:
    return lambda setup: sum(each.times for each in setup.signs if each.id == id)


def _peak(*, in_place: bool) -> Callable[[Bandwidths], float]:
    return lambda table: max(each.bus_bytes_per_s for each in table.rows if each.in_place is in_place) / 1e9


def _at(size: float, *, in_place: bool = False) -> Callable[[Bandwidths], Bandwidth]:
    return lambda table: next(each for each in table.rows if each.message_bytes == size and each.in_place is in_place)


def _judged(file: str, want: str) -> Expected:
    def ask(observed: Observed) -> str:
        found = [each for observation in observed.observations for each in (
            judge_setup(observation) if isinstance(observation, NetworkSetup)
            else judge_table(observation) if isinstance(observation, Bandwidths) else ())]
        wrong = [each for each in found if each.severity != "advice"]
        return ", ".join(f"{each.id} ({each.severity}, {_reason(each)})" for each in wrong) or "nothing"

    return Expected(file=file, what="what is wrong", want=want, got=ask)


def _reason(judged: Finding) -> str:
    place = judged.evidence[0].place
    reasons = judged.message.values.get("reasons")
    return " ".join(map(str, reasons)) if isinstance(reasons, tuple) else f"line {place.line if place else None}"


_LO, _FALLBACK = "nccl_debug/issue_nccl_1053_socket_lo.log", "nccl_debug/issue_nccl_952_socket_fallback.log"
_DIRECT, _NONE = "nccl_debug/issue_nccl_997_megatron_IB_GDRDMA.log", "nccl_debug/issue_pytorch_124380_no_ib_device.log"
_P5, _AWS = "nccl_debug/p5_nvls_and_tests.log", "nccl_tests/awsome_2x_p5_allreduce.txt"
_CLIFF, _INSPECTOR = "nccl_tests/issue_nccl_1453_poor_allreduce_rankprefix.txt", "nccl_inspector/readme_examples.jsonl"
_N4, _N1 = "allreduce_bench/bigscience_all_reduce_bench-a100-n4.txt", "allreduce_bench/bigscience_n1_16gb_all_reduce_bench.txt"

EXPECTED: tuple[Expected, ...] = (
    _says(_LO, "network", "Socket", lambda setup: setup.network),
    _says(_LO, "interfaces", "lo", lambda setup: ",".join(setup.interfaces)),
    _says(_LO, "environment", "NCCL_IBEXT_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo",
          lambda setup: " ".join(f"{name}={value}" for name, value in setup.environment.items())),
    _says(_LO, "bandwidth the library believes, GB/s", 1.2, lambda setup: (setup.bandwidth_bytes_per_s or 0) / 1e9),
    _says(_LO, "of all paths, GB/s", 264.0, lambda setup: (setup.total_bandwidth_bytes_per_s or 0) / 1e9),
    _says(_LO, "adapters without GPUDirect", 1, _times("network.not_direct")),
    _says(_FALLBACK, "channels P2P/IPC", 3, lambda setup: setup.transports["P2P/IPC"]),
    _says(_FALLBACK, "channels NET/Socket", 4, lambda setup: setup.transports["NET/Socket"]),
    _says(_FALLBACK, "warnings", 1, _times("network.warning")),
    _says(_FALLBACK, "highest rank", 10, lambda setup: (setup.world or 0) - 1),
    _says(_DIRECT, "channels P2P/IPC", 3, lambda setup: setup.transports["P2P/IPC"]),
    _says(_DIRECT, "channels NET/IB with GPUDirect", 12, lambda setup: setup.transports["NET/IB/GDRDMA"]),
    _says(_DIRECT, "channels NET/IB without", 0, lambda setup: setup.transports.get("NET/IB", 0)),
    _says(_DIRECT, "adapters of channels", "2,4,5,7,8", lambda setup: ",".join(map(str, setup.adapters))),
    _says(_DIRECT, "channels through another device's adapter", 7, lambda setup: setup.forwarded),
    _says(_DIRECT, "complaints", 0, lambda setup: len(setup.signs)),
    _says(_NONE, "network", "Socket", lambda setup: setup.network),
    _says(_NONE, "interfaces", "eno3", lambda setup: ",".join(setup.interfaces)),
    _says(_NONE, "no device found", 2, _times("network.no_device")),
    _says(_P5, "collective channels", 16, lambda setup: setup.channels["collective"]),
    _says(_P5, "NVLS channels", 16, lambda setup: setup.channels["nvls"]),
    _says(_P5, "point-to-point channels", 16, lambda setup: setup.channels["point-to-point"]),
    _says(_P5, "collnet channels (three-field form)", None, lambda setup: setup.channels.get("collnet")),
    _reaches(_P5, "2 GiB out of place, GB/s", 438.85, lambda table: _at(2**31)(table).bus_bytes_per_s / 1e9),
    _reaches(_P5, "2 GiB in place, GB/s", 439.28, lambda table: _at(2**31, in_place=True)(table).bus_bytes_per_s / 1e9),
    _reaches(_P5, "rows, the average not among them", 2, lambda table: len(table.rows)),
    _reaches(_AWS, "sizes", 32, lambda table: len({each.message_bytes for each in table.rows})),
    _reaches(_AWS, "least message, bytes", 8, lambda table: min(each.message_bytes for each in table.rows)),
    _reaches(_AWS, "largest message, bytes", 2**34, lambda table: max(each.message_bytes for each in table.rows)),
    _reaches(_AWS, "peak out of place, GB/s", 487.09, _peak(in_place=False)),
    _reaches(_AWS, "peak in place, GB/s", 487.26, _peak(in_place=True)),
    _reaches(_AWS, "ranks, from the rates", 16, lambda table: table.ranks),
    _reaches(_CLIFF, "sizes", 10, lambda table: len({each.message_bytes for each in table.rows})),
    _reaches(_CLIFF, "peak out of place, GB/s", 29.50, _peak(in_place=False)),
    _reaches(_CLIFF, "peak in place, GB/s", 28.14, _peak(in_place=True)),
    _reaches(_CLIFF, "behind the cliff, GB/s", 5.27, lambda table: _at(64 * 2**20)(table).bus_bytes_per_s / 1e9),
    _reaches(_CLIFF, "ranks, from the rates", 24, lambda table: table.ranks),
    _reaches(_N4, "records", 160, lambda table: len(table.rows)),
    _reaches(_N4, "median, Gbps", 40.543, lambda table: median(each.bus_bytes_per_s for each in table.rows) * 8e-9, 1e-4),
    _reaches(_N4, "median, GB/s", 5.07, lambda table: median(each.bus_bytes_per_s for each in table.rows) / 1e9, 1e-3),
    _reaches(_N4, "ranks", 32, lambda table: table.ranks),
    _says(_N4, "network", "IB", lambda setup: setup.network),
    _says(_N4, "nodes", 4, lambda setup: setup.nodes),
    _says(_N4, "world", 32, lambda setup: setup.world),
    _says(_N4, "channels NET/IB", 40, lambda setup: setup.transports["NET/IB"]),
    _says(_N4, "channels with GPUDirect", 0, lambda setup: setup.transports.get("NET/IB/GDRDMA", 0)),
    _says(_N4, "ranks that told their trees", 32, lambda setup: setup.trees),
    _reaches(_N1, "records", 20, lambda table: len(table.rows)),
    _reaches(_N1, "median, Gbps", 998.80, lambda table: median(each.bus_bytes_per_s for each in table.rows) * 8e-9, 1e-5),
    _reaches(_N1, "median, GB/s", 124.9, lambda table: median(each.bus_bytes_per_s for each in table.rows) / 1e9, 1e-3),
    _reaches(_N1, "first record, Gbps", 72.4, lambda table: table.rows[0].bus_bytes_per_s * 8e-9, 1e-3),
    _reaches(_N1, "ranks", 4, lambda table: table.ranks),
    _says(_N1, "nodes", 1, lambda setup: setup.nodes),
    _says(_N1, "ranks that told their trees", 4, lambda setup: setup.trees),
    _reaches(_INSPECTOR, "records", 2, lambda table: sum(each.count for each in table.rows)),
    _reaches(_INSPECTOR, "first", "AllReduce 17179869184 B, 8 ranks, 61974 us", lambda table: _record(table.rows[0])),
    _reaches(_INSPECTOR, "algorithm, GB/s", 277.210914, lambda table: table.rows[0].algorithm_bytes_per_s / 1e9),
    _reaches(_INSPECTOR, "bus, GB/s", 485.119099, lambda table: table.rows[0].bus_bytes_per_s / 1e9),
    _reaches(_INSPECTOR, "second", "ReduceScatter 2147483648 B, 8 ranks, 41057 us", lambda table: _record(table.rows[1])),
    _reaches(_INSPECTOR, "its algorithm, GB/s", 418.439467, lambda table: table.rows[1].algorithm_bytes_per_s / 1e9),
    _reaches(_INSPECTOR, "its bus, GB/s", 366.134533, lambda table: table.rows[1].bus_bytes_per_s / 1e9),
    _judged(_LO, "network.tcp (error, environment), network.loopback (error, line 4)"),
    _judged(_FALLBACK, "network.tcp (error, unknown)"),
    _judged(_DIRECT, "nothing"),
    _judged(_NONE, "network.tcp (error, no_device)"),
    _judged(_P5, "nothing"),
    _judged(_AWS, "nothing"),
    _judged(_CLIFF, "bandwidth.cliff (warning, line 7)"),
    _judged(_N4, "network.not_direct (warning, line 312)"),
    _judged(_N1, "nothing"),
    _judged(_INSPECTOR, "nothing"),
    _reaches(_INSPECTOR, "absence is no evidence", 1, lambda table: sum("may still have happened" in each for each in table.notes)),
)


def _record(row: Bandwidth) -> str:
    return f"{row.operation} {row.message_bytes:.0f} B, {row.ranks} ranks, {(row.time_s or 0) * 1e6:.0f} us"
