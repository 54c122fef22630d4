"""Time in which a rank communicates and computes nothing, from the profiler's events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Span = tuple[float, float]

COMMUNICATES = ("nccl", "gloo:", "c10d::", "_c10d_functional::", "c10d_functional::", "rccl", "hccl")
"""How names of events that are communication begin, in small letters."""


def union(spans: Iterable[Span]) -> list[Span]:
    """Spans that do not overlap, in order, covering the same."""
    result: list[Span] = []
    for begin, end in sorted(span for span in spans if span[1] > span[0]):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def without(spans: Sequence[Span], others: Sequence[Span]) -> float:
    """Length of what ``spans`` cover and ``others`` do not; both as ``union`` gives them."""
    covered = sum(end - begin for begin, end in spans)
    place = 0
    for begin, end in spans:
        while place < len(others) and others[place][1] <= begin:
            place += 1
        number = place
        while number < len(others) and others[number][0] < end:
            covered -= min(end, others[number][1]) - max(begin, others[number][0])
            number += 1
    return covered


def exposed_s(events: Iterable[Any]) -> tuple[float, float]:
    """Events of a profile -> (seconds with communication under way, those of them without any computation).

    On an accelerator its kernels count. On a processor operators of the innermost level do, and an operator that waits is none.
    """
    found = list(events)
    on_device = [event for event in found if str(event.device_type).endswith(("CUDA", "PrivateUse1"))]
    talk, work = [], []
    for event in on_device or found:
        name, span = event.name.lower(), (event.time_range.start / 1e6, event.time_range.end / 1e6)
        if name.startswith(COMMUNICATES):
            talk.append(span)
        elif on_device or (name.startswith(("aten::", "autograd::")) and not event.cpu_children):
            work.append(span)
    spans = union(talk)
    return sum(end - begin for begin, end in spans), without(spans, union(work))
