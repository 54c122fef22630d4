"""Tables of steps of Ascend's profiler: where the time of every rank's steps went."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshwright.domain.observed import Observation, RankSplit
from meshwright.errors import fault
from meshwright.readers.formats import Format
from meshwright.readers.traces.ascend_rows import number, rows

if TYPE_CHECKING:
    from meshwright.readers.source import Source

_TABLE = re.compile(rb"\A(?:\xef\xbb\xbf)?[^\n]*\bComputing,Communication\(Not Overlapped\),Overlapped,Communication,Free\b")
_US = 1e-6


def read(source: Source) -> tuple[Observation, ...]:
    """``cluster_step_trace_time.csv`` and the tables of single ranks: a value for each rank and step, and for each stage.

    Errors:  ``InputError`` where no row has times.
    """
    found: list[Observation] = []
    stages = bad = 0
    for row in rows(source):
        split = _split(source.shown, row, stages)
        bad += split is None
        if split is not None:
            found.append(split)
            stages += split.stage is not None
    if bad and not found:
        raise fault("trace.table", "none of its {count:,} rows has times", path=source.shown, count=bad)
    return tuple(found)


def _split(file: str, row: Mapping[str, str], stages: int) -> RankSplit | None:
    compute, exposed, free = (number(row.get(name)) for name in ("Computing", "Communication(Not Overlapped)", "Free"))
    whole, bubble = number(row.get("Communication")), number(row.get("Bubble"))
    if not all(each >= 0 for each in (compute, exposed, free, whole)):
        return None
    numbers = [int(each) for each in re.findall(r"\d{1,9}", row.get("Index", row.get("Device_id", "")))]
    stage = row.get("Type", "") == "stage"
    step = number(row.get("Step"))
    window = number(row.get("Stage")) if stage else compute + exposed + free
    return RankSplit(
        file=file, rank=numbers[0] if numbers and not stage else None, step=int(step) if math.isfinite(step) else None,
        stage=stages if stage else None, ranks=tuple(numbers) if stage else (),
        window="the longest part among the ranks of a stage" if stage else "computing, exposed communication and free time",
        window_s=(window if window >= 0 else compute + exposed + free) * _US, compute_s=compute * _US,
        communication_s=whole * _US, exposed_communication_s=exposed * _US, idle_s=free * _US,
        bubble_s=bubble * _US if bubble >= 0 else None,
    )


FORMAT = Format(
    name="ascend_step_table", says="tables of steps of Ascend's profiler (cluster_step_trace_time.csv)",
    told=lambda sample: _TABLE.search(sample) is not None, read=read,
)
