"""Ranks that differ: one that others wait for while the run goes on, and one that all wait for for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import Evidence, Finding, severity_of
from meshwright.diagnose.remedies import remedies
from meshwright.domain.observed import Place
from meshwright.errors import Message
from meshwright.words import list_of, percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run

SPREAD = 0.05
"""Spread of compute over ranks, to its mean, from which it is told (Ascend/mstt: RATIO_THRESHOLD)."""
LATE_RATIO = 0.02
"""Share of the step that ranks wait for a late one, from which it is told: our judgement."""
UNEVEN_TIMER = 1.10
"""How many times the least rank's time of a part the slowest takes: our judgement."""


def stragglers(run: Run) -> Iterator[Finding]:
    """Ranks that compute longer than others, or come last."""
    ranks = {each.rank: each.split for each in run.traces if each.rank is not None}
    ranks |= {each.rank: each for each in run.splits if each.rank is not None}
    files = {each.rank: each.file for each in run.traces} | {each.rank: each.file for each in run.splits}
    ranks = {rank: each for rank, each in ranks.items() if each.window_s and each.compute_s}
    if len(ranks) > 1:
        mean = sum(each.compute_s for each in ranks.values()) / len(ranks)
        slow = max(ranks, key=lambda rank: ranks[rank].compute_s)
        fast = min(ranks, key=lambda rank: ranks[rank].compute_s)
        spread = (ranks[slow].compute_s - ranks[fast].compute_s) / mean
        loss = (ranks[slow].compute_s - mean) / max(each.window_s for each in ranks.values())
        if spread > SPREAD:
            yield Finding(
                message=Message(
                    "ranks.uneven",
                    "rank {slow} computes {more} longer than rank {fast}: the others wait for it",
                    {"slow": slow, "more": percent(ranks[slow].compute_s / ranks[fast].compute_s - 1.0), "fast": fast},
                ),
                severity=severity_of(loss),
                loss_ratio=loss,
                remedies=remedies("ranks.uneven", run.framework),
                evidence=tuple(
                    Evidence(
                        f"rank {rank} computes {seconds(ranks[rank].compute_s)} of {seconds(ranks[rank].window_s)}",
                        Place(file=files[rank]),
                    )
                    for rank in (slow, fast)
                ),
                refuted_by="the same ranks are not the slow ones after nodes change places",
                source="Ascend/mstt: 5 % of the mean",
            )
    yield from _late(run)
    yield from _timers(run)


def _late(run: Run) -> Iterator[Finding]:
    """The rank that others wait for in collectives, more often than chance explains."""
    found, split = run.together, run.split
    if found is None or found.straggler is None or split is None or run.waiting_s is None:
        return
    waited = run.waiting_s / split.step_s
    if waited < LATE_RATIO:
        return
    caused = found.caused_s.get(found.straggler, 0.0)
    yield Finding(
        message=Message(
            "ranks.late",
            "rank {rank} comes last to {count:,} of {matched:,} collectives: waiting for it takes {waited}",
            {
                "rank": found.straggler,
                "count": found.last.get(found.straggler, 0),
                "matched": found.matched,
                "waited": percent(waited),
            },
        ),
        severity=severity_of(waited),
        loss_ratio=waited,
        remedies=remedies("ranks.late", run.framework),
        evidence=(
            Evidence(f"the others wait {seconds(caused)} for it: {run.traces[0].split.window}", Place(file=run.traces[0].file)),
        ),
        refuted_by="another rank is the last one when nodes change places",
    )


def _timers(run: Run) -> Iterator[Finding]:
    """Forward and backward times that differ between ranks, where a log has the fastest and the slowest."""
    steady = run.steady
    if steady is None or run.log is None or run.traces:
        return
    for name in ("forward-compute", "backward-compute"):
        most, least = steady.parts.get(name), steady.least.get(name)
        if most and least and most > UNEVEN_TIMER * least:
            loss = (most - least) / steady.step_s
            yield Finding(
                message=Message(
                    "ranks.uneven",
                    "{name} takes {most} on the slowest rank and {least} on the fastest",
                    {"name": name, "most": seconds(most), "least": seconds(least)},
                ),
                severity=severity_of(loss),
                loss_ratio=loss,
                remedies=remedies("ranks.uneven", run.framework),
                evidence=(Evidence(f"timer {name}", Place(file=run.log.file, line=steady.steps[0].line)),),
            )
            return


HANGS = {
    "missing": "{ranks} never called collective {sequence} ({collective}){group}: the others wait in it",
    "mismatch": "{ranks} called something else than the others as collective {sequence} ({collective}){group}",
    "late": "{ranks} called collective {sequence} ({collective}){group}, and their devices did not finish it",
    "stalled": "every rank is in collective {sequence} ({collective}){group} and none gets on: the network or a device is at fault",
    "unknown": "the ranks that speak wait in collective {sequence} ({collective}){group}: whether one of them or a silent one is "
    "behind cannot be told",
}


def hang(run: Run) -> Iterator[Finding]:
    """Which collective a hang is in, and which ranks are missing from it."""
    found = run.hang
    if found is None:
        return
    ranks = plural_ranks(found.ranks) if found.ranks else "a rank that no file names"
    waits = f"{plural_ranks(found.waiting)} {'wait' if len(found.waiting) > 1 else 'waits'}" if found.waiting else ""
    evidence = [Evidence(waits, found.place)]
    evidence += [Evidence(f"rank {each.rank} called {each.operation} instead", each.place) for each in found.instead[:4]]
    if found.silent:
        evidence.append(Evidence(f"nothing is known of {plural_ranks(found.silent)}"))
    yield Finding(
        message=Message(
            f"hang.{found.kind}",
            HANGS[found.kind],
            {
                "ranks": ranks,
                "sequence": found.sequence if found.sequence is not None else "of no known number",
                "collective": found.collective or "of no known kind",
                "group": f" of group {found.group}" if found.group else "",
            },
        ),
        severity="error",
        evidence=tuple(evidence),
        remedies=remedies(f"hang.{found.kind}", run.framework),
    )


def plural_ranks(ranks: tuple[int, ...]) -> str:
    """``rank 3``, ``ranks 0-6``."""
    return f"rank{'s' if len(ranks) > 1 else ''} {list_of(sorted(ranks))}"
