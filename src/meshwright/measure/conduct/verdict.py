"""How a trial ended, of everything that is known of it: what ranks printed, what ran them, and why it was ended from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.measure.outcome import Outcome
from meshwright.measure.watching import SLURM_SAYS, Seen, seen, tail
from meshwright.readers.endings import CAUSE
from meshwright.readers.signs import by_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.observed.ending import Status
    from meshwright.measure.conduct.running import Running, Why
    from meshwright.measure.executors.base import Cause, Ended

STATUS_OF: Mapping[Cause, Status] = {
    "cancelled": "cancelled", "time": "timeout", "preempted": "preempted", "node": "node", "oom": "oom", "orphaned": "cancelled",
    "lost": "node", "disk": "node",
}
SAID_OF: Mapping[Cause, str] = {
    "cancelled": "cancelled from outside", "time": "the time limit of the job is over", "preempted": "gave way to another job",
    "node": "its node failed", "oom": "killed for its memory", "orphaned": "ended with the sweep that had started it",
    "lost": "nothing of it is left", "disk": "no space left on the disk of its folder",
}
LAST_LINE = "; its last line: "
STRONG = 2
"""Weight from which a line of the log is a cause, not what follows from another's end."""
KILLED = frozenset({"program.killed", ""})
RETRIES: frozenset[Status] = frozenset({"nccl", "node", "preempted"})
"""What another attempt can help."""
AGAIN: frozenset[Status] = RETRIES | {"cancelled"}
"""What is run again when a sweep goes on: nobody has seen what it would come to."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and the sign that says it."""

    outcome: Outcome
    sign: str = ""


def verdict(running: Running, ended: Ended, tokens: float, held_s: float) -> Verdict:
    """What came of a trial.

    ``tokens``: of a step; ``held_s``: how long its devices were held, where the executor does not say.
    """
    last = seen(running.folder)
    why: Why = "" if running.why and _by_itself(ended, last) else running.why
    now = running.now if why in ("hang", "timeout", "dying") else last
    status, evidence, rank, sign = _how(running, why, ended, now)
    if status == "ok" and now.broken:
        status, evidence = "user", now.broken
    if status == "parse" or (status == "ok" and not now.step_s):
        words = tail(running.folder)
        step = "step that has a time" if now.steps else "step"
        status, evidence = "parse", f"it ended well and printed no {step}" + (f"; its last line: {words}" if words else "")
    trial, seconds = running.trial, held_s if ended.duration_s is None else ended.duration_s
    devices, step_s = trial.devices, None if now.step_s is None else now.step_s * trial.scale
    if trial.scaled and status == "ok":
        evidence = f"{evidence}; " * bool(evidence) + (
            f"{trial.scaled}, times {trial.scale:.3g} by the cost model, which may be off by {100 * trial.scale_error_ratio:.2g} %")
    return Verdict(Outcome(
        status=status, step_s=step_s, interval_s=trial.whole(now.interval_s),
        tokens_per_s_per_device=tokens / step_s / devices if step_s else None,
        memory_peak_bytes=None if trial.scaled else now.memory_bytes,
        device_s=seconds * devices, rank=rank, evidence=evidence,
    ), sign)


def _by_itself(ended: Ended, now: Seen) -> bool:
    """Whether a trial that was told to end had ended before that reached it: nothing that it left is the telling's doing.

    Holds:   between the last look at a trial and the word that it is to end it may come to its own end, and to any.
    """
    if ended.cause or ended.exit_status is None:
        return False
    ending = now.ending(ended.exit_status)
    killed = ending.status == "oom" and ending.sign in KILLED and not ended.memory_kills
    return not killed and ending.status != "cancelled"


def _how(running: Running, ours: Why, ended: Ended, now: Seen) -> tuple[Status, str, int | None, str]:
    """Status, evidence, rank and sign: first a cause in the log, then why it was ended, then what ran it, then its exit status."""
    ending = now.ending(ended.exit_status)
    rule = by_id().get(ending.sign)
    strong = rule is not None and rule.weight >= STRONG and ending.status != "ok"
    if ours in ("enough", "lost") and not (now.dying and rule is not None and rule.weight >= CAUSE):
        return "ok", running.said, None, ""
    if strong and not (ours and ending.status == "cancelled"):
        return ending.status, ending.evidence, ending.rank, ending.sign
    if ours in ("budget", "interrupt", "withdrawn"):
        return "cancelled", running.said, None, ""
    if ours in ("hang", "timeout"):
        return ours, running.said, None, ""
    told = ours == "dying" and ended.cause and STATUS_OF[ended.cause] == "cancelled"  # it was, for what it was dying of
    if ended.cause and not told:
        return STATUS_OF[ended.cause], ended.said or SAID_OF[ended.cause], ending.rank, ""
    if ending.status == "oom" and ending.sign in KILLED and ended.memory_kills == 0:
        return "node", ending.evidence or "killed by signal 9, and not by the kernel for memory", ending.rank, ending.sign
    if ending.status in ("unknown", "running"):
        return "node", ended.said or SAID_OF["lost"], None, ""
    said = ending.evidence or ended.said
    if (not said or said.startswith(SLURM_SAYS)) and ending.status not in ("ok", "parse"):
        last = tail(running.folder)
        said = (said or f"exit status {ended.exit_status}") + (f"{LAST_LINE}{last}" if last else "")
    return ending.status, said, ending.rank, ending.sign
