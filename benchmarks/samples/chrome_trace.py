"""Chrome traces: the list's own figures, and the reference outputs of HTA and TraceLens for the windows that these take.

HTA drops the last annotated step and rounds every start up and every end down to whole microseconds, which takes one microsecond of
each kernel: where a trace has finer times, its shares are asked of the same rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from benchmarks.samples import Expected, directory
from meshwright.domain.observed import RankSplit, RankTrace
from meshwright.readers.formats import Observed
from meshwright.readers.source import Source
from meshwright.readers.traces.columns import Columns, Device
from meshwright.readers.traces.event import Event
from meshwright.readers.traces.names import CLASSES
from meshwright.readers.traces.pieces import Pieces
from meshwright.readers.traces.timeline import timeline

OWN = "the reader's own window of all steps but the last"


def trace(seen: Observed) -> RankTrace:
    """The one trace of a file."""
    (found,) = (each for each in seen.observations if isinstance(each, RankTrace))
    return found


def _window(word: str) -> Callable[[Observed], RankSplit]:
    return lambda seen: next(each for each in trace(seen).windows if word in each.window)


def _overlap(split: RankSplit) -> float:
    return 100 * (1 - (split.exposed_communication_s or 0.0) / (split.communication_s or 1.0))


FIGURES: Mapping[str, Callable[[RankTrace], float | str | None]] = {
    "gpu_kernels": lambda it: it.num_kernels,
    "comm_kernels": lambda it: it.num_communication_kernels,
    "window_ms": lambda it: it.split.window_s * 1e3,
    "compute_ms": lambda it: it.split.compute_s * 1e3,
    "comm_ms": lambda it: it.split.communication_s and it.split.communication_s * 1e3,
    "exposed_comm_ms": lambda it: it.split.exposed_communication_s and it.split.exposed_communication_s * 1e3,
    "exposed_memcpy_ms": lambda it: it.split.exposed_copies_s * 1e3,
    "busy_pct": lambda it: 100 * (1 - it.split.idle_s / it.split.window_s),
    "idle_pct": lambda it: 100 * it.split.idle_s / it.split.window_s,
    "overlap_pct": lambda it: _overlap(it.split),
    "profiler_steps": lambda it: len(it.steps),
    "median_step_ms": lambda it: median(each.end_s - each.start_s for each in it.steps) * 1e3,
    "median_kernel_us": lambda it: (it.median_kernel_s or 0.0) * 1e6,
    "dataloader_ms_total": lambda it: it.host["dataloader"] * 1e3,
    "idle causes, sum, % of idle": lambda it: 100 * sum(it.idle.values()) / it.split.idle_s,
    "world": lambda it: it.world,
    "rank": lambda it: it.rank,
    "device": lambda it: it.device,
    "the longest cause of idling": lambda it: max(it.idle, key=lambda name: it.idle[name]),
    "notes": lambda it: "; ".join(it.notes),
}
NW0 = "kineto_resnet50_num_workers_0.worker0.1623143089861.pt.trace.json.gz"
NW4 = "kineto_resnet50_num_workers_4.worker0.1623212756351.pt.trace.json.gz"
NCCL = "hta_nccl_parser_config.nccl_data.json.gz"
NS = "hta_ns_resolution_trace.rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
RANK0, RANK1 = "hta_trace_filter.sampled_rank-0.json.gz", "hta_trace_filter.sampled_rank-1.json.gz"
QWEN = "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat_1016005.json.gz"
BERT = "tracelens_h100_gaunernst_bert-small-uncased_1016001.json.gz"
MI210, MI300 = "tracelens_mi210_gpu_only_trace.json.gz", "tracelens_mi300_resnet_act_checkpoint.json.gz"
CPU = "hta_cpu_only.rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"
ALEXNET = "hta_critical_path.alexnet.benchmark_result_2869224_1695835535_trace.json.gz"
EVENT_SYNC = "hta_critical_path.cuda_event_sync.event_sync_trace.json.gz"
LISTED: Mapping[str, str] = {
    ALEXNET: "gpu_kernels=79; comm_kernels=0; window_ms=12920.244; compute_ms=10.630; comm_ms=0.000; exposed_comm_ms=0.000; "
             "exposed_memcpy_ms=55.511; busy_pct=0.51; idle_pct=99.49; profiler_steps=0; median_kernel_us=53.0",
    EVENT_SYNC: "gpu_kernels=4; comm_kernels=0; window_ms=0.263; compute_ms=0.049; comm_ms=0.000; exposed_comm_ms=0.000; "
                "exposed_memcpy_ms=0.002; busy_pct=19.39; idle_pct=80.61; profiler_steps=1; median_step_ms=3.154; "
                "median_kernel_us=6.0",
    NCCL: "gpu_kernels=2700; comm_kernels=21; window_ms=660.551; compute_ms=115.656; comm_ms=46.876; exposed_comm_ms=39.559; "
          "exposed_memcpy_ms=2.285; busy_pct=23.84; idle_pct=76.16; overlap_pct=15.61; profiler_steps=3; median_step_ms=222.442; "
          "median_kernel_us=16.26; world=2",
    NS: "gpu_kernels=4350; comm_kernels=0; window_ms=480.029; compute_ms=468.173; comm_ms=0.000; exposed_comm_ms=0.000; "
        "exposed_memcpy_ms=4.289; busy_pct=98.42; idle_pct=1.58; profiler_steps=5; median_step_ms=95.551; median_kernel_us=28.03",
    RANK0: "gpu_kernels=1154; comm_kernels=10; window_ms=1222.847; compute_ms=210.320; comm_ms=396.199; exposed_comm_ms=336.983; "
           "exposed_memcpy_ms=0.353; busy_pct=44.79; idle_pct=55.21; overlap_pct=14.95; profiler_steps=2; median_step_ms=615.12; "
           "median_kernel_us=21.0; rank=0; world=128",
    RANK1: "gpu_kernels=1104; comm_kernels=10; window_ms=1231.186; compute_ms=271.973; comm_ms=379.053; exposed_comm_ms=303.523; "
           "exposed_memcpy_ms=4.554; busy_pct=47.11; idle_pct=52.89; overlap_pct=19.93; profiler_steps=2; median_step_ms=619.271; "
           "median_kernel_us=19.0; rank=1; world=128",
    NW0: "gpu_kernels=8772; comm_kernels=0; window_ms=996.477; compute_ms=591.532; comm_ms=0.000; exposed_comm_ms=0.000; "
         "exposed_memcpy_ms=12.026; busy_pct=60.57; idle_pct=39.43; profiler_steps=6; median_step_ms=176.273; "
         "dataloader_ms_total=415.791; median_kernel_us=2.0",
    NW4: "gpu_kernels=8868; comm_kernels=0; window_ms=801.550; compute_ms=594.868; comm_ms=0.000; exposed_comm_ms=0.000; "
         "exposed_memcpy_ms=19.545; busy_pct=76.65; idle_pct=23.35; profiler_steps=6; median_step_ms=126.548; "
         "dataloader_ms_total=8.522; median_kernel_us=2.0",
    QWEN: "gpu_kernels=1465; comm_kernels=0; window_ms=49.653; compute_ms=45.433; comm_ms=0.000; exposed_comm_ms=0.000; "
          "exposed_memcpy_ms=0.215; busy_pct=91.93; idle_pct=8.07; profiler_steps=1; median_step_ms=47.151; median_kernel_us=29.12",
    BERT: "gpu_kernels=60; comm_kernels=0; window_ms=3.908; compute_ms=0.307; comm_ms=0.000; exposed_comm_ms=0.000; "
          "exposed_memcpy_ms=0.002; busy_pct=7.92; idle_pct=92.08; profiler_steps=1; median_step_ms=4.426; median_kernel_us=4.64",
    MI210: "gpu_kernels=562; comm_kernels=0; window_ms=5.980; compute_ms=5.343; comm_ms=0.000; exposed_comm_ms=0.000; "
           "exposed_memcpy_ms=0.000; busy_pct=89.36; idle_pct=10.64; profiler_steps=0; median_kernel_us=4.32",
    MI300: "gpu_kernels=2995; comm_kernels=17; window_ms=86.568; compute_ms=25.739; comm_ms=71.517; exposed_comm_ms=55.625; "
           "exposed_memcpy_ms=2.638; busy_pct=97.04; idle_pct=2.96; overlap_pct=22.22; profiler_steps=3; median_step_ms=15.951; "
           "median_kernel_us=5.04",
}


def _listed() -> list[Expected]:
    found = []
    for name, line in LISTED.items():
        for pair in line.split("; "):
            what, _, value = pair.partition("=")
            digits = len(value.partition(".")[2])
            want = float(value)
            tolerance = max(1e-6, 0.51 * 10.0 ** -digits / want) if want and digits else 1e-6
            found.append(Expected(file=f"chrome_trace/{name}", what=what, want=want, tolerance_ratio=tolerance,
                                  got=lambda seen, figure=FIGURES[what]: figure(trace(seen))))
    return found


def _asked(
    name: str, what: str, want: float | str | None, got: Callable[[RankTrace], Any] | None = None, tolerance_ratio: float = 1e-6
) -> Expected:
    figure = got or FIGURES[what]
    return Expected(file=f"chrome_trace/{name}", what=what, want=want, got=lambda seen: figure(trace(seen)),
                    tolerance_ratio=tolerance_ratio)


@cache
def rounded_as_hta(name: str) -> RankSplit:
    """What was launched before the last step, from starts rounded up and ends rounded down to whole microseconds."""
    samples = directory()
    assert samples is not None
    columns = Columns()
    for events in Pieces(Source(samples / "chrome_trace" / name), Event):
        columns.take(events)
    device, host = columns.device, columns.host
    last = host.start[host.what == CLASSES.index("step")].max()
    launches = dict(zip(host.correlation.tolist(), host.launched.tolist(), strict=True))
    rows = device.rows(np.array([launches.get(each, np.inf) < last for each in device.correlation.tolist()]))
    start = np.ceil(rows.start)
    rows = Device(start, np.maximum(0.0, np.floor(rows.end) - start), rows.kind, rows.name, rows.correlation, rows.device)
    return timeline(rows).split(float(rows.start.min()), float(rows.end.max()), "")


def _hta() -> list[Expected]:
    """The reference output of HTA 0.6.1."""
    found = []
    for name, idle, compute, length, overlap in (
        (NCCL, 338781.0, 75169.0, 435586.0, 14.31), (NS, 10113.0, 372150.0, 384634.0, None),
        (RANK0, 321378.0, 106252.0, 600058.0, 11.81), (RANK1, 328671.0, 135548.0, 600674.0, 20.05),
    ):
        for what, want, got in (
            ("idle", idle, lambda split: split.idle_s * 1e6), ("compute", compute, lambda split: split.compute_s * 1e6),
            ("window", length, lambda split: split.window_s * 1e6), ("overlap %", overlap, _overlap),
        ):
            if want is not None:
                found.append(Expected(
                    file=f"chrome_trace/{name}", what=f"HTA's {what}: all steps but the last, whole microseconds", want=want,
                    got=lambda _, name=name, got=got: got(rounded_as_hta(name)), tolerance_ratio=5e-4 if want is overlap else 1e-5))
        if name in (RANK0, RANK1):
            found.append(Expected(file=f"chrome_trace/{name}", what=f"HTA's idle: {OWN}", want=idle,
                                  got=lambda seen: _window("before the last")(seen).idle_s * 1e6, tolerance_ratio=1e-5))
    found.append(Expected(file=f"chrome_trace/{NCCL}", what=f"HTA's idle %: {OWN}", want=77.78, tolerance_ratio=0.01,
                          got=lambda seen: _idle_percent(_window("before the last")(seen))))
    return found


def _idle_percent(split: RankSplit) -> float:
    return 100 * split.idle_s / split.window_s


def _tracelens() -> list[Expected]:
    """The reference output of TraceLens: its computing holds memory sets."""
    found = []
    for name, word, total, compute, busy in (
        (QWEN, "annotated", 34.8924189453125, 31.903115234375, 31.905483154296874),
        (BERT, "annotated", 3.907824951171875, 0.30719775390625, 0.309437744140625),
        (MI210, "", 5.9795029296875, 5.3433701171875, 5.3433701171875),
    ):
        split = _window(word) if word else lambda seen: trace(seen).split
        where = "the steps annotated on the device" if word else "from the device's first event to its last"
        for what, want, got in (
            ("total", total, lambda each: each.window_s * 1e3),
            ("computation", compute, lambda each: (each.compute_s + each.memory_sets_s) * 1e3),
            ("busy", busy, lambda each: (each.window_s - each.idle_s) * 1e3),
        ):
            found.append(Expected(
                file=f"chrome_trace/{name}", what=f"TraceLens's {what} (ms): {where}", want=want, tolerance_ratio=2e-5,
                got=lambda seen, split=split, got=got: got(split(seen))))
    return found


def _largest(it: RankTrace) -> list[Any]:
    """All-reduces of 6,637,568 floats, the one that the list names first."""
    found = [each for each in it.collectives if each.operation == "all-reduce" and each.message_bytes == 6637568 * 4]
    return sorted(found, key=lambda each: abs(each.end_s - each.start_s - 2636.669e-6))


EXPECTED = (
    *_listed(), *_hta(), *_tracelens(),
    *(_asked(name, "idle causes, sum, % of idle", 100.0) for name in LISTED),
    _asked(NW0, "the longest cause of idling", "data"),
    _asked(NW4, "the longest cause of idling", "host"),
    _asked(BERT, "the longest cause of idling", "host"),
    _asked(NCCL, "the longest cause of idling", "host"),
    _asked(NCCL, "all-reduces", 15, lambda it: sum(each.operation == "all-reduce" for each in it.collectives)),
    _asked(NCCL, "broadcasts", 6, lambda it: sum(each.operation == "broadcast" for each in it.collectives)),
    _asked(NCCL, "time of the all-reduce of 6,637,568 floats (us)", 2636.669,
           lambda it: (_largest(it)[0].end_s - _largest(it)[0].start_s) * 1e6, 1e-3),
    _asked(NCCL, "ranks of its group", "0, 1", lambda it: ", ".join(map(str, _largest(it)[0].ranks))),
    _asked(NCCL, "exposed in its group (ms)", 39.559, lambda it: it.exposed_by_group["0 default_pg"] * 1e3, 1e-4),
    _asked(RANK1, "compute above that of rank 0", 1.29, lambda it: it.split.compute_s / 0.210320, 5e-3),
    _asked(MI300, "exposed communication, % of the window", 64,
           lambda it: 100 * (it.split.exposed_communication_s or 0.0) / it.split.window_s, 5e-3),
    _asked(MI300, "all-reduces told by arguments, all kernels being Generic", 6,
           lambda it: sum(each.operation == "all-reduce" for each in it.collectives)),
    _asked(MI300, "broadcasts told by arguments", 6, lambda it: sum(each.operation == "broadcast" for each in it.collectives)),
    _asked(QWEN, "the step annotated on the device (ms)", 34.892421, lambda it: it.windows[1].window_s * 1e3),
    *(_asked(MI300, f"TraceLens's {what} (ms), main of August 2026: 3 steps on the device, by what they launched", want,
             lambda it, got=got: got(it.windows[0]) * 1e3, 1e-5)
      for what, want, got in (
          ("total", 56.517603, lambda split: split.window_s), ("computation", 19.234132, lambda split: split.compute_s),
          ("exposed communication", 35.283106, lambda split: split.exposed_communication_s),
          ("communication", 47.200310, lambda split: split.communication_s))),
    _asked(CPU, "communication", None, lambda it: it.split.communication_s),
    _asked(CPU, "gpu_kernels", 0),
    _asked(CPU, "all-reduces of gloo, on the host", 10, lambda it: sum(each.operation == "all-reduce" for each in it.collectives)),
    _asked(CPU, "rank", 34),
    _asked(CPU, "world", 300),
    _asked(CPU, "notes", "nothing ran on a device: only the host was recorded"),
)
