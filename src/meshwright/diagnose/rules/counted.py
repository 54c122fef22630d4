"""What devices counted, what their allocators could not give, and which rank the others wait for in what they timed themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.allocator import judge_snapshot
from meshwright.diagnose.bandwidth import judge_ranks
from meshwright.diagnose.counters import judge_counters

if TYPE_CHECKING:
    from meshwright.diagnose.finding import Finding
    from meshwright.diagnose.run import Run


def counted(run: Run) -> Iterator[Finding]:
    """Faults of devices, devices that are left out, requests that failed, and the rank that arrives last."""
    yield from judge_counters(run.counters)
    yield from judge_ranks(run.bandwidths)
    for snapshot in run.snapshots:
        yield from judge_snapshot(snapshot)
