"""The file of a store: made, opened, upgraded or refused, and what SQLite complains of in words."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from meshwright.domain.observed.ending import Status
from meshwright.errors import InputError, fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

APPLICATION, VERSION = 0x4D534857, 1
"""``MSHW`` in the header of the file, and which tables it has."""
UPGRADES: Mapping[int, Sequence[str]] = {}
"""Version -> statements that make the next one of it."""
SCHEMA = (
    """CREATE TABLE attempts (
  id TEXT NOT NULL, subject TEXT NOT NULL, label TEXT NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, mark TEXT NOT NULL,
  executor TEXT NOT NULL, handle TEXT, folder TEXT NOT NULL, owner TEXT NOT NULL, started REAL NOT NULL, ended REAL,
  status TEXT, step_s REAL, low_s REAL, high_s REAL, tokens_per_s_per_device REAL, memory_peak_bytes REAL,
  device_s REAL NOT NULL DEFAULT 0, rank INTEGER, evidence TEXT NOT NULL DEFAULT '', sign TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (id, attempt)
)""",
    "CREATE INDEX by_subject ON attempts (subject, started)",
)
COLUMNS = (
    "id", "subject", "label", "attempt", "state", "mark", "executor", "handle", "folder", "owner", "started", "ended", "status",
    "step_s", "low_s", "high_s", "tokens_per_s_per_device", "memory_peak_bytes", "device_s", "rank", "evidence", "sign",
)
_WORDS = ("subject", "label", "mark", "executor", "folder", "owner", "evidence", "sign")
_NUMBERS = ("started", "ended", "step_s", "low_s", "high_s", "tokens_per_s_per_device", "memory_peak_bytes", "device_s", "rank")
_UNSOUND = " OR ".join((
    *(f"typeof({name}) <> 'text'" for name in _WORDS),
    *(f"{name} NOT BETWEEN 0 AND 1e300" for name in (*_NUMBERS, "attempt")),
    "(state = 'done') <> (status IS NOT NULL)", "(low_s IS NULL) <> (high_s IS NULL)",
    f"status NOT IN ({', '.join(repr(each) for each in get_args(Status))})", "status = 'ok' AND step_s IS NULL",
    "folder LIKE '%/%' OR folder IN ('', '.', '..')",
))
"""What no row of this program's says; texts are above all numbers for SQLite."""
WAIT_S, BREATH_S = 20.0, 0.05
"""For another sweep that writes, and between two attempts to open a store. Our judgement."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def opened(path: Path) -> sqlite3.Connection:
    """A store's connection; a new store where there is no file.

    Errors:  InputError where the file is none of this program's stores, is of a later version, or is corrupt: a copy is kept.
    """
    if path.is_dir():
        raise fault("store.directory", "is a folder; a file is wanted", path=str(path))
    with said(path):
        db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
        until = time.monotonic() + WAIT_S
        while True:
            try:
                _check(db, path)
                _make(db)
            except BaseException as error:
                if not _busy(error) or time.monotonic() >= until:
                    db.close()
                    raise
                if db.in_transaction:
                    db.execute("ROLLBACK")
                time.sleep(BREATH_S)
            else:
                return db


def _busy(error: BaseException) -> bool:
    """Whether somebody else has the file: SQLite waits for that, but not where another makes or leaves a store just now."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


@contextmanager
def said(path: Path) -> Iterator[None]:
    """What SQLite complains of, in words; what was kept before is not touched by it."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if _busy(error):
            raise fault("store.busy", "another sweep keeps it locked: try again", path=str(path)) from None
        if code in _FULL:
            raise fault("store.full", "cannot be written ({reason}): what was kept is safe; make room and go on with --resume",
                        path=str(path), reason=str(error)) from None
        if code in _DAMAGED:
            raise _damaged(path, str(error)) from None
        raise fault("store.file", "cannot be used: {reason}", path=str(path), reason=str(error)) from None


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no store, or one of a later release."""
    db.execute("BEGIN")  # one moment for all three: another sweep may be making them
    try:
        application, version = _number(db, "PRAGMA application_id"), _version(db)
        tables = _number(db, "SELECT count(*) FROM sqlite_master")
    finally:
        db.execute("COMMIT")
    if (application or tables) and application != APPLICATION:
        raise fault("store.other", "is a database of another program: name another --store", path=str(path))
    if version > VERSION:
        raise _kept(path, "store.version", "is of version {version}, and this release knows {known} and older ones",
                    version=version, known=VERSION)
    if tables and db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise _damaged(path, "its pages disagree")
    if application and version in (0, VERSION):
        if version == 0 or tuple(name for _, name, *_ in db.execute("PRAGMA table_info(attempts)")) != COLUMNS:
            raise _damaged(path, "its tables are others")
        if (row := db.execute(f"SELECT label FROM attempts WHERE {_UNSOUND} LIMIT 1").fetchone()) is not None:
            raise _damaged(path, f"what it has of trial {str(row[0])[:60]!r} cannot be")


def _make(db: sqlite3.Connection) -> None:
    """The tables of this version."""
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    if _version(db) == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    version = _version(db)  # another sweep may have made them by now
    statements = [each for at in range(version, VERSION) for each in UPGRADES[at]] if version else SCHEMA
    for each in statements if version < VERSION else ():
        db.execute(each)
    db.execute(f"PRAGMA application_id={APPLICATION}")
    db.execute(f"PRAGMA user_version={VERSION}")
    db.execute("COMMIT")


def _version(db: sqlite3.Connection) -> int:
    return _number(db, "PRAGMA user_version")


def _number(db: sqlite3.Connection, question: str) -> int:
    return int(db.execute(question).fetchone()[0])


def _damaged(path: Path, reason: str) -> InputError:
    return _kept(path, "store.corrupt", "is no store of trials, or a damaged one ({reason})", reason=reason)


def _kept(path: Path, id: str, words: str, **values: object) -> InputError:
    """A refusal; a copy of what cannot be used stands beside it, whatever becomes of the file."""
    copy = Path(f"{path}.kept")
    with suppress(OSError):
        if not copy.exists():
            shutil.copyfile(path, copy)
    return fault(id, f"{words}: name another --store; a copy of it is {{copy}}", path=str(path), copy=str(copy), **values)
