"""What lies in a folder: every entry with its kind, rights, owner, number of names and content."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

HASHED_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a folder."""

    kind: str
    mode: int
    owner: int
    names: int
    content: str
    """Hash of a file (of a large one size and time), target of a link."""
    bom: bool = False

    @property
    def held(self) -> tuple[object, ...]:
        """What a user has in it."""
        return self.kind, self.mode, self.owner, self.content

    @property
    def manner(self) -> tuple[object, ...]:
        """All but the content: what a change in place keeps."""
        return self.kind, self.mode, self.owner, self.names, self.bom


def snapshot(folder: Path) -> dict[str, Entry]:
    """Every entry below the folder that holds the working directory, by its path relative to the working directory."""
    found = {}
    for name, folders, files in os.walk(folder.parent):
        for each in (*folders, *files):
            path = Path(name, each)
            found[os.path.relpath(path, folder)] = _entry(path)
    return found


def _entry(path: Path) -> Entry:
    about = path.lstat()
    kind, mode = stat.S_IFMT(about.st_mode), stat.S_IMODE(about.st_mode)
    content, bom = "", False
    if stat.S_ISLNK(kind):
        content = str(path.readlink())
    elif stat.S_ISREG(kind):
        if about.st_size > HASHED_BYTES:
            content = f"{about.st_size} {about.st_mtime_ns}"
        else:
            try:
                raw = path.read_bytes()
            except OSError:
                raw = b"unreadable"
            content, bom = hashlib.sha1(raw, usedforsecurity=False).hexdigest(), raw.startswith(b"\xef\xbb\xbf")
    word = {stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFLNK: "link"}.get(kind, "special")
    return Entry(word, mode, about.st_uid, 1 if word == "folder" else about.st_nlink, content, bom)
