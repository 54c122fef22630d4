"""What a change of several files needs to be undone: written to the disk before the first of them is touched.

Beside what it changes, each folder has a stage, ``.meshwright-UID``, that only this user may enter: new contents (``0.new``),
former files (``0.old``), and in one of the folders, the home, the journal. All paths in it are relative to the home, so that a
folder may be moved. The other folders point to the home (``elsewhere``).
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from typing import Any, Literal

from meshwright.errors import fault
from meshwright.outputs import disk
from meshwright.outputs.stage import ELSEWHERE, JOURNAL, is_ours, stage_of
from meshwright.value import Value

FORMAT = "meshwright journal 1"

How = Literal["create", "replace", "overwrite"]
"""A file that was not there, another file under the name of the old one, or other bytes in the same file."""


class Entry(Value, frozen=True, kw_only=True):
    """One file that is changed. Paths are absolute here."""

    number: int
    base: str
    """The folder whose stage holds it."""
    place: str
    how: How
    digest: str
    """Of the new content."""

    @property
    def new(self) -> str:
        """Where the new content is until it is in place; of an overwritten file until all is done."""
        return f"{stage_of(self.base)}/{self.number}.new"

    @property
    def old(self) -> str:
        """Where the former file is kept."""
        return f"{stage_of(self.base)}/{self.number}.old"


class Journal(Value, frozen=True, kw_only=True):
    """One change of several files."""

    home: str
    bases: tuple[str, ...]
    """All folders that have a stage of this change, the home too."""
    made: tuple[str, ...]
    """Folders that are made, from the outermost one."""
    entries: tuple[Entry, ...]


def make_stage(folder: str, home: str) -> None:
    """A stage in a folder that this process has locked, and where nothing is left."""
    stage = stage_of(folder)
    os.mkdir(stage, 0o700)
    if folder != home:
        disk.create(f"{stage}/{ELSEWHERE}", os.path.relpath(home, folder).encode())


def sweep(folder: str) -> None:
    """Remove what a writer of this user's has left in a locked folder, unless it is needed to put files back."""
    stage = stage_of(folder)
    if is_ours(stage) and not os.path.lexists(f"{stage}/{JOURNAL}"):
        shutil.rmtree(stage)


def home_of(folder: str) -> str | None:
    """The home of the unfinished change that a folder takes part in; None where there is none."""
    stage = stage_of(folder)
    if not is_ours(stage):
        return None
    home = folder
    with suppress(FileNotFoundError):
        home = os.path.normpath(os.path.join(folder, os.fsdecode(disk.read(f"{stage}/{ELSEWHERE}"))))
    return home if is_ours(stage_of(home)) and os.path.lexists(f"{stage_of(home)}/{JOURNAL}") else None


def write_journal(journal: Journal) -> None:
    """See a journal on the disk: from here on, whatever happens is undone by the next start."""
    home = journal.home

    def name(path: str) -> str:
        return os.path.relpath(path, home)

    document = {
        "format": FORMAT, "bases": [name(base) for base in journal.bases], "made": [name(folder) for folder in journal.made],
        "entries": [{"number": entry.number, "base": name(entry.base), "place": name(entry.place), "how": entry.how,
                     "digest": entry.digest} for entry in journal.entries],
    }
    stage = stage_of(home)
    disk.create(f"{stage}/{JOURNAL}.new", json.dumps(document, indent=1).encode())
    os.rename(f"{stage}/{JOURNAL}.new", f"{stage}/{JOURNAL}")
    disk.sync_folder(stage)


def end_journal(journal: Journal) -> None:
    """What was changed is so for good, or as it was before."""
    os.unlink(f"{stage_of(journal.home)}/{JOURNAL}")
    with suppress(OSError):  # it is gone; should the machine stop now, it may be back, and is obeyed
        disk.sync_folder(stage_of(journal.home))


def read_journal(home: str) -> Journal | None:
    """The journal of a home; None where there is none.

    Errors:  InputError where it is none of this program's, or of another release.
    """
    path = f"{stage_of(home)}/{JOURNAL}"
    if not is_ours(stage_of(home)):
        return None
    try:
        document = json.loads(disk.read(path))
        known = document["format"] == FORMAT
        journal = _journal(home, document) if known else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        journal = None
    if journal is None:
        raise fault("file.journal", "is no journal that this release understands; the former files lie beside it: *.old", path=path)
    return journal


def _journal(home: str, document: Any) -> Journal:
    def place(name: str) -> str:
        return os.path.normpath(os.path.join(home, name))

    entries = tuple(
        Entry(number=int(each["number"]), base=place(each["base"]), place=place(each["place"]), how=each["how"],
              digest=each["digest"])
        for each in document["entries"]
    )
    bases, made = (tuple(map(place, document[name])) for name in ("bases", "made"))
    return Journal(home=home, bases=bases, made=made, entries=entries)
