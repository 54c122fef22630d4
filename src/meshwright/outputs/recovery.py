"""Putting back what a writer has left half done, whatever ended it; ended again, it begins again."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import chain, count
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, fault
from meshwright.outputs import disk
from meshwright.outputs.journal import Entry, Journal, end_journal, home_of, read_journal, sweep
from meshwright.outputs.locks import locked
from meshwright.outputs.stage import JOURNAL, stage_of, upwards

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT = ".before-meshwright"


def recover(folders: Iterable[str]) -> list[Message]:
    """Undo unfinished changes of these folders and of those that they are in; what was undone, as remarks.

    Errors:  InputError where a file cannot be put back, or somebody is writing there for long.
    """
    said: list[Message] = []
    for folder in dict.fromkeys(chain.from_iterable(map(upwards, folders))):
        home = home_of(folder)
        journal = None if home is None else read_journal(home)
        if journal is None:
            continue
        try:
            with locked({journal.home, *filter(os.path.isdir, journal.bases)}):
                if os.path.lexists(f"{stage_of(journal.home)}/{JOURNAL}"):  # who held the lock may have ended well
                    said += undo(journal.home)
                    for base in journal.bases:
                        sweep(base)
        except OSError as error:
            raise left_undone(journal.home, error) from None
    return said


def left_undone(home: str, error: OSError) -> InputError:
    """What the system said when files were to be put back; they are not lost."""
    return fault("file.undo", "an interrupted write cannot be undone: {reason}; the former files are in {stage}", path=home,
                 reason=error.strerror or error, stage=stage_of(home))


def undo(home: str) -> list[Message]:
    """Put back all files of an unfinished change; the folders are locked by the caller."""
    journal = read_journal(home)
    if journal is None:
        return []
    said = [Message("file.undone", "a write that was interrupted has been undone", {}, home)]
    for entry in reversed(journal.entries):
        said += _overwritten(entry) if entry.how == "overwrite" else _renamed(entry)
    for folder in reversed(journal.made):
        with suppress(OSError):
            os.rmdir(folder)
    _sync(journal)
    end_journal(journal)
    return said


def _renamed(entry: Entry) -> list[Message]:
    """The old file under its name again, or nothing where there was none; a file that somebody has changed since stays."""
    if os.path.lexists(entry.new):  # it has not come to this one
        return []
    if os.path.isdir(entry.place) or ((now := _held(entry.place)) is not None and disk.digest(now) != entry.digest):
        return _beside(entry)
    if entry.how == "replace":
        with suppress(FileNotFoundError):
            os.rename(entry.old, entry.place)
    elif now is not None:
        os.unlink(entry.place)
    return []


def _overwritten(entry: Entry) -> list[Message]:
    """The old bytes in the file again; a file that somebody has changed since stays."""
    if os.path.isdir(entry.place):
        return _beside(entry)
    old, new, now = _held(entry.old), _held(entry.new), _held(entry.place)
    if old is None or new is None or now == old:
        return []
    if now is None:
        os.rename(entry.old, entry.place)
    elif disk.is_torn(now, old, new):
        disk.overwrite(entry.place, old)
    else:
        return _beside(entry)
    return []


def _beside(entry: Entry) -> list[Message]:
    """The former file under a name of its own; nothing to say where it has its name already, or is that of a new file."""
    if not os.path.lexists(entry.old):
        return []
    names = (f"{entry.place}{KEPT}{number or ''}" for number in count())
    name = next(name for name in names if not os.path.lexists(name))
    os.rename(entry.old, name)
    return [Message("file.since", "has been changed since a write of it was interrupted, and stays; what it was before is {name}",
                    {"name": name}, entry.place)]


def _held(path: str) -> bytes | None:
    """The bytes of a file; None where there is none."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def _sync(journal: Journal) -> None:
    for folder in {*journal.bases, *(os.path.dirname(entry.place) for entry in journal.entries)}:
        with suppress(FileNotFoundError, NotADirectoryError):
            disk.sync_folder(folder)

