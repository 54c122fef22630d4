"""One call of a verb that runs trials: what it costs is said, whoever may is asked, and everything is kept and told."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from meshwright.errors import Message, NoAnswerError, fault
from meshwright.measure.chooser import layout_of
from meshwright.measure.conduct.budget import HOUR_S, MINUTE_S, Budget, Price, price
from meshwright.measure.conduct.finals import MOST, fastest, pooled
from meshwright.words import about, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from meshwright.api.fields import Faults, Values
    from meshwright.api.measuring.subject import Subject
    from meshwright.measure.chooser import Candidate, Chooser
    from meshwright.measure.executors.base import Executor
    from meshwright.measure.store import Attempt
    from meshwright.measure.trial import Trial

    Told = Callable[[Mapping[str, Any]], None]
    Confirm = Callable[[str], bool]

STORE = "runs.db"
EVENT = b'{"event": '
"""What a line of events begins with."""
_READ = ("template", "layouts", "model", "request", "cluster", "calibration")
"""Options that may name files which are read."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where trials run and are kept."""

    executor: Executor
    at_once: int
    store: Path
    budget: Budget
    events: str = ""
    finals: int = 0
    """Rounds in which the fastest are measured again, at most."""


@dataclass(frozen=True, kw_only=True)
class Conducted:
    """What came of it."""

    attempts: tuple[Attempt, ...]
    """Of this case in the store, those of earlier calls too."""
    stopped: str
    interrupted: bool
    device_s: float
    """Of this call."""
    aside: Mapping[str, str]
    """Node -> why it was set aside."""


def place(values: Values, faults: Faults) -> Place:
    """Where the options want trials to run; faults are noted.

    Errors:  ``InputError`` with every fault noted by then, where there is no such executor.
    """
    from meshwright.measure.executors import executor
    from meshwright.measure.executors.base import Holds
    from meshwright.measure.executors.ssh import Ssh
    from meshwright.outputs import obstacles

    names = list(dict.fromkeys(values["executor"])) or ["local"]
    if len(names) > 1:
        faults.add("sweep.executors", "a trial runs on one executor, and {names} are given", path="--executor", names=names)
    runner: Executor | None = None
    with faults.at("executor"):
        runner = executor(names[0])
        if values["hosts"]:
            if not isinstance(runner, Ssh):
                raise fault("sweep.hosts", "names hosts of --executor ssh", path="--hosts")
            runner = Ssh(values["hosts"])
        if values["reuse"]:
            if not isinstance(runner, Holds):
                raise fault("sweep.reuse", "{name} holds nothing between trials: --executor local or slurm", path="--reuse",
                            name=runner.name)
            runner.reuse = True
    store = Path(values.get("store", STORE))
    if store.exists() and not values["resume"] and not values["dry_run"]:
        faults.add("sweep.store", "is there: --resume goes on with it, another --store begins anew", path=str(store))
    if not store.parent.is_dir():
        faults.add("sweep.store-folder", "its folder is not there", path=str(store))
    out = values.get("out", "")
    if out and Path(out).suffix not in (".csv", ".parquet"):
        faults.add("sweep.out", "is neither a .csv nor a .parquet", path=str(out))
    events = str(values.get("events", ""))
    read = [str(values[name]) for name in _READ if isinstance(values.get(name), str | Path)]
    faults.note(obstacles([out] if out else [], inputs=[*read, str(store)], force=values["force"], fresh=True))
    if out and os.path.realpath(out) == os.path.realpath(store):
        faults.add("sweep.out-store", "is the store: name another --out", path=out)
    if events:
        faults.note(_no_events(events, {out, str(store), *read} - {""}))
    if out.endswith(".parquet"):
        with faults:
            from meshwright.evidence.rows.parquet import require_arrow

            require_arrow("--out")
    faults.check()
    assert runner is not None, "faults.check() raises where there is none"
    budget = Budget(trials=values.get("trials"), wall_s=_times(values.get("minutes"), MINUTE_S),
                    device_s=_times(values.get("device_hours"), HOUR_S))
    at_once = values.get("at_once", runner.at_once)
    return Place(executor=runner, at_once=at_once, store=store, budget=budget, events=events,
                 finals=values.get("finals", 0))


def _no_events(path: str, others: Collection[str]) -> list[Message]:
    """Why events cannot go behind what a file holds: another's file is not added to."""
    place = os.path.realpath(path)
    if place in map(os.path.realpath, others):
        return [Message("sweep.events-same", "--events needs a file of its own: this one is read or written as well", {}, path)]
    with suppress(OSError):
        if Path(place).is_file():
            with Path(place).open("rb") as file:
                if (begin := file.read(len(EVENT))) and begin != EVENT:
                    return [Message("sweep.events-other", "holds something else than events: name another --events", {}, path)]
    return []


def _times(number: float | None, unit: float) -> float | None:
    return None if number is None else number * unit


def priced(given: Subject, where: Place, candidates: Sequence[Candidate]) -> tuple[Price, list[Trial]]:
    """What candidates will cost, and their trials; the blocks of finals, as many as there may be, take what the fastest does."""
    trials = [given.trial(each) for each in candidates]
    blocks = min(len(candidates), MOST if len(candidates) > 1 else 0) * where.finals
    first = sorted(range(len(candidates)), key=lambda index: candidates[index].predicted_s or 0.0)[:1] * blocks
    candidates, trials = [*candidates, *(candidates[index] for index in first)], [*trials, *(trials[index] for index in first)]
    return price(candidates, trials, where.budget, start_s=given.start_s, at_once=where.at_once), trials


