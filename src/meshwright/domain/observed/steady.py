"""Which steps of a log stand for the run, and how it changed over its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.observed.log import Step

WARM = 1.2
"""A first step that takes so many times the median of the others is one of warming up: compilation, allocation. Our judgement."""
MOST_WARM = 0.5
"""Share of all steps that may be warming up; beyond it nothing is steady and all count. Our judgement."""
SPIKE = 1.3
"""A later step that takes so many times the median has had something happen to it. Our judgement."""


class Steady(Value, frozen=True, kw_only=True):
    """The steps that count, and what they come to."""

    steps: tuple[Step, ...]
    dropped: int
    """Steps before them, taken for warming up."""
    step_s: float
    """Median."""
    low_s: float
    high_s: float
    """The 5th and the 95th percentile."""
    spikes: tuple[Step, ...]
    """Steps far above the median."""
    spike_ratio: float
    """Share of the time that the spikes took beyond the median."""
    drift_ratio: float | None
    """How much longer the last quarter's median step is than the first's; None below twenty steps, or within the scatter."""
    parts: Mapping[str, float]
    """Timer -> median seconds."""
    least: Mapping[str, float]

    @property
    def jitter_ratio(self) -> float:
        """The 95th percentile over the median, less one."""
        return self.high_s / self.step_s - 1.0 if self.step_s else 0.0


def steady(steps: Sequence[Step], window: tuple[int, int] | None = None) -> Steady | None:
    """What the steps of a log come to, warming up left out; None where there is no step in the window with a time.

    ``window``: first and last number of the steps that count; then nothing is left out.
    """
    said = any(each.step_s is not None for each in steps)  # then a sum of timers is no step beside them: it may be half of one
    timed = [
        each for each in steps if time_of(each) is not None and (each.step_s is not None or not said)
        and (window is None or window[0] <= each.number <= window[1])
    ]
    if not timed:
        return None
    dropped = 0 if window is not None else _warming([time_of(each) or 0.0 for each in timed])
    kept = timed[dropped:]
    times = np.array([time_of(each) or 0.0 for each in kept])
    middle = float(np.median(times))
    spikes = tuple(each for each, time in zip(kept, times, strict=True) if time > SPIKE * middle)
    total = float(times.sum())
    return Steady(
        steps=tuple(kept),
        dropped=dropped,
        step_s=middle,
        low_s=float(np.percentile(times, 5)),
        high_s=float(np.percentile(times, 95)),
        spikes=spikes,
        spike_ratio=sum((time_of(each) or 0.0) - middle for each in spikes) / total if total else 0.0,
        drift_ratio=_drift(times),
        parts=_medians([each.parts for each in kept]),
        least=_medians([each.least for each in kept]),
    )


def time_of(step: Step) -> float | None:
    """Seconds of a step: said, or where a step has timers alone, their sum."""
    return step.step_s if step.step_s is not None else (sum(step.parts.values()) or None)


def _warming(times: Sequence[float]) -> int:
    """How many steps at the beginning are warming up."""
    most = int(MOST_WARM * len(times))
    for count in range(most + 1):
        if count == len(times) - 1 or times[count] <= WARM * median(times[count + 1 :]):
            return count
    return 0


def _drift(times: np.ndarray) -> float | None:
    """Change from the first to the last quarter, where it stands out of the scatter of medians."""
    size = len(times) // 4
    if size < 5:
        return None
    first, last = times[:size], times[-size:]
    before, after = float(np.median(first)), float(np.median(last))
    scatter = max(float(np.median(np.abs(part - np.median(part)))) for part in (first, last))
    noise = 1.4826 * 1.2533 * scatter * (2.0 / size) ** 0.5  # the standard error of a difference of two medians
    change = after / before - 1.0
    return change if abs(after - before) > 4.0 * noise and abs(change) > 1e-3 else None


def _medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each name, the median over the rows that have it, if these are at least half."""
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row[name] for row in rows if name in row] for name in names}
    return {name: float(np.median(values)) for name, values in found.items() if 2 * len(values) >= len(rows)}
