"""What Ascend's profiler leaves behind: the list's own figures."""

from __future__ import annotations

from collections import Counter
from functools import cache

import msgspec

from benchmarks.samples import Expected, directory
from meshwright.domain.observed import RankSplit, RankTrace
from meshwright.errors import InputError
from meshwright.readers.formats import Observed, observe
from meshwright.readers.source import Source
from meshwright.readers.traces.pieces import Pieces

STEPS, KERNELS = "ascend_profiler/cluster_step_trace_time.csv", "ascend_profiler/kernel_details_a.csv"
VIEW, LIST = "ascend_profiler/trace_view.json.gz", "ascend_profiler/event_list.json"
FREE_PERCENT = (56.5, 87.4, 64.5, 79.8, 66.9, 51.6, 81.0, 63.1)


def _ranks(seen: Observed) -> list[RankSplit]:
    return [each for each in seen.observations if isinstance(each, RankSplit) and each.rank is not None]


def _trace(seen: Observed) -> RankTrace:
    (found,) = (each for each in seen.observations if isinstance(each, RankTrace))
    return found


class _Seen(msgspec.Struct):
    ph: str = ""
    cat: str = ""


@cache
def _counted() -> Counter[str]:
    """Events of the trace by phase and by category."""
    samples = directory()
    assert samples is not None
    events = [each for some in Pieces(Source(samples / VIEW), _Seen) for each in some]
    return Counter(each.ph for each in events) + Counter(each.cat for each in events if each.cat)


def _refused() -> str:
    samples = directory()
    assert samples is not None
    try:
        return f"{len(observe((samples / LIST,)).observations)} observations"
    except InputError as error:
        return error.messages[0].words


def _steps(what: str, want: float, got, tolerance_ratio: float = 1e-6) -> Expected:  # type: ignore[no-untyped-def]
    return Expected(file=STEPS, what=what, want=want, got=lambda seen: got(_ranks(seen)), tolerance_ratio=tolerance_ratio)


EXPECTED = (
    _steps("ranks", 8, len),
    Expected(file=STEPS, what="stages", want=1,
             got=lambda seen: sum(isinstance(each, RankSplit) and each.stage is not None for each in seen.observations)),
    _steps("least computing (us)", 80077, lambda it: min(each.compute_s for each in it) * 1e6, 1e-5),
    _steps("most computing (us)", 81662, lambda it: max(each.compute_s for each in it) * 1e6, 1e-5),
    _steps("least free time (us)", 892837, lambda it: min(each.idle_s for each in it) * 1e6, 1e-5),
    _steps("most free time (us)", 1488610, lambda it: max(each.idle_s for each in it) * 1e6, 1e-5),
    *(_steps(f"free time of rank {rank}, %", want, lambda it, rank=rank: 100 * it[rank].idle_s / it[rank].window_s, 1e-3)
      for rank, want in enumerate(FREE_PERCENT)),
    _steps("exposed communication of rank 1 (ms)", 133.4, lambda it: it[1].exposed_communication_s * 1e3, 1e-3),
    _steps("exposed communication of rank 5 (ms)", 756.4, lambda it: it[5].exposed_communication_s * 1e3, 1e-3),
    _steps("most exposed communication (ms)", 756.4, lambda it: max(each.exposed_communication_s for each in it) * 1e3, 1e-3),
    Expected(file=KERNELS, what="kernels", want=591, got=lambda seen: _trace(seen).num_kernels),
    Expected(file=KERNELS, what="sum of durations (us)", want=396807.04, got=lambda seen: _trace(seen).kernels_s * 1e6),
    *(Expected(file=KERNELS, what=unit, want=want, got=lambda seen, unit=unit: _trace(seen).num_by_unit[unit])
      for unit, want in (("AI_VECTOR_CORE", 520), ("MIX_AIV", 25), ("HCCL", 19), ("AI_CORE", 13), ("AI_CPU", 7))),
    Expected(file=KERNELS, what="collectives", want=19, got=lambda seen: len(_trace(seen).collectives)),
    Expected(file=KERNELS, what="the matrix unit's share is read from aic_mac_fp16_ratio", want="yes",
             got=lambda seen: "yes" if _trace(seen).matrix_unit_ratio is not None else "no"),
    Expected(file=VIEW, what="events", want=3670, got=lambda seen: _trace(seen).events),
    *(Expected(file=VIEW, what=f"events {name}", want=want, got=lambda _, name=name: _counted()[name])
      for name, want in (("X", 2212), ("s", 713), ("f", 713), ("M", 32), ("cpu_op", 711), ("HostToDevice", 548), ("async_npu", 548),
                         ("async_task_queue", 296))),
    Expected(file=VIEW, what="kernels on the device", want=274, got=lambda seen: _trace(seen).num_kernels),
    Expected(file="ascend_profiler", what="event_list.json, two names and no step", want="nothing in it is of a known format",
             got=lambda _: _refused()),
)