def price_line(given: Subject, where: Place, cost: Price) -> str:
    """The price in one sentence."""
    return (
        f"{plural(cost.trials, 'trial')} of {given.title} on {where.executor.name}: about {about(cost.device_s / HOUR_S)} "
        f"device-hours and {about(max(cost.wall_s / MINUTE_S, 0.1))} minutes, if each starts within {cost.start_s:g} s and steps "
        "take what is predicted"
    )


def agreed(line: str, values: Values, confirm: Confirm | None) -> None:
    """Ask whoever may say no before the first trial.

    Errors:  ``InputError`` where nobody can be asked; ``NoAnswerError`` where the answer is no.
    """
    if values["yes"]:
        return
    if confirm is None:
        raise fault("sweep.unasked", "nobody can be asked here: {line}; start it with --yes", line=line)
    if not confirm(line):
        raise NoAnswerError(Message("sweep.declined", "nothing was started", {}))


def conduct(
    given: Subject, where: Place, chooser: Chooser, candidates: Sequence[Candidate], told: Told | None = None, *,
    most: int | None = None, price_said: str = "",
) -> Conducted:
    """Run what a chooser asks for of some candidates. ``most``: how many trials there are at most, where that is known;
    ``price_said``: what they cost, where nobody was asked.

    Errors:  ``InputError`` where the store or a file of events cannot be used; what has ended by then is kept.
    """
    from meshwright.measure.conduct.finals import Finals
    from meshwright.measure.conduct.loop import Conductor, Plan
    from meshwright.measure.store import Store

    plan = Plan(subject=given.key, trial_of=given.trial, tokens=given.case.batch.tokens, budget=where.budget, at_once=where.at_once,
                candidates=tuple(candidates))
    with ExitStack() as stack:
        events = stack.enter_context(Events(where.events, told))
        store = stack.enter_context(Store(where.store))
        conductor = Conductor(plan, Finals(chooser, where.finals), where.executor, store, events)
        if price_said:
            events({"event": "priced", "at": time.time(), "said": price_said})
        if most is not None:
            events({"event": "planned", "at": time.time(), "trials": most})
        interrupted = False
        try:
            conductor.run()
        except KeyboardInterrupt:
            interrupted = True
        return Conducted(
            attempts=tuple(store.attempts(given.key)), stopped=conductor.stopped, interrupted=interrupted,
            device_s=conductor.device_s, aside=dict(conductor.started.nodes.aside),
        )


class Events:
    """Hands events on, and writes each as a line of JSON behind those of earlier calls."""

    def __init__(self, path: str, told: Told | None) -> None:
        self._path, self._told = path, told
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Events:
        if self._path:
            try:
                # a pipe that nobody reads is refused, and holds nobody up
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
                handle = os.open(self._path, flags, 0o666)
                os.set_blocking(handle, True)
                self._file = os.fdopen(handle, "ab", buffering=0)
            except OSError as error:
                raise fault("sweep.events", "cannot be written: {reason}", path=self._path,
                            reason=error.strerror or str(error)) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._told is not None:
            self._told({"event": "closed"})
        if self._file is not None:
            self._file.close()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """One event.

        Errors:  ``InputError`` where the file cannot take it.
        """
        if self._told is not None:
            self._told(event)
        if self._file is not None:
            try:
                self._file.write(json.dumps(event).encode() + b"\n")
            except OSError as error:
                raise fault("sweep.events", "cannot be written: {reason}", path=self._path,
                            reason=error.strerror or str(error)) from None


def blocks_of(attempts: Sequence[Attempt]) -> dict[str, list[float]]:
    """Label -> steps of its blocks, of layouts that were measured by turns to the last round; none before a second round."""
    found: dict[str, dict[int, float]] = {}
    for each in attempts:
        label, block = layout_of(each.label)
        if block and each.outcome is not None and each.outcome.measured:
            found.setdefault(label, {})[block] = each.step_s or 0.0
    most = max(map(len, found.values()), default=0)
    whole = {label: [step for _, step in sorted(steps.items())] for label, steps in found.items() if len(steps) == most}
    return whole if most > 1 and len(whole) > 1 else {}


def by_turns(attempt: Attempt, steps: Sequence[float]) -> Attempt:
    """An attempt with the step of its blocks in the place of its own."""
    step_s, (low, high) = pooled(steps)
    rate = attempt.tokens_per_s_per_device
    return attempt._replace(
        step_s=step_s, low_s=low, high_s=high,
        tokens_per_s_per_device=rate * attempt.step_s / step_s if rate and attempt.step_s else rate,
    )


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """The fastest that ended well; where some were measured by turns, the fastest of these, with the step of its blocks."""
    measured = [each for each in attempts if each.outcome is not None and each.outcome.measured]
    if blocks := blocks_of(measured):
        label = fastest(blocks)
        own = next(each for each in measured if each.label == label)
        return by_turns(own, blocks[label])
    measured = [each for each in measured if not layout_of(each.label)[1]]
    return min(measured, key=lambda each: each.outcome.step_s or 0.0 if each.outcome is not None else 0.0, default=None)

