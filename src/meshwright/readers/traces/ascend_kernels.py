"""Tables of kernels of Ascend's profiler: one rank's device, kernel by kernel."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.observed import Observation, RankTrace
from meshwright.readers.formats import Format
from meshwright.readers.traces.ascend_names import collectives
from meshwright.readers.traces.ascend_rows import first, number, rows
from meshwright.readers.traces.columns import Device, Names
from meshwright.readers.traces.kernels import SMALL_KERNEL_US, kernel_sums, median_s
from meshwright.readers.traces.names import COMMUNICATION, COMPUTE
from meshwright.readers.traces.timeline import idle_causes, timeline

if TYPE_CHECKING:
    from meshwright.readers.source import Source

_TABLE = re.compile(rb"\A(?:\xef\xbb\xbf)?(?=[^\n]*(?:Accelerator Core|Task Type))[^\n]*\bDuration\(us\)")
_MATRIX = ("aic_mac_ratio", "aic_mac_fp16_ratio", "mac_ratio", "mac_fp16_ratio")
"""How versions call the share of a kernel in which the matrix unit works."""
_US = 1e-6


def read(source: Source) -> tuple[Observation, ...]:
    """``kernel_details.csv`` of one rank, with the columns of any version; nothing where no row has times.

    Errors:  ``InputError`` where it is no table.
    """
    names, units = Names(), Counter[str]()
    start, duration, kind, name = array("d"), array("d"), array("q"), array("q")
    matrix_us, counted, skipped = 0.0, False, 0
    for row in rows(source):
        begin = number(first(row, "Start Time(us)", "Task Start Time(us)"))
        length = number(first(row, "Duration(us)", "Task Duration(us)"))
        if not (math.isfinite(begin) and length >= 0):
            skipped += 1
            continue
        unit, each = first(row, "Accelerator Core", "Task Type"), names[first(row, "Name", "Op Name")]
        communicates = unit in ("HCCL", "COMMUNICATION") or names.communicates[each]
        units[unit] += 1
        start.append(begin)
        duration.append(length)
        name.append(each)
        kind.append(COMMUNICATION if communicates else COMPUTE)
        ratio = number(first(row, *_MATRIX))
        if 0 <= ratio <= 1 and not communicates:
            counted, busy = True, number(row.get("aicore_time(us)"))
            matrix_us += ratio * (min(busy, length) if busy >= 0 else length)
    if not start:
        return ()
    count = len(start)
    zeros = np.zeros(count, dtype=np.int64)
    device = Device(np.array(start), np.array(duration), np.array(kind), np.array(name), zeros, zeros)
    device = device.rows(np.argsort(device.start, kind="stable"))
    line = timeline(device, file=source.shown, origin=float(device.start[0]))
    compute, comm = device.duration[device.kind == COMPUTE], device.rows(device.kind == COMMUNICATION)
    return (RankTrace(
        file=source.shown, format=FORMAT.name,
        split=line.split(float(device.start[0]), float(device.end.max()), "from the table's first kernel to its last"),
        idle=idle_causes(device, line.busy, np.full(count, np.nan), {}), collectives=collectives(comm, list(names), line),
        kernels=kernel_sums(device, list(names)), num_kernels=count, num_communication_kernels=len(comm.start),
        kernels_s=float(device.duration.sum()) * _US, small_kernels_s=float(compute[compute < SMALL_KERNEL_US].sum()) * _US,
        median_kernel_s=median_s(device.duration), num_by_unit=dict(units), events=count, complete=not source.broken,
        matrix_unit_ratio=matrix_us / float(compute.sum()) if counted and compute.sum() else None,
        notes=(f"{skipped:,} rows without times were left out",) if skipped else (),
    ),)


FORMAT = Format(
    name="ascend_kernel_table", says="tables of kernels of Ascend's profiler (kernel_details.csv)",
    told=lambda sample: _TABLE.search(sample) is not None, read=read,
)
