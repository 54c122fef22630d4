"""A machine that fails: the n-th call that changes the disk is where the power goes, the disk is full, or the user interrupts."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path

CALLS = ("open", "write", "fsync", "ftruncate", "posix_fallocate", "rename", "link", "unlink", "mkdir", "rmdir", "chmod", "chown")
NEEDS_ROOM = {"open", "write", "posix_fallocate", "link", "mkdir"}
NEVER = 10**9


class Killed(BaseException):
    """The process is no more: nothing that it would still do reaches the disk."""


class Machine:
    """Counts calls; ``at`` is the one that fails. ``log`` has (name, path or paths) of those that succeeded."""

    def __init__(self, at: int = NEVER, how: str = "kill") -> None:
        self.at, self.how, self.count, self.log = at, how, 0, []
        self._paths: dict[int, str] = {}
        self._in_place: set[int] = set()
        """Handles of files that were there: room for what is written to them has been promised."""

    @property
    def failed(self) -> bool:
        return self.count >= self.at

    def call(self, name, real, arguments, keywords):
        if name == "open" and not arguments[1] & os.O_CREAT:
            handle = real(*arguments, **keywords)
            self._paths[handle] = str(arguments[0])
            self._in_place.add(handle)
            return handle
        self.count += 1
        if self.count >= self.at:
            self._fail(name, real, arguments)
        result = None if name == "fsync" else real(*arguments, **keywords)  # a test waits for no disk
        if name == "open":
            self._paths[result] = str(arguments[0])
            self._in_place.discard(result)
        said = (self._paths.get(arguments[0]), *arguments[1:]) if isinstance(arguments[0], int) else arguments
        self.log.append((name, *said))
        return result

    def _fail(self, name, real, arguments):
        first = self.count == self.at
        if self.how == "kill":
            if first and name == "write":  # torn
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise Killed
        if self.how == "full" and name in NEEDS_ROOM and not (name == "write" and arguments[0] in self._in_place):
            if first and name == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.how == "broken" and first:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.how == "interrupt" and first:
            raise KeyboardInterrupt


@contextmanager
def failing(at: int = NEVER, how: str = "kill"):
    """Let calls go through a machine; a kill ends the block."""
    machine, real = Machine(at, how), {name: getattr(os, name) for name in CALLS}

    def through(name):
        return lambda *arguments, **keywords: machine.call(name, real[name], arguments, keywords)

    for name in CALLS:
        setattr(os, name, through(name))
    try:
        yield machine
    except Killed:
        pass
    finally:
        for name in CALLS:
            setattr(os, name, real[name])


def picture(root: Path) -> dict[str, object]:
    """What a user sees below a folder: kind, content, mode, owner, and which names are one file."""
    found: dict[str, object] = {}
    first: dict[int, str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if ".meshwright-" in name:
            continue
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = "folder"
        else:
            status = path.stat()
            same_as = first.setdefault(status.st_ino, name)
            found[name] = (path.read_bytes(), oct(status.st_mode & 0o7777), status.st_uid, same_as)
    return found


def leftovers(root: Path) -> list[str]:
    return [str(path) for path in root.rglob(".meshwright*")]
