"""Trials that are kept: an SQLite file that a killed program, a full disk or a power cut leaves whole; several sweeps share it.

One row an attempt. A row is claimed in one transaction, so that no two sweeps run the same trial; whoever holds it is known by
process and start, so that the rows of one that is gone are adopted by the next. An outcome is on the disk before ``finish`` returns
(write-ahead log, ``synchronous=FULL``).
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from meshwright.errors import Message, NoAnswerError
from meshwright.measure.executors.processes import boot, started_at
from meshwright.measure.outcome import Outcome
from meshwright.measure.storefile import opened, said
from meshwright.measure.trial import identifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from meshwright.domain.observed.ending import Status

COLUMNS = (
    "id", "subject", "label", "attempt", "state", "mark", "executor", "handle", "folder", "owner", "started", "ended", "status",
    "step_s", "low_s", "high_s", "tokens_per_s_per_device", "memory_peak_bytes", "device_s", "rank", "evidence", "sign", "notes",
)
_MEASURED = ("step_s", "tokens_per_s_per_device", "memory_peak_bytes", "device_s", "rank", "evidence")
_ALL = f"SELECT {', '.join(COLUMNS)} FROM attempts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a trial, as the store has it."""

    id: str
    subject: str
    label: str
    attempt: int
    state: str
    """``running`` or ``done``."""
    mark: str
    executor: str
    handle: str | None
    folder: str
    owner: str
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    sign: str = ""
    """What said how it ended, as ``readers/signs.yaml`` has it."""
    notes: str = "{}"

    @property
    def alive(self) -> bool:
        """Whether the process that claimed it still runs; of another host nobody knows, and it is believed to."""
        return _alive(self.owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What comes of wanting to run a trial: it is this process's to run or to adopt, or it is not."""

    attempt: Attempt
    kind: str
    """``new``, ``adopted`` (another has started it and is gone), ``done``, or ``taken`` (another runs it)."""


class Store:
    """The attempts of a file. Use it as a context: it is closed behind it."""

    def __init__(self, path: str | Path) -> None:
        """Open or make a store.

        Errors:  InputError where the file is none of this program's stores, is of a later version, or is corrupt: a copy is kept.
        """
        self.path = Path(path)
        self.owner = json.dumps({"host": socket.gethostname(), "boot": boot(), "pid": os.getpid(),
                                 "start": started_at(os.getpid()) or 0})
        self._db = opened(self.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.close()

    @property
    def folder(self) -> Path:
        """Where trials have their folders: beside the store."""
        return self.path.with_suffix(".trials") if self.path.suffix != ".trials" else Path(f"{self.path}.d")

    def claim(self, subject: str, label: str, *, executor: str, folder: str, retry: frozenset[str], most: int) -> Claim:
        """Take a trial: a new attempt where there is none, or where the last of fewer than ``most`` ended in a status of ``retry``.

        Raises:  NoAnswerError where another executor has started it and may still run it.
        """
        id = identifier(subject, label)
        with self._writing():
            last = self._last(id)
            if last is not None and last.state == "running":
                if last.owner != self.owner and last.alive:
                    return Claim(attempt=last, kind="taken")
                if last.executor != executor:
                    raise NoAnswerError(Message(
                        "store.executor",
                        "trial {label!r} was started by {other} and may still run there: go on with --executor {other}",
                        {"label": label, "other": last.executor}, str(self.path)))
                self._db.execute("UPDATE attempts SET owner=? WHERE id=? AND attempt=?", (self.owner, id, last.attempt))
                return Claim(attempt=replace(last, owner=self.owner), kind="adopted")
            tries = last.attempt if last is not None else 0
            if last is not None and last.outcome is not None and (last.outcome.status not in retry or tries >= most):
                return Claim(attempt=last, kind="done")
            return Claim(attempt=self._new(id, subject, label, tries + 1, executor, folder), kind="new")

    def again(self, before: Attempt) -> Attempt:
        """One attempt more at a trial that this process has just finished."""
        with self._writing():
            folder = before.folder.rpartition("-")[0]
            return self._new(before.id, before.subject, before.label, before.attempt + 1, before.executor, folder)

    def started(self, attempt: Attempt, handle: str) -> Attempt:
        """Note what an executor knows a trial by."""
        with self._writing():
            self._db.execute("UPDATE attempts SET handle=? WHERE id=? AND attempt=?", (handle, attempt.id, attempt.attempt))
        return replace(attempt, handle=handle)

    def finish(self, attempt: Attempt, outcome: Outcome, *, sign: str = "", notes: str = "{}") -> Attempt:
        """Keep an outcome: on the disk before this returns."""
        low, high = outcome.interval_s or (None, None)
        values = (
            outcome.status, outcome.step_s, low, high, outcome.tokens_per_s_per_device, outcome.memory_peak_bytes, outcome.device_s,
            outcome.rank, outcome.evidence, sign, notes, time.time(), attempt.id, attempt.attempt,
        )
        with self._writing():
            self._db.execute(
                "UPDATE attempts SET state='done', status=?, step_s=?, low_s=?, high_s=?, tokens_per_s_per_device=?, "
                "memory_peak_bytes=?, device_s=?, rank=?, evidence=?, sign=?, notes=?, ended=? WHERE id=? AND attempt=?", values)
        return replace(attempt, state="done", outcome=outcome, sign=sign, notes=notes)

    def forget(self, attempt: Attempt) -> None:
        """Take back a claim of what never started."""
        with self._writing():
            self._db.execute("DELETE FROM attempts WHERE id=? AND attempt=? AND state='running'", (attempt.id, attempt.attempt))

    def attempts(self, subject: str | None = None) -> list[Attempt]:
        """All attempts, or those of one case, by the time they were started."""
        where, values = ("WHERE subject=?", (subject,)) if subject is not None else ("", ())
        with said(self.path):
            rows = self._db.execute(f"{_ALL} {where} ORDER BY started, id, attempt", values)
            return [_attempt(row) for row in rows]

    def _new(self, id: str, subject: str, label: str, number: int, executor: str, folder: str) -> Attempt:
        mark = f"{id}-{number}-{os.urandom(6).hex()}"
        made = Attempt(id=id, subject=subject, label=label, attempt=number, state="running", mark=mark, executor=executor,
                       handle=None, folder=f"{folder}-{number}", owner=self.owner, started=time.time())
        self._db.execute(
            "INSERT INTO attempts (id, subject, label, attempt, state, mark, executor, folder, owner, started) "
            "VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?)",
            (id, subject, label, number, mark, executor, made.folder, self.owner, made.started))
        return made

    def _last(self, id: str) -> Attempt | None:
        row = self._db.execute(f"{_ALL} WHERE id=? ORDER BY attempt DESC LIMIT 1", (id,)).fetchone()
        return None if row is None else _attempt(row)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction of the one writer: all of it or nothing."""
        with said(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")


def _attempt(row: tuple[Any, ...]) -> Attempt:
    known = dict(zip(COLUMNS, row, strict=True))
    status, low, high = (known.pop(name) for name in ("status", "low_s", "high_s"))
    measured = {name: known.pop(name) for name in _MEASURED}
    outcome = None if status is None else Outcome(
        status=cast("Status", status), interval_s=None if low is None else (low, high), **measured)
    return Attempt(outcome=outcome, **known)


def _alive(owner: str) -> bool:
    try:
        known = json.loads(owner)
        if known["host"] != socket.gethostname():
            return True
        return bool(known["boot"] == boot() and started_at(int(known["pid"])) == known["start"])
    except (ValueError, KeyError, TypeError):
        return False
