"""What must not have happened in a case."""

from __future__ import annotations

import re
import signal
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.hostile.atoms import CANARY
from benchmarks.hostile.case import Case, Stream
from benchmarks.hostile.commands import MEASURING
from benchmarks.hostile.sandbox import patience
from benchmarks.hostile.written import broken, script_faults

if TYPE_CHECKING:
    from benchmarks.hostile.campaign import Campaign
    from benchmarks.hostile.sandbox import Outcome
    from benchmarks.hostile.snapshot import Entry

FAULTS = {
    "traceback": "tracebacks", "status 70": "status 70", "canary": "executed canaries", "lost": "lost files",
    "half": "half-written files", "broken": "files that do not parse",
    "memory": "above 1 GB", "time": "above 20 s", "control": "control characters shown", "unbounded": "unbounded messages",
    "python": "Python words shown",
    "status": "wrong status or no word", "left": "late end or children left",
}
"""Identifier of a fault -> what the table calls it."""
MEMORY_BYTES, TIME_S, LATE_S = 10**9, 20.0, 4.0
MAX_LINE_BYTES, MAX_LINES = 4096, 60
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
COLOURS = re.compile("\x1b\\[[0-9;]*[mK]|\x1b\\[\\?25[lh]|\r")
PYTHON = re.compile(
    r"NoneType|<class '|\b(Type|Value|Key|Index|Attribute|Overflow|Recursion|Unicode\w*|ZeroDivision|Memory)Error\b|\.py:\d+|"
    r"\w+Warning:|Errno|"
    r"holds (str|int|float|list|dict|bool)\b|\bsurrogates not allowed|codec can't|object at 0x"
)
ENDS = {0, 1, 2, *(128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE))}
FULL_DISK = (73, 74)
"""sysexits: cannot create, input or output error; what a full device may end with."""
KEPT = ("calibrate", "validate")
"""What they have worked out for minutes is kept, also where nobody can be told."""
COMPARED = ("plan", "export", "fix", "validate")
"""They write the same bytes twice; others write times."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A case that was run, with its folder before and after."""

    case: Case
    folder: Path
    outcome: Outcome
    before: dict[str, Entry]
    after: dict[str, Entry]
    beside: Outcome | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The faults of a case, each with what shows it."""

    case: Case
    outcome: Outcome
    faults: dict[str, str]


def judge(trial: Trial, campaign: Campaign) -> Judgement:
    """All that is wrong with how a case ended."""
    faults: dict[str, str] = {}
    for outcome in (trial.outcome, *((trial.beside,) if trial.beside else ())):
        _said(trial.case, outcome, faults)
        _ended(trial.case, outcome, faults)
    _kept(trial, faults)
    if not trial.case.signal:
        _written(trial, campaign, faults)
    if trial.case.whole:
        _whole(trial, campaign, faults)
    _same_status(trial, campaign, faults)
    return Judgement(trial.case, trial.outcome, faults)


def _said(case: Case, outcome: Outcome, faults: dict[str, str]) -> None:
    """What reached standard output and standard error."""
    for text in (outcome.err, outcome.out):
        if "Traceback (most recent" in text and (not case.signal or "meshwright" in text):
            faults.setdefault("traceback", text.strip().splitlines()[-1][:200])
        if "Exception ignored" in text:
            faults.setdefault("traceback", next(line for line in text.splitlines() if "Exception ignored" in line)[:200])
        coloured = Stream.TTY in (case.out, case.err) or "FORCE_COLOR" in case.environment
        shown = COLOURS.sub("", text) if coloured else text
        if found := next((one for one in shown if _unseen(one)), None):
            line = next(line for line in shown.split("\n") if found in line)
            faults.setdefault("control", f"U+{ord(found):04X} in: {line.strip()[:160]!r}")
    if Stream.TTY not in (case.out, case.err) and (found := PYTHON.search(outcome.err)):
        line = outcome.err[outcome.err.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0]
        faults.setdefault("python", line[:200])
    if Stream.TTY in (case.out, case.err):
        return
    lines = outcome.err.split("\n")
    longest = max(lines, key=len)
    if len(lines) > MAX_LINES + 1 or len(longest.encode("utf-8", "surrogateescape")) > MAX_LINE_BYTES:
        faults.setdefault("unbounded", f"{outcome.err_bytes} bytes, {len(lines)} lines: {longest[:120]!r}")


def _unseen(character: str) -> bool:
    """A control character, a mark of direction, or a byte that is no text."""
    return character in BIDI or (character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"))


def _ended(case: Case, outcome: Outcome, faults: dict[str, str]) -> None:
    """Status, memory, time, children."""
    error = outcome.err.strip().splitlines()[-1][:200] if outcome.err.strip() else "nothing said"
    if outcome.status == 70:
        faults.setdefault("status 70", error)
    elif outcome.stopped:
        pass
    elif outcome.status not in ENDS and not (case.signal and outcome.status == 128 + getattr(signal, f"SIG{case.signal}")):
        if not (Stream.FULL in (case.out, case.err) and outcome.status in FULL_DISK):
            faults.setdefault("status", f"status {outcome.status}: {error}")
    elif outcome.status == 2 and case.err is Stream.FILE and "error:" not in outcome.err:
        faults.setdefault("status", f"status 2 without a word on standard error: {error}")
    elif outcome.status == 0 and case.out is Stream.FULL and not case.signal:
        faults.setdefault("status", "status 0 though nothing could be printed")
    if outcome.rss_bytes > MEMORY_BYTES:
        faults.setdefault("memory", f"{outcome.rss_bytes / 1e9:.1f} GB")
    if (outcome.stopped or outcome.cpu_s > TIME_S) and not (case.verb in MEASURING or case.slow or case.signal):
        faults.setdefault(
            "time", f"{outcome.wall_s:.0f} s, {outcome.cpu_s:.0f} s of the processor{', ended here' if outcome.stopped else ''}"
        )
    if outcome.left:
        faults.setdefault("left", f"{outcome.left} processes two seconds after its end")
    elif case.signal and outcome.took_s > patience(LATE_S):
        faults.setdefault("left", f"ended {outcome.took_s:.1f} s after the signal")


def _kept(trial: Trial, faults: dict[str, str]) -> None:
    """What was there before is there still; nothing is left half-way."""
    case, status = trial.case, trial.outcome.status
    for name, entry in trial.before.items():
        now = trial.after.get(name)
        allowed = any(name == each or name.startswith(f"{each.rstrip('/')}/") for each in case.may_change)
        if now is None:
            faults.setdefault("lost", f"{name} is gone")
        elif now.held != entry.held and not allowed:
            faults.setdefault("lost", f"{name} was changed")
        elif now.manner != entry.manner and case.kind == "file changed in place":
            faults.setdefault("lost", f"{name}: kind, mode, owner, names or BOM {entry.manner} became {now.manner}")
        elif now != entry and status in (2, 70) and not case.whole:
            faults.setdefault("half", f"{name} was changed, status {status}")
    fresh = [name for name in trial.after if name not in trial.before]
    if any(Path(name).name == CANARY for name in fresh):
        faults.setdefault("canary", "made while the command ran")
    if case.verb in MEASURING:
        return
    untold = case.verb in KEPT and case.out in (Stream.FULL, Stream.CLOSED)
    if status in (2, 70) and fresh and not case.beside and not untold:
        faults.setdefault("half", f"{fresh[0]} was written, status {status}")
    if case.signal != "KILL" and (left := next((name for name in fresh if Path(name).name.startswith(".meshwright")), "")):
        faults.setdefault("half", f"{left} was left")


def _written(trial: Trial, campaign: Campaign, faults: dict[str, str]) -> None:
    """New files parse, and none of them runs what a name said."""
    for name, entry in trial.after.items():
        path = trial.folder / name
        if name in trial.before or entry.kind != "file" or Path(name).name == CANARY:
            continue
        if problem := broken(path):
            faults.setdefault("broken", f"{name} {problem}")
        if path.suffix == ".sh":
            problem, ran = script_faults(path, campaign.environment(trial.folder), campaign.scratch)
            if problem:
                faults.setdefault("broken", f"{name}: {problem}")
            if ran:
                faults.setdefault("canary", f"made by bash {name}")


def _whole(trial: Trial, campaign: Campaign, faults: dict[str, str]) -> None:
    """The old files or the new ones, of one command."""
    case, after = trial.case, trial.after
    if case.signal == "KILL" and trial.outcome.status == 128 + signal.SIGKILL:
        from benchmarks.hostile.snapshot import snapshot

        status = campaign.again(case, trial.folder).status
        after = snapshot(trial.folder)
        if status not in (0, 1):
            faults.setdefault("half", f"the next start ends with {status}")
            return
        if left := next((name for name in after if Path(name).name.startswith(".meshwright") and name not in trial.before), ""):
            faults.setdefault("half", f"{left} was left after the next start")
    if after == trial.before:
        return
    for arguments in (case.arguments, *((case.beside,) if case.beside else ())):
        _, wanted = campaign.reference(case, arguments)
        own = tuple(f"{each.rstrip('/')}/" for each in case.may_change)
        made = {name: entry for name, entry in wanted.items() if trial.before.get(name) != entry or name.startswith(own)}
        if made and all(
            name in after and (case.verb not in COMPARED or _alike(after[name], entry)) for name, entry in made.items()
        ):
            return
    fresh = [name for name, entry in after.items() if trial.before.get(name) != entry]
    faults.setdefault("half", f"neither the old files nor the new ones: {', '.join(sorted(fresh))[:160]}")


def _alike(one: object, other: object) -> bool:
    """The same content; folders: there."""
    return one.kind == other.kind and (one.kind == "folder" or one.content == other.content)  # type: ignore[attr-defined]


def _same_status(trial: Trial, campaign: Campaign, faults: dict[str, str]) -> None:
    """Standard error that cannot be written changes no status."""
    case = trial.case
    if case.err not in (Stream.FULL, Stream.CLOSED) or case.out is not Stream.FILE or case.signal or trial.outcome.stopped:
        return
    status, _ = campaign.reference(replace(case, err=Stream.FILE), case.arguments)
    if status != trial.outcome.status:
        faults.setdefault("status", f"status {trial.outcome.status} where standard error cannot be written, {status} where it can")
