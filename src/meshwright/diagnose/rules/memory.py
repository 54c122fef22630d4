"""Memory that ended, that is wasted, or that could have been used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import Evidence, Finding
from meshwright.diagnose.remedies import remedies
from meshwright.domain.layout import NoRecompute
from meshwright.domain.observed import Place, RunLog
from meshwright.errors import Message
from meshwright.judging.memory_messages import classify
from meshwright.units import gib
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run

FRAGMENTED = 0.15
"""Share of what is reserved that no tensor uses: 10 to 15 % are our judgement."""
HEADROOM = 0.20
"""The guides want 80 % of the memory in use (003:102)."""
UNEVEN = 1.25
"""How many times the least rank's peak the fullest has: our judgement."""


def ran_out(run: Run) -> Iterator[Finding]:
    """Out-of-memory messages, each verdict of the first that speaks."""
    for each in run.out_of_memory:
        first = each.messages[0]
        ranks = sorted({message.rank for message in each.messages if message.rank is not None})
        who = f" (rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))})" if ranks else ""
        for number, verdict in enumerate(classify(first)):
            yield Finding(
                message=Message(
                    f"memory.{verdict.kind.replace(' ', '-')}",
                    "out of memory{who}: {why}",
                    {"who": who, "why": verdict.message.words},
                ),
                severity="error" if number == 0 else "advice",
                evidence=(Evidence(first.text[:300], Place(file=each.file, line=first.line)),),
                remedies=remedies(f"memory.{verdict.kind.replace(' ', '-')}", run.framework),
            )


def memory(run: Run) -> Iterator[Finding]:
    """Fragmentation, uneven stages, leaks, segments given back in the loop, and room that is left."""
    for snapshot in run.snapshots:
        place = Place(file=snapshot.file)
        unused = 1.0 - snapshot.allocated_bytes / snapshot.reserved_bytes if snapshot.reserved_bytes else 0.0
        if unused > FRAGMENTED:
            yield Finding(
                message=Message(
                    "memory.unused",
                    "{share} of what the allocator holds is in no tensor ({unused})",
                    {"share": percent(unused), "unused": gib(snapshot.reserved_bytes - snapshot.allocated_bytes)},
                ),
                severity="advice",
                evidence=(Evidence(f"{snapshot.num_segments} segments", place),),
                remedies=remedies("memory.fragmentation", run.framework),
            )
        for holder in snapshot.holders:
            if holder.never_freed:
                yield Finding(
                    message=Message(
                        "memory.leak",
                        "{name} holds {size} that grow and are never freed",
                        {"name": holder.name, "size": gib(holder.bytes)},
                    ),
                    severity="warning",
                    evidence=(Evidence(f"{holder.blocks:,} blocks", place),),
                    remedies=remedies("memory.leak", run.framework),
                )
        if snapshot.freed_segments:
            yield Finding(
                message=Message(
                    "memory.given-back",
                    "{count} segments are given back to the device after the beginning: emptied caches, or "
                    "allocations that had to be tried again",
                    {"count": snapshot.freed_segments},
                ),
                severity="advice",
                evidence=(Evidence("segment_free events", place),),
                remedies=remedies("memory.retries", run.framework),
            )
    yield from _ranks(run)


def _ranks(run: Run) -> Iterator[Finding]:
    """What logs say of the ranks' peaks."""
    peaks: dict[int, float] = {}
    log = None
    for each in run.all(RunLog):
        for found in each.memory:
            if found.max_allocated_bytes is not None:
                log, peaks[found.rank] = each, max(peaks.get(found.rank, 0.0), found.max_allocated_bytes)
    if log is not None and len(peaks) > 1 and max(peaks.values()) > UNEVEN * min(peaks.values()):
        most, least = max(peaks, key=lambda rank: peaks[rank]), min(peaks, key=lambda rank: peaks[rank])
        yield Finding(
            message=Message(
                "memory.uneven",
                "rank {most} allocates {size} at most and rank {least} {small}: the fullest stage decides what fits",
                {"most": most, "size": gib(peaks[most]), "least": least, "small": gib(peaks[least])},
            ),
            severity="advice",
            evidence=(Evidence(f"peaks of {len(peaks)} ranks", Place(file=log.file, line=log.memory[0].line)),),
            remedies=remedies("memory.uneven", run.framework),
        )
    used, case = run.memory_bytes, run.case
    if run.phases is not None:
        return  # the devices are the engine's, too
    if used is not None and case is not None and run.facts is not None and used < (1.0 - HEADROOM) * case.capacity_bytes:
        layout = run.facts.layout
        gives = [
            word
            for word, on in (
                ("recomputation", layout.recompute != NoRecompute()),
                ("tensor parallelism", layout.tensor_parallel > 1),
            )
            if on
        ]
        if gives:
            yield Finding(
                message=Message(
                    "memory.headroom",
                    "{used} of {capacity} is used at most: there is room for less {gives} or larger micro-batches",
                    {"used": gib(used), "capacity": gib(case.capacity_bytes), "gives": " and ".join(gives)},
                ),
                severity="advice",
                remedies=remedies("memory.headroom", run.framework),
                evidence=(Evidence("most that any rank reserved", Place(file=run.log.file) if run.log else None),),
            )
