"""What names of Ascend's profiler mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from meshwright.domain.observed import Collective
from meshwright.readers.traces.columns import MAX_COLLECTIVES
from meshwright.readers.traces.names import operation

if TYPE_CHECKING:
    from meshwright.readers.traces.columns import Device
    from meshwright.readers.traces.timeline import Timeline

HCCL: Final = re.compile(r"hcom_[A-Za-z]+?_*_(\d+)_(\d+)(?:_\d+)*$")
"""``hcom_allReduce__445_2``: the group by the end of its hash, and the collective's place in it."""
COPIES: Final = re.compile(r"^(?:MEMCPY|SDMA|Memcpy)", re.IGNORECASE)
WAITS: Final = re.compile(r"^(?:EVENT_|NOTIFY_|Notify_|Event_|MODEL_|STREAM_|Capture_)", re.IGNORECASE)
"""What stands on a stream and does nothing."""
_US = 1e-6


def collectives(rows: Device, names: Sequence[str], line: Timeline) -> tuple[Collective, ...]:
    """Rows that communicate, one by one, with group and sequence by their names."""
    exposed = line.exposed(rows.start, rows.end)
    found = []
    for index in range(min(len(rows.start), MAX_COLLECTIVES)):
        name = names[int(rows.name[index])]
        said = HCCL.search(name)
        found.append(Collective(
            operation=operation(name), start_s=float(rows.start[index] - line.origin) * _US,
            end_s=float(rows.end[index] - line.origin) * _US, exposed_s=float(exposed[index]) * _US,
            group=said[1] if said else "", sequence=int(said[2]) if said else None,
        ))
    return tuple(found)
