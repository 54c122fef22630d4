"""The loop: candidates become trials (``starting``), trials become outcomes, outcomes are kept and told."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshwright.errors import MeshwrightError
from meshwright.measure.conduct.alike import FirstFailures
from meshwright.measure.conduct.recalled import recalled
from meshwright.measure.conduct.starting import MOST_ATTEMPTS, Due, Started
from meshwright.measure.conduct.verdict import AGAIN, RETRIES, verdict
from meshwright.measure.executors.base import Holds
from meshwright.measure.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.measure.chooser import Candidate, Chooser
    from meshwright.measure.conduct.budget import Budget
    from meshwright.measure.conduct.running import Running
    from meshwright.measure.executors.base import Executor, State
    from meshwright.measure.store import Attempt, Store
    from meshwright.measure.trial import Trial

    Told = Callable[[Mapping[str, Any]], None]

EVERY_S, SLOWEST_S = 0.05, 1.0
"""Between two looks at what runs: soon after a start, and once nothing has changed for a while. Our judgement."""
ELSEWHERE_S = 1.0
"""Between two looks at what another sweep on the store runs. Our judgement."""
END_S = 20.0
"""How long trials may take to end when everything ends, on top of their grace: what is slower, as a job of Slurm that
ignores the first signal may be (KillWait, 30 s unless the site says otherwise), ends all the same and is found by whoever goes on.
Our judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run, for whom, and how much of it."""

    subject: str
    """What tells this case and its way of running from every other in a store."""
    trial_of: Callable[[Candidate], Trial]
    tokens: float
    """Of a step."""
    budget: Budget
    at_once: int = 1
    candidates: Sequence[Candidate] = ()
    """What the chooser chooses from: what the store knows of these is told it first."""


class Conductor:
    """Runs what a chooser asks for, on an executor, into a store."""

    def __init__(self, plan: Plan, chooser: Chooser, executor: Executor, store: Store, told: Told | None = None) -> None:
        """``told`` is called with an event for everything that happens: ``event`` says what, ``at`` when."""
        self.plan, self.chooser, self.executor, self.store = plan, chooser, executor, store
        self.started = Started(plan.subject, executor, store, self._tell)
        self.best: tuple[str, Outcome] | None = None
        self.stopped = ""
        self._told, self._elsewhere = told, list[tuple["Candidate", float]]()
        self._trials, self._spent_s, self._began = 0, 0.0, 0.0
        self._first = FirstFailures()

    def run(self) -> str:
        """Until nothing is left to run or the budget is spent -> why it stopped, in one sentence.

        Errors:  whatever interrupts it, after everything that runs was ended; what has ended before is kept.
        """
        self._began = time.monotonic()
        quiet_s = EVERY_S
        try:
            self._recall()
            while True:
                self._start()
                if not self.running and not self._elsewhere:
                    break
                quiet_s = EVERY_S if self._round() else min(SLOWEST_S, quiet_s * 1.2)
                time.sleep(quiet_s)
        except BaseException as error:
            self._end_all("interrupted" if isinstance(error, (KeyboardInterrupt, SystemExit)) else "the sweep ended")
            raise
        finally:
            if isinstance(self.executor, Holds):
                self.executor.let_go()
        self.stopped = self.stopped or self.chooser.stopped or "every trial has been run"
        self._tell("stopped", why=self.stopped)
        return self.stopped

    @property
    def running(self) -> list[Running]:
        """What runs now."""
        return self.started.running

    @property
    def device_s(self) -> float:
        """What this call has spent by now, running trials included."""
        now = time.monotonic()
        return self._spent_s + sum((now - each.begun) * each.trial.devices for each in self.running if each.begun is not None)

    def _recall(self) -> None:
        """Tell what the store knows of the candidates before anything is asked for, and watch those that still run.

        Holds:   a chooser that learns begins with all that was measured; whatever it would ask for now, nothing runs unseen.
        """
        for candidate, attempt in recalled(self.plan.subject, self.plan.candidates, self.store, AGAIN):
            if attempt.outcome is not None:
                self.chooser.take(candidate)
                self._know(candidate, attempt)
                continue
            with suppress(MeshwrightError):  # what is wrong with it is said when it is asked for
                trial = self.plan.trial_of(candidate)
                claim = self.started.claim(candidate, trial)
                if claim.kind == "new":
                    self.store.forget(claim.attempt)
                elif claim.kind == "adopted" and self.started.adopt(candidate, trial, claim.attempt):
                    self.chooser.take(candidate)
                    self._trials += 1

    def _start(self) -> None:
        """Start as many as may run at once, together where the executor takes them so."""
        due: list[Due] = []
        while len(self.running) + len(due) < self.plan.at_once and not self.stopped:
            self.stopped = self._over(started=True)
            candidate = None if self.stopped else self._again() or self.chooser.ask()
            if candidate is None:
                break
            due += self._take(candidate)
        self.started.submit(due)

    def _again(self) -> Candidate | None:
        """A trial that another sweep was running when it was asked for, to look at once more."""
        now = time.monotonic()
        for each in self._elsewhere:
            if each[1] <= now:
                self._elsewhere.remove(each)
                return each[0]
        return None

    def _take(self, candidate: Candidate) -> list[Due]:
        """A candidate that is this sweep's to run is due, or found where it runs; what is known is told."""
        try:
            trial = self.plan.trial_of(candidate)
        except MeshwrightError as error:
            outcome = Outcome(status="user", evidence=str(error.messages[0]))
            self._tell("refused", label=candidate.label, evidence=outcome.evidence)
            self.chooser.tell(candidate, outcome)
            return []
        claim = self.started.claim(candidate, trial)
        attempt = claim.attempt
        if claim.kind == "taken":
            self._elsewhere.append((candidate, time.monotonic() + ELSEWHERE_S))
        elif claim.kind == "done":
            self._know(candidate, attempt)
        elif claim.kind == "adopted" and self.started.adopt(candidate, trial, attempt):
            self._trials += 1
        else:
            self._trials += 1
            return [Due(candidate, trial, self.store.again(attempt) if claim.kind == "adopted" else attempt)]
        return []

    def _know(self, candidate: Candidate, attempt: Attempt) -> None:
        assert attempt.outcome is not None, "what is done has an outcome"
        self._tell("known", attempt, status=attempt.outcome.status, step_s=attempt.outcome.step_s)
        self._learn(candidate, attempt.outcome)

    def _round(self) -> bool:
        """One look at everything that runs -> whether something happened."""
        if not self.running:
            return False
        states = self.executor.poll([each.handle for each in self.running])
        over = self._over(started=False)
        happened = False
        for each in tuple(self.running):
            happened |= self._looked(each, states[each.handle], over)
        if happened and any(each.waits for each in self.running) and self.chooser.enough:
            for each in self.running:
                if each.waits:
                    self._take_back(each, self.chooser.stopped)
        return happened

    def _take_back(self, each: Running, said: str) -> None:
        """A trial that waits for devices need not be run any more."""
        each.told_to_end("withdrawn", f"not begun: {said}")
        self.executor.cancel(each.handle, each.trial.limits.grace_s)

    def _looked(self, each: Running, state: State, over: str) -> bool:
        now = time.monotonic()
        if state.phase == "ended":
            self._finish(each)
            return True
        if state.phase == "waiting":
            if state.said and state.said != each.waits_for and each.waits:
                each.waits_for = state.said
                self._tell("waits", each.attempt, why=state.said)
            if over and each.waits:
                self.stopped = over
                self._take_back(each, over)
            return False
        each.nodes = state.nodes or each.nodes
        if each.begun is None:
            self._tell("runs", each.attempt, nodes=list(each.nodes))
        each.begins(now)
        stepped = each.look(now)
        if stepped:
            self._tell("step", each.attempt, steps=each.now.steps, step_s=each.now.step_s)
        if each.why:
            return stepped
        best = self.best[1] if self.best is not None else None
        why, said = each.due(now, best)
        if why:  # what it has printed since it was last read counts
            each.look(now, at_once=True)
            why, said = each.due(now, best)
        if not why and over:
            why, said, self.stopped = "budget", over, over
        if why:
            each.told_to_end(why, said)
            self.executor.cancel(each.handle, each.trial.limits.grace_s)
        return stepped

    def _finish(self, each: Running, *, retry: bool = True) -> None:
        """Classify, keep and tell; another attempt where it can help."""
        ended = self.executor.collect(each.handle, each.folder)
        if each.why == "withdrawn" and each.begun is None and ended.duration_s is None:
            self._forget(each)
            return
        held_s = time.monotonic() - each.begun if each.begun is not None else 0.0
        found = verdict(each, ended, self.plan.tokens, held_s)
        outcome = found.outcome
        self._spent_s += outcome.device_s
        self.running.remove(each)
        each.attempt = self.store.finish(each.attempt, outcome, sign=found.sign)
        self._tell("ended", each.attempt, status=outcome.status, step_s=outcome.step_s, rank=outcome.rank,
                   evidence=outcome.evidence, device_s=outcome.device_s)
        for node in self.started.nodes.note(ended.nodes or each.nodes, outcome):
            self._tell("node", each.attempt, node=node, evidence=outcome.evidence)
        if retry and not self.stopped and outcome.status in RETRIES and each.attempt.attempt < MOST_ATTEMPTS:
            self._tell("retry", each.attempt, status=outcome.status)
            self.started.submit([Due(each.candidate, each.trial, self.store.again(each.attempt))])
        else:
            self._learn(each.candidate, outcome)
        if (hopeless := self._first.note(outcome, each.folder.name)) and not self.stopped:
            self.stopped = hopeless
            for other in tuple(self.running):
                if other.waits:
                    self._take_back(other, self.stopped)

    def _forget(self, each: Running) -> None:
        """A trial that was taken back before it began: as if it had not been asked for."""
        self.running.remove(each)
        self.store.forget(each.attempt)
        self._tell("withdrawn", each.attempt, why=each.said)
        self.chooser.tell(each.candidate, Outcome(status="cancelled", evidence=each.said))

    def _learn(self, candidate: Candidate, outcome: Outcome) -> None:
        if outcome.measured and (self.best is None or (outcome.step_s or 0.0) < (self.best[1].step_s or 0.0)):
            self.best = candidate.label, outcome
            self._tell("best", label=candidate.label, step_s=outcome.step_s)
        self.chooser.tell(candidate, outcome)

    def _over(self, *, started: bool) -> str:
        wall_s = time.monotonic() - self._began
        budget = self.plan.budget
        if started:
            return budget.over(trials=self._trials, wall_s=wall_s, device_s=self.device_s)
        return budget.time_over(wall_s=wall_s, device_s=self.device_s)

    def _end_all(self, said: str) -> None:
        """Leave nothing running; what cannot be noted any more is found by whoever goes on."""
        self.stopped = said
        for each in self.running:
            if not each.why:
                each.why, each.said = "interrupt", said
            with suppress(MeshwrightError, OSError):
                self.executor.cancel(each.handle, each.trial.limits.grace_s)
        until = time.monotonic() + END_S + max((each.trial.limits.grace_s for each in self.running), default=0.0)
        while self.running and time.monotonic() < until:
            with suppress(MeshwrightError, OSError):
                states = self.executor.poll([each.handle for each in self.running])
                for each in tuple(self.running):
                    if states[each.handle].phase == "ended":
                        try:
                            self._finish(each, retry=False)
                        except (MeshwrightError, OSError):
                            self.running[:] = [other for other in self.running if other is not each]
            time.sleep(EVERY_S)

    def _tell(self, event: str, attempt: Attempt | None = None, **values: Any) -> None:
        if self._told is None:
            return
        known = {} if attempt is None else {"id": attempt.id, "label": attempt.label, "attempt": attempt.attempt}
        self._told({"event": event, "at": time.time(), **known, **values})
