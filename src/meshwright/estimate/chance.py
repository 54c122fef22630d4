"""Runs of one layout that take one of two times: pipeline messages that stall by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.estimate import Stall
from meshwright.perf.stalls import all_stalled_s

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Interval
    from meshwright.domain.layout import Layout

SAID = 0.5
"""Share of stalled messages from which the step is that of a stalled run already."""


def stall_of(case: Case, layout: Layout, step_s: float, stall_s: float, interval: Interval | None) -> Stall | None:
    """What the step takes in the runs whose messages stall though nothing that is known makes them.

        stalled step = step - what stalls anyway + all messages stalled

    Units:   s; ``stall_s`` is what stalls anyway.
    Holds:   frameworks whose host waits for every message (``Implementation.message_handshake``), pipelines between nodes. None
             where the stalled step lies inside the interval of the usual one.
    Source:  ``perf.stalls.all_stalled_s``; docs/nanotron-stalls.md.
    """
    nodes = layout.world / case.cluster.devices_per_node
    if not case.implementation.message_handshake or layout.pipeline_parallel == 1 or nodes <= 1.0:
        return None
    constants = case.calibration.constants
    every_s = float(all_stalled_s(float(layout.pipeline_parallel), float(layout.num_microbatches), constants))
    stalled_s = step_s - stall_s + every_s
    low, high = interval.step_s if interval is not None else (step_s, step_s)
    if stall_s >= SAID * every_s or stalled_s <= high:
        return None
    either = None if interval is None else (low, stalled_s * high / step_s)
    return Stall(probability=float(constants.stall_chance), step_s=stalled_s, either_s=either)
