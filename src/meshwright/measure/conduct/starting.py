"""How a candidate comes to run: claimed in the store, found where another sweep has started it, or handed to the executor."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from meshwright.errors import MeshwrightError, fault
from meshwright.measure.conduct.nodes import Nodes
from meshwright.measure.conduct.running import Running
from meshwright.measure.conduct.verdict import AGAIN
from meshwright.measure.executors.base import Handed, TakesSeveral
from meshwright.measure.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from meshwright.measure.chooser import Candidate
    from meshwright.measure.executors.base import Executor
    from meshwright.measure.store import Attempt, Claim, Store
    from meshwright.measure.trial import Trial

MOST_ATTEMPTS = 3
"""Of a trial that ends by what another attempt can help (``verdict.RETRIES``): on up to three sets of nodes. Our judgement."""
GONE = Outcome(status="cancelled", evidence="ended with the sweep that had started it")
Submitted = TypeVar("Submitted")


class Tell(Protocol):
    """Says what has happened."""

    def __call__(self, event: str, attempt: Attempt | None = None, **values: Any) -> None:
        """An event, of a trial or of none, and what else is known of it."""


class Due(NamedTuple):
    """A trial that is this sweep's to start."""

    candidate: Candidate
    trial: Trial
    attempt: Attempt


class Started:
    """What runs on an executor, of one subject of a store; ``nodes`` are those that it is kept away from."""

    def __init__(self, subject: str, executor: Executor, store: Store, tell: Tell) -> None:
        self.running: list[Running] = []
        self.nodes = Nodes()
        self._subject, self._executor, self._store, self._tell = subject, executor, store, tell

    def claim(self, candidate: Candidate, trial: Trial) -> Claim:
        """Whose trial it is, by the store."""
        return self._store.claim(self._subject, candidate.name, executor=self._executor.name, folder=trial.name, retry=AGAIN,
                                 most=MOST_ATTEMPTS)

    def adopt(self, candidate: Candidate, trial: Trial, attempt: Attempt) -> bool:
        """Watch what a sweep that is gone has started -> whether there is anything to watch; else it has ended with that sweep."""
        folder = self._folder(attempt)
        handle = self._executor.adopt(folder, attempt.mark, attempt.handle)
        if handle is None:
            self._store.finish(attempt, GONE)
            return False
        attempt = self._store.started(attempt, handle)
        running = Running(candidate=candidate, trial=trial, attempt=attempt, handle=handle, folder=folder)
        self.running.append(running)
        if running.recall():  # it may have been killed between the two
            self._executor.cancel(handle, trial.limits.grace_s)
        self._tell("adopted", attempt, predicted_s=candidate.predicted_s)
        return True

    def submit(self, due: Sequence[Due]) -> None:
        """Start attempts, together where the executor takes them so; claims of what could not be started are taken back."""
        try:
            if len(due) > 1 and isinstance(self._executor, TakesSeveral):
                together, handed = self._executor, [self._filled(each) for each in due]
                self._note(due, self._away_if_can(lambda avoid: together.submit_all(handed, avoid=avoid)))
            else:
                for each in due:
                    self._note([each], [self._away_if_can(partial(self._submit_one, self._filled(each)))])
        except BaseException as error:
            begun = {each.attempt.mark for each in self.running}
            for each in due:
                if each.attempt.mark not in begun:
                    with suppress(MeshwrightError):
                        self._store.forget(each.attempt)
            if isinstance(error, OSError):
                raise fault("sweep.folder", "a trial cannot be started there: {reason}",
                            path=error.filename or str(self._store.folder), reason=error.strerror or str(error)) from None
            raise

    def _submit_one(self, handed: Handed, avoid: Sequence[str]) -> str:
        return self._executor.submit(*handed, avoid=avoid)

    def _away_if_can(self, submit: Callable[[Sequence[str]], Submitted]) -> Submitted:
        """Start something away from nodes that were set aside; on any where the others do not suffice."""
        try:
            return submit(tuple(self.nodes.aside))
        except MeshwrightError:
            if not self.nodes.aside:
                raise
            found = submit(())
        for node in self.nodes.take_back():
            self._tell("node", node=node, evidence="is needed again: too few others are left")
        return found

    def _folder(self, attempt: Attempt) -> Path:
        return self._store.folder.absolute() / attempt.folder

    def _filled(self, due: Due) -> Handed:
        folder = self._folder(due.attempt)
        due.trial.fill(folder)
        return Handed(due.trial, folder, due.attempt.mark)

    def _note(self, due: Sequence[Due], handles: Sequence[str]) -> None:
        """Note what an executor has started, all of it before any is noted: what runs is ended if noting fails."""
        began = [Running(candidate=each.candidate, trial=each.trial, attempt=each.attempt, handle=handle,
                         folder=self._folder(each.attempt)) for each, handle in zip(due, handles, strict=True)]
        self.running += began
        for each in began:
            each.attempt = self._store.started(each.attempt, each.handle)
            self._tell("started", each.attempt, folder=str(each.folder), predicted_s=each.candidate.predicted_s)
