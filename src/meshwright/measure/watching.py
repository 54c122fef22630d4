"""A trial as its output shows it while it runs: steps, their median with its interval, and what would end it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from meshwright.domain.observed import RunLog
from meshwright.domain.observed.steady import steady, time_of
from meshwright.engine.profile.statistics import median_interval
from meshwright.errors import InputError
from meshwright.measure.trial import OUTPUT, RECORD
from meshwright.readers.endings import BY_SIGNAL, CAUSE, ended, late
from meshwright.readers.formats import observe
from meshwright.readers.signs import by_id

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.domain.observed import Sign
    from meshwright.domain.observed.ending import Ending

CONFIDENCE = 0.8
"""Of the interval of a median (``Outcome.interval_s``): 80 % is what four steps can hold. Our judgement."""
NOT_A_NUMBER = "loss.not_a_number"
RISE = 1.5
"""A loss that ends so many times above where it began diverges; noise of a few steps does not reach it. Our judgement."""
SLURM_SAYS = ("srun: ", "slurmstepd")
ENDS = 3
"""Losses at either end that are compared: the fewest that one outlier does not decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the files of a trial say by now."""

    logs: tuple[RunLog, ...] = ()
    steps: int = 0
    steps_s: tuple[float, ...] = ()
    """Those that count, warming up left out."""
    step_s: float | None = None
    interval_s: tuple[float, float] | None = None
    """Of the median; None below three steps."""
    memory_bytes: float | None = None
    """Of the fullest rank."""
    broken: str = ""
    """Why its speed counts for nothing: a loss that is no number, or diverges."""
    dying: str = ""
    """The line of a rank that says why it ends; others may hang on."""
    killed: str = ""
    """The line of a launcher that says that a signal has ended a process: why others hang, where they do."""

    def ending(self, exit_status: int | None) -> Ending:
        """How it ended, where it has."""
        return ended(self.logs, exit_status=exit_status)


def seen(folder: Path) -> Seen:
    """What the trial of a folder has printed and noted; nothing of it may be readable yet."""
    logs = _logs(folder)
    if not logs:
        return Seen()
    best = max(logs, key=lambda log: (log.format == "meshwright_step", len(log.steps)))
    found = steady(best.steps)
    times = tuple(each for step in found.steps if (each := time_of(step)) is not None) if found is not None else ()
    interval = median_interval(times, CONFIDENCE)[1:] if len(times) >= ENDS else None
    devices = [log for log in logs if log.settings.get("device") != "cpu"]  # a processor has no allocator of its own
    memory = [step.memory_bytes for log in devices for step in log.steps if step.memory_bytes]
    memory += [each for log in devices for rank in log.memory if (each := rank.max_reserved_bytes or rank.max_allocated_bytes)]
    return Seen(
        logs=logs, steps=len(best.steps), steps_s=times, step_s=median(times) if times else None, interval_s=interval,
        memory_bytes=max(memory, default=None), broken=_broken(logs, best), dying=_dying(logs), killed=_killed(logs),
    )


def sizes(folder: Path) -> tuple[int, ...]:
    """Bytes of the files that a trial prints into: what changes while it is not silent."""
    return tuple(_size(path) for path in _files(folder))


def tail(folder: Path, most: int = 300) -> str:
    """The last line of what a trial printed, in short; what Slurm says of its end is not the trial's."""
    try:
        with (folder / OUTPUT).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - 4096))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:most] for line in reversed(lines) if line.strip() and not line.startswith(SLURM_SAYS)), "")


def _files(folder: Path) -> list[Path]:
    """What is printed first, then the records of ranks."""
    printed = sorted(folder.glob(f"{OUTPUT[:-4]}*.log"))
    return [path for path in (*printed, *sorted((folder / RECORD).glob("rank-*.jsonl"))) if path.is_file()]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _logs(folder: Path) -> tuple[RunLog, ...]:
    found: list[RunLog] = []
    for path in _files(folder):
        try:
            found += [each for each in observe([path]).observations if isinstance(each, RunLog)]
        except InputError:  # nothing in it that anybody knows, or nothing yet
            continue
    return tuple(found)


def _broken(logs: tuple[RunLog, ...], best: RunLog) -> str:
    for log in logs:
        for sign in log.signs:
            if sign.id == NOT_A_NUMBER:
                return sign.text
    losses = [step.loss for step in best.steps if step.loss is not None]
    if len(losses) >= 2 * ENDS:
        first, last = median(losses[:ENDS]), median(losses[-ENDS:])
        if first > 0 and last > RISE * first:
            return f"the loss diverges: from {first:.4g} to {last:.4g}"
    return ""


def _dying(logs: tuple[RunLog, ...]) -> str:
    """A cause that some rank has printed, and that the run has not survived: one from before its first step ends with that."""
    for log in logs:
        for sign in log.signs:
            rule = by_id()[sign.id]
            if rule.ends not in ("", "ok") and rule.weight >= CAUSE and late(sign, log) and _behind_a_step(sign, log):
                return sign.text
    return ""


def _killed(logs: tuple[RunLog, ...]) -> str:
    return next((sign.text for log in logs for sign in log.signs if sign.id in BY_SIGNAL and late(sign, log)), "")


def _behind_a_step(sign: Sign, log: RunLog) -> bool:
    """Whether a step stands before it, where any stands behind it."""
    line = sign.last_line or sign.place.line or 0
    return not log.steps or any(step.line < line for step in log.steps)
