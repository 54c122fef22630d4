"""Messages of memory that ended: what the list says of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from benchmarks.samples import Expected
from benchmarks.samples._asking import Said
from meshwright.domain.observed import OutOfMemories, OutOfMemory
from meshwright.readers.formats import Observed
from meshwright.units import GIB, MIB

_CADS = "pytorch_oom/issue_CADS_4.txt"
_OMNI = "pytorch_oom/issue_Qwen2.5-Omni_240_other_process.txt"
_KAITO = "pytorch_oom/issue_kaito_976_private_pools.txt"
_TUNE = "pytorch_oom/issue_torchtune_2071_rank_prefix.txt"


def _first(got: Callable[[OutOfMemory], Said], seen: Observed) -> Said:
    return got(next(each for each in seen.observations if isinstance(each, OutOfMemories)).messages[0])


def _oom(file: str, rows: Mapping[str, tuple[Said, Callable[[OutOfMemory], Said]]]) -> Iterable[Expected]:
    for what, (want, got) in rows.items():
        yield Expected(file=file, what=what, want=want, tolerance_ratio=1e-3, got=partial(_first, got))


def _gib(name: str) -> Callable[[OutOfMemory], Said]:
    return lambda message: (getattr(message, name) or 0.0) / GIB


EXPECTED = (
    *_oom(
        _CADS,
        {
            "device": (0, lambda message: message.device),
            "tried": (22.78, _gib("requested_bytes")),
            "total": (31.47, _gib("capacity_bytes")),
            "free": (12.73, _gib("free_bytes")),
            "process": (18.73, _gib("process_bytes")),
            "allocated": (9.08, _gib("allocated_bytes")),
            "unallocated": (9.35, _gib("unallocated_bytes")),
            "missing if defragmented": (
                0.70,
                lambda message: (
                    ((message.requested_bytes or 0) - (message.free_bytes or 0) - (message.unallocated_bytes or 0)) / GIB
                ),
            ),
        },
    ),
    *_oom(
        _OMNI,
        {
            "tried": (124.68, _gib("requested_bytes")),
            "total": (95.22, _gib("capacity_bytes")),
            "free": (51.23, _gib("free_bytes")),
            "processes": (
                "608946: 14.91 734147: 29.07",
                lambda message: " ".join(f"{number}: {size / GIB:.2f}" for number, size in message.processes),
            ),
            "reserved": (28.64, _gib("reserved_bytes")),
        },
    ),
    *_oom(
        _KAITO,
        {
            "tried, MiB": (546.0, lambda message: (message.requested_bytes or 0) / MIB),
            "free, MiB": (514.19, lambda message: (message.free_bytes or 0) / MIB),
            "pools, MiB": (46.0, lambda message: message.private_pool_bytes / MIB),
            "unallocated, MiB": (736.86, lambda message: (message.unallocated_bytes or 0) / MIB),
            "total": (15.77, _gib("capacity_bytes")),
            "allocated": (13.73, _gib("allocated_bytes")),
        },
    ),
    *_oom(
        _TUNE,
        {
            "rank and device": ("5 5", lambda message: f"{message.rank} {message.device}"),
            "tried": (1.96, _gib("requested_bytes")),
            "total": (23.43, _gib("capacity_bytes")),
            "free, MiB": (210.06, lambda message: (message.free_bytes or 0) / MIB),
            "allocated": (22.41, _gib("allocated_bytes")),
            "unallocated, MiB": (206.09, lambda message: (message.unallocated_bytes or 0) / MIB),
            "process": ("None", lambda message: str(message.process_bytes)),
        },
    ),
)
