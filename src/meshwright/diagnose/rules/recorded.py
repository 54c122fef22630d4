"""What records of the reference step tell: who works longer, what transfers take, what the host stops for, what was padding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import HIGH, Evidence, Finding, severity_of
from meshwright.diagnose.groups import TITLES
from meshwright.diagnose.remedies import remedies
from meshwright.domain.observed import Place, RunLog
from meshwright.errors import Message
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.recorded import Excess
    from meshwright.diagnose.run import Run

LEAST = 0.02
"""Shares of the step below it are left unsaid."""
ONE_PLACE = 0.85
"""Of what a rank takes longer, the share before one exchange from which it is that exchange that comes late."""
GROWN = 0.03
"""Growth of what is live, to where it began."""
GROWING = 0.75
"""Share of steps at which it grows."""
PAUSES = {
    "gc": ("host.gc", "garbage collection stops the step for {time} ({share} of it)"),
    "sync": ("host.sync", "the host waits for values of tensors for {time} of each step ({share})"),
    "compile": ("compile.recompiled", "compilation takes {time} of each step ({share}), long after the first one"),
}


def recorded_rules(run: Run) -> Iterator[Finding]:
    """Everything that only records tell."""
    if run.recorded is None:
        return
    yield from _transfers(run)
    yield from _ranks(run)
    yield from _pauses(run)
    yield from _padding(run)
    yield from _threads(run)
    yield from _growth(run)


def _transfers(run: Run) -> Iterator[Finding]:
    """What transfers take, waiting for others left out, by dimension."""
    found = run.recorded
    assert found is not None, "asked by recorded_rules"
    for name, spent in found.transfer.items():
        share = spent / found.step_s
        if share < HIGH:
            continue
        waited = found.waiting.get(name, 0.0)
        yield Finding(
            message=Message(
                f"communication.{name}",
                "{what} transfers take {time} of each step of {step} ({share}), waiting for other ranks left out",
                {"what": TITLES.get(name, "other"), "time": seconds(spent), "step": seconds(found.step_s), "share": percent(share)},
            ),
            severity=severity_of(share),
            loss_ratio=share,
            evidence=(Evidence(f"beside it {seconds(waited)} of waiting", _place(run)),),
            remedies=remedies(f"communication.{name}", run.framework),
            refuted_by="the same exchanges alone (meshwright profile) take as long: then the link is no slower than it ever was",
        )


def _ranks(run: Run) -> Iterator[Finding]:
    """The rank that works longer than those like it, or comes late to one exchange."""
    found = run.recorded
    if found is None or not found.excess:
        return
    worst = found.excess[0]
    share = worst.seconds / found.step_s
    if share < LEAST or run.world == 1:
        return
    if (threads := _own_threads(run, worst)) is not None:
        yield threads
    elif worst.most >= ONE_PLACE * worst.seconds:
        yield Finding(
            message=Message(
                "ranks.late",
                "rank {rank} comes {time} late to one exchange ({where}) in most steps, and to no other: {share} of the step",
                {"rank": worst.rank, "time": seconds(worst.most), "where": worst.where, "share": percent(share)},
            ),
            severity=severity_of(share),
            loss_ratio=share,
            evidence=(Evidence("work before that exchange beside that of ranks like it", _place(run, worst.rank)),),
            remedies=remedies("ranks.late", run.framework),
            refuted_by="its layers take longer, too, in a trace of the device",
        )
    else:
        yield Finding(
            message=Message(
                "ranks.uneven",
                "rank {rank} works {time} longer in each step than those like it: the others wait for it ({share} of the step)",
                {"rank": worst.rank, "time": seconds(worst.seconds), "share": percent(share)},
            ),
            severity=severity_of(share),
            loss_ratio=share,
            evidence=(Evidence("work between exchanges beside that of ranks like it", _place(run, worst.rank)),),
            remedies=remedies("ranks.uneven", run.framework),
            refuted_by="another rank is the slow one after nodes change places",
        )


def _pauses(run: Run) -> Iterator[Finding]:
    """What the host does in the step that is none of its work."""
    found = run.recorded
    assert found is not None, "asked by recorded_rules"
    for name, (id_, words) in PAUSES.items():
        spent = found.spent[name]
        mean = sum(spent.values()) / len(spent)
        share = mean / found.mean_step_s
        if share < LEAST:
            continue
        most = max(spent, key=lambda rank: spent[rank])
        yield Finding(
            message=Message(id_, words, {"time": seconds(mean), "share": percent(share)}),
            severity=severity_of(share),
            loss_ratio=share,
            evidence=(Evidence(f"{seconds(spent[most])} of each step on rank {most}", _place(run, most)),),
            remedies=remedies(id_, run.framework),
        )


def _padding(run: Run) -> Iterator[Finding]:
    """Tokens that nobody learns from."""
    steps = [each for log in run.all(RunLog) for each in log.steps if each.rank_tokens and each.padded_tokens is not None]
    total = sum(each.rank_tokens or 0 for each in steps)
    padded = sum(each.padded_tokens or 0 for each in steps)
    if not total or padded / total < LEAST:
        return
    yield Finding(
        message=Message(
            "data.padding", "{share} of the tokens are padding: they cost as much as others", {"share": percent(padded / total)}
        ),
        severity=severity_of(padded / total),
        loss_ratio=padded / total,
        evidence=(Evidence(f"{padded:,} of {total:,} tokens", _place(run)),),
        remedies=remedies("data.padding", run.framework),
    )


def _threads(run: Run) -> Iterator[Finding]:
    """More threads than cores on every rank."""
    for log in run.all(RunLog):
        threads, cores, ranks = (_number(log, name) for name in ("threads", "cores", "ranks_here"))
        if threads and cores and ranks and threads > 1 and threads * ranks > 2 * cores:
            yield Finding(
                message=Message(
                    "host.threads",
                    "{ranks} ranks of {threads} threads share {cores} cores",
                    {"ranks": ranks, "threads": threads, "cores": cores},
                ),
                severity="warning",
                evidence=(Evidence(f"asked for: {log.settings.get('asked_threads', 'unknown')}", Place(file=log.file, line=1)),),
                remedies=remedies("host.threads", run.framework),
            )
            return


def _own_threads(run: Run, worst: Excess) -> Finding | None:
    """The slow rank has another number of threads than the others."""
    found = run.recorded
    threads = {log.settings.get("rank", ""): _number(log, "threads") for log in run.all(RunLog)}
    own = threads.pop(str(worst.rank), None)
    if found is None or not own or not threads or own in threads.values():
        return None
    share = worst.seconds / found.step_s
    return Finding(
        message=Message(
            "host.threads",
            "rank {rank} has {own} threads, the others {others}, and works {time} longer in each step ({share} of it)",
            {"rank": worst.rank, "own": own, "others": max(each or 0 for each in threads.values()), "time": seconds(worst.seconds),
             "share": percent(share)},
        ),
        severity=severity_of(share),
        loss_ratio=share,
        evidence=(Evidence("threads at its steps", _place(run, worst.rank)),),
        remedies=remedies("host.threads", run.framework),
    )


def _growth(run: Run) -> Iterator[Finding]:
    """Memory that grows from step to step."""
    worst: tuple[float, RunLog, float] | None = None
    for log in run.all(RunLog):
        live = [each.allocated_bytes for each in log.memory if each.allocated_bytes]
        if len(live) < 4:
            continue
        more = [b - a for a, b in pairwise(live)]
        grown = median(more) * len(more)
        grows = sum(each > 0 for each in more) >= GROWING * len(more) and grown > GROWN * live[0]
        if grows and (worst is None or grown > worst[0]):
            worst = (grown, log, median(more))
    if worst is not None:
        grown, log, each_step = worst
        yield Finding(
            message=Message(
                "memory.leak",
                "rank {rank} keeps {each:.1f} MiB more after each step: {grown:.0f} MiB over {steps} steps",
                {"rank": log.memory[0].rank, "each": each_step / 2**20, "grown": grown / 2**20, "steps": len(log.memory)},
            ),
            severity="warning",
            evidence=(Evidence("live at the end of each step", Place(file=log.file, line=log.memory[0].line)),),
            remedies=remedies("memory.leak", run.framework),
        )


def _number(log: RunLog, name: str) -> int | None:
    said = log.settings.get(name, "")
    return int(said) if said.isdecimal() and len(said) < 10 else None


def _place(run: Run, rank: int | None = None) -> Place | None:
    trace = next((each for each in run.traces if rank is None or each.rank == rank), None)
    return None if trace is None else Place(file=trace.file, t0_s=trace.steps[0].start_s, t1_s=trace.steps[-1].end_s)
