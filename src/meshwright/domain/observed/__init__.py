"""What was seen of a run that happened, a value for each kind of file: seconds, bytes, ratios; None where the file does not say."""

from __future__ import annotations

from typing import TypeAlias

from meshwright.domain.observed.counters import Counters, DeviceSeries
from meshwright.domain.observed.ending import Ending
from meshwright.domain.observed.hang import CollectiveEntry, Hang, Hanging, RankProgress
from meshwright.domain.observed.log import RankMemory, RunLog, Sign, Step, Timer
from meshwright.domain.observed.memory import MemoryHolder, MemorySnapshot
from meshwright.domain.observed.network import Bandwidth, Bandwidths, NetworkSetup
from meshwright.domain.observed.out_of_memory import OutOfMemories, OutOfMemory
from meshwright.domain.observed.place import Place
from meshwright.domain.observed.ranks import Meeting, Together, together
from meshwright.domain.observed.trace import Collective, KernelSum, RankSplit, RankTrace, TraceStep

Observation: TypeAlias = (
    RunLog | RankTrace | RankSplit | NetworkSetup | Bandwidths | Counters | Hanging | MemorySnapshot | OutOfMemories
)

__all__ = [
    "Bandwidth", "Bandwidths", "Collective", "CollectiveEntry", "Counters", "DeviceSeries", "Ending", "Hang", "Hanging",
    "KernelSum", "Meeting", "MemoryHolder", "MemorySnapshot", "NetworkSetup", "Observation", "OutOfMemories", "OutOfMemory",
    "Place", "RankMemory", "RankProgress", "RankSplit", "RankTrace", "RunLog", "Sign", "Step", "Timer", "Together", "TraceStep",
    "together",
]
