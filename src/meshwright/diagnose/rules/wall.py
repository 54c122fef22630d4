"""What happens beside steps and over their run: checkpoints, evaluation, spikes, drift, complaints, the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.complaints import complaints
from meshwright.diagnose.finding import Evidence, Finding, severity_of
from meshwright.diagnose.remedies import remedies
from meshwright.domain.observed import Place
from meshwright.errors import Message
from meshwright.readers.logs.parts import part_of
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run
    from meshwright.domain.observed import Sign

OUTSIDE_RATIO = 0.02
"""Share of the wall time outside of steps: our judgement, as the next two."""
SPIKES_RATIO = 0.02
DRIFT_RATIO = 0.03
REPEATED = 3
"""Spikes from which a period can be told."""
WORDS = {
    "oom": "the run ended because memory did",
    "nccl": "the run ended in a failure of the communication library",
    "timeout": "the run ended at its time limit",
    "hang": "the run hung: a watchdog ended it",
    "node": "the run ended with a node",
    "preempted": "the run was preempted",
    "cancelled": "the run was cancelled",
    "user": "the run ended by an error of the program or of its settings",
}
MILD = frozenset({"preempted", "cancelled", "timeout"})
"""Ends that are no failure of the run."""


def ended(run: Run) -> Iterator[Finding]:
    """How the run ended, where it did not end well."""
    ending = run.ending
    if ending is None or ending.status not in WORDS or (ending.status == "oom" and run.out_of_memory):
        return
    rank = f" (rank {ending.rank})" if ending.rank is not None else ""
    yield Finding(
        message=Message(f"ended.{ending.status}", "{words}{rank}", {"words": WORDS[ending.status], "rank": rank}),
        severity="warning" if ending.status in MILD else "error",
        evidence=(Evidence(ending.evidence, ending.place),),
        remedies=remedies(f"ended.{ending.status}", run.framework),
    )


def outside(run: Run) -> Iterator[Finding]:
    """Wall time outside of steps: saving, evaluating."""
    log, steady = run.log, run.steady
    if log is None or steady is None:
        return
    spent: dict[str, tuple[float, int, int]] = {}
    for each in log.timers:
        part = part_of(each.name)
        if part in ("checkpoint", "evaluation"):
            seconds_so_far, count, line = spent.get(part, (0.0, 0, each.line))
            spent[part] = (seconds_so_far + each.most_s, count + 1, line)
    steps_s = sum((each.step_s or 0.0) * each.averaged for each in steady.steps)
    for part, (total_s, count, line) in spent.items():
        share = total_s / (steps_s + total_s) if steps_s else 0.0
        if share > OUTSIDE_RATIO:
            yield Finding(
                message=Message(
                    f"wall.{part}",
                    "{part} took {time} ({often}): {share} of the time that the log covers",
                    {"often": "once" if count == 1 else f"{count:,} times", "part": part, "time": seconds(total_s),
                     "share": percent(share)},
                ),
                severity=severity_of(share),
                loss_ratio=share,
                remedies=remedies(f"wall.{part}", run.framework),
                evidence=(Evidence(f"timer of {part}", Place(file=log.file, line=line)),),
            )


def drift(run: Run) -> Iterator[Finding]:
    """Steps that grow longer, and steps that stand out."""
    log, steady = run.log, run.steady
    if log is None or steady is None:
        return
    if steady.drift_ratio is not None and steady.drift_ratio > DRIFT_RATIO:
        yield Finding(
            message=Message(
                "steps.drift",
                "steps grew {share} longer from the first quarter of the log to the last",
                {"share": percent(steady.drift_ratio)},
            ),
            severity=severity_of(steady.drift_ratio),
            loss_ratio=steady.drift_ratio / (1.0 + steady.drift_ratio),
            remedies=remedies("steps.drift", run.framework),
            evidence=(
                Evidence(f"step {steady.steps[0].number}", Place(file=log.file, line=steady.steps[0].line)),
                Evidence(f"step {steady.steps[-1].number}", Place(file=log.file, line=steady.steps[-1].line)),
            ),
        )
    if steady.spikes and steady.spike_ratio > SPIKES_RATIO:
        gaps = {b.number - a.number for a, b in zip(steady.spikes, steady.spikes[1:], strict=False)}
        every = f", every {gaps.pop()} steps" if len(gaps) == 1 and len(steady.spikes) >= REPEATED else ""
        explained = run.recorded is not None and any(
            sum(spent.values()) / len(spent) > SPIKES_RATIO * run.recorded.mean_step_s for spent in run.recorded.spent.values()
        )
        if explained:
            return
        yield Finding(
            message=Message(
                "steps.spikes",
                "{count} of {all} steps take more than 1.3 times the median{every}: {share} of the time",
                {"count": len(steady.spikes), "all": len(steady.steps), "every": every, "share": percent(steady.spike_ratio)},
            ),
            severity=severity_of(steady.spike_ratio) if len(steady.spikes) >= REPEATED else "advice",
            loss_ratio=steady.spike_ratio,
            remedies=remedies("steps.rollouts" if run.phases else "steps.periodic" if every else "steps.spikes", run.framework),
            evidence=tuple(
                Evidence(
                    f"step {each.number}: {seconds(each.step_s or 0.0)} beside a median of {seconds(steady.step_s)}",
                    Place(file=log.file, line=each.line),
                )
                for each in steady.spikes[:3]
            ),
        )


def complained(run: Run) -> Iterator[Finding]:
    """What files say against themselves, one finding for each kind."""
    first: dict[str, Sign] = {}
    times: dict[str, int] = {}
    for sign in run.signs:
        first.setdefault(sign.id, sign)
        times[sign.id] = times.get(sign.id, 0) + sign.times
    for id_, sign in first.items():
        known = complaints().get(id_)
        if known is None:
            continue
        often = f" ({times[id_]:,} times)" if times[id_] > 1 else ""
        yield Finding(
            message=Message(f"sign.{id_}", "{words}{often}", {"words": known.says, "often": often}),
            severity=known.severity,
            evidence=(Evidence(sign.text, sign.place),),
            remedies=remedies(known.remedy, run.framework),
        )
