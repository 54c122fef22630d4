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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from meshwright.errors import Message, NoAnswerError
from meshwright.measure.executors.processes import boot, started_at
from meshwright.measure.outcome import Outcome
from meshwright.measure.storefile import opened, said
from meshwright.measure.trial import identifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from meshwright.domain.observed.ending import Status

class Attempt(NamedTuple):
    """One attempt at a trial, as the store has it: its columns, and what they come to."""

    id: str
    subject: str
    label: str
    attempt: int
    state: str
    """``running`` or ``done``."""
    mark: str
    """Known to nobody else: by it an executor finds what it has started."""
    executor: str
    handle: str | None
    folder: str
    owner: str
    started: float
    ended: float | None = None
    status: Status | None = None
    step_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    tokens_per_s_per_device: float | None = None
    memory_peak_bytes: float | None = None
    device_s: float = 0.0
    rank: int | None = None
    evidence: str = ""
    sign: str = ""
    """What said how it ended, as ``readers/signs.yaml`` has it."""

    @property
    def outcome(self) -> Outcome | None:
        """What came of it; None while it runs."""
        if self.status is None:
            return None
        interval_s = None if self.low_s is None or self.high_s is None else (self.low_s, self.high_s)
        return Outcome(
            status=self.status, step_s=self.step_s, interval_s=interval_s, tokens_per_s_per_device=self.tokens_per_s_per_device,
            memory_peak_bytes=self.memory_peak_bytes, device_s=self.device_s, rank=self.rank, evidence=self.evidence,
        )

    @property
    def alive(self) -> bool:
        """Whether the process that claimed it still runs; of another host nobody knows, and it is believed to."""
        return _alive(self.owner)


_ALL = f"SELECT {', '.join(Attempt._fields)} FROM attempts"
_KEPT = ("state", *Attempt._fields[Attempt._fields.index("ended"):])
"""Columns of an ending."""


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
        return folders_of(self.path)

    def claim(self, subject: str, label: str, *, executor: str, folder: str, retry: frozenset[str], most: int) -> Claim:
        """Take a trial: a new attempt where there is none, or where the last of fewer than ``most`` ended in a status of ``retry``;
        those that were cancelled do not count.

        ``folder``: what the folder of a new attempt begins with; it is one that no other attempt of any store has had.

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
                return Claim(attempt=last._replace(owner=self.owner), kind="adopted")
            tries = last.attempt if last is not None else 0
            if last is not None and last.outcome is not None and (last.outcome.status not in retry or self._failed(id) >= most):
                return Claim(attempt=last, kind="done")
            own = f"{folder}-{os.urandom(3).hex()}"  # nobody's before: another case has the same labels, and folders outlive stores
            return Claim(attempt=self._new(id, subject, label, tries + 1, executor, own), kind="new")

    def again(self, before: Attempt) -> Attempt:
        """One attempt more at a trial that this process has just finished."""
        with self._writing():
            folder = before.folder.rpartition("-")[0]
            return self._new(before.id, before.subject, before.label, before.attempt + 1, before.executor, folder)

    def started(self, attempt: Attempt, handle: str) -> Attempt:
        """Note what an executor knows a trial by."""
        with self._writing():
            self._db.execute("UPDATE attempts SET handle=? WHERE id=? AND attempt=?", (handle, attempt.id, attempt.attempt))
        return attempt._replace(handle=handle)

    def finish(self, attempt: Attempt, outcome: Outcome, *, sign: str = "") -> Attempt:
        """Keep an outcome: on the disk before this returns."""
        low, high = outcome.interval_s or (None, None)
        done = attempt._replace(
            state="done", ended=time.time(), status=outcome.status, step_s=outcome.step_s, low_s=low, high_s=high,
            tokens_per_s_per_device=outcome.tokens_per_s_per_device, memory_peak_bytes=outcome.memory_peak_bytes,
            device_s=outcome.device_s, rank=outcome.rank, evidence=outcome.evidence, sign=sign,
        )
        values = [getattr(done, name) for name in _KEPT]
        with self._writing():
            self._db.execute(f"UPDATE attempts SET {', '.join(f'{name}=?' for name in _KEPT)} WHERE id=? AND attempt=?",
                             (*values, done.id, done.attempt))
        return done

    def forget(self, attempt: Attempt) -> None:
        """Take back a claim of what never started."""
        with self._writing():
            self._db.execute("DELETE FROM attempts WHERE id=? AND attempt=? AND state='running'", (attempt.id, attempt.attempt))

    def attempts(self, subject: str | None = None) -> list[Attempt]:
        """All attempts, or those of one case, by the time they were started."""
        where, values = ("WHERE subject=?", (subject,)) if subject is not None else ("", ())
        with said(self.path):
            return list(map(Attempt._make, self._db.execute(f"{_ALL} {where} ORDER BY started, id, attempt", values)))

    def last(self, subject: str, label: str) -> Attempt | None:
        """The last attempt at a trial; None where there is none."""
        with said(self.path):
            return self._last(identifier(subject, label))

    def _new(self, id: str, subject: str, label: str, number: int, executor: str, folder: str) -> Attempt:
        mark = f"{id}-{number}-{os.urandom(6).hex()}"
        made = Attempt(id=id, subject=subject, label=label, attempt=number, state="running", mark=mark, executor=executor,
                       handle=None, folder=f"{folder}-{number}", owner=self.owner, started=time.time())
        self._db.execute(
            "INSERT INTO attempts (id, subject, label, attempt, state, mark, executor, folder, owner, started) "
            "VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?)",
            (id, subject, label, number, mark, executor, made.folder, self.owner, made.started))
        return made

    def _failed(self, id: str) -> int:
        """Attempts that ended by themselves: of those that somebody has cancelled nobody knows what they would have come to."""
        return int(self._db.execute("SELECT count(*) FROM attempts WHERE id=? AND status<>'cancelled'", (id,)).fetchone()[0])

    def _last(self, id: str) -> Attempt | None:
        row = self._db.execute(f"{_ALL} WHERE id=? ORDER BY attempt DESC LIMIT 1", (id,)).fetchone()
        return None if row is None else Attempt._make(row)

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


def folders_of(path: Path) -> Path:
    """Where the trials of a store have their folders."""
    return path.with_suffix(".trials") if path.suffix != ".trials" else Path(f"{path}.d")


def _alive(owner: str) -> bool:
    try:
        known = json.loads(owner)
        if known["host"] != socket.gethostname():
            return True
        return bool(known["boot"] == boot() and started_at(int(known["pid"])) == known["start"])
    except (ValueError, KeyError, TypeError):
        return False
