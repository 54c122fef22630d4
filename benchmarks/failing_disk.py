"""A disk that fails: the n-th call that changes it is where the process dies, the disk is full, or the user interrupts.

For tests in one process (``kill`` stops every later call too) and for processes that really die (``SIGKILL``, ``SIGTERM``).
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = ("open", "write", "fsync", "ftruncate", "posix_fallocate", "rename", "link", "unlink", "mkdir", "rmdir", "chmod", "chown")
NEEDS_ROOM = {"open", "write", "posix_fallocate", "link", "mkdir"}
NEVER = 10**9


class Killed(BaseException):
    """The process is no more: nothing that it would still do reaches the disk."""


class Disk:
    """Counts calls on paths that begin with ``below``; ``at`` is the one that fails. ``log`` has their names and paths."""

    def __init__(self, at: int, how: str, below: str) -> None:
        self.at, self.how, self.below, self.count = at, how, below, 0
        self.log: list[tuple[Any, ...]] = []
        self._paths: dict[int, str] = {}
        self._in_place: set[int] = set()
        """Handles of files that were there: up to their size they have room."""

    @property
    def failed(self) -> bool:
        """Whether it has come to the call that fails."""
        return self.count >= self.at

    def call(self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A call of the operating system, let through or not."""
        made = name == "open" and bool(arguments[1] & os.O_CREAT)
        path = self._path(arguments[0], keywords.get("dir_fd"))
        if name != "open" or made:
            if path.startswith(self.below):
                self.count += 1
                if self.count >= self.at:
                    self._fail(name, real, arguments)
            self.log.append((name, path, *arguments[1:]))
        waits = name == "fsync" and not self.how.startswith("SIG")  # a test in one process waits for no disk
        result = None if waits else real(*arguments, **keywords)
        if name == "open":
            self._paths[result] = path
            (self._in_place.discard if made else self._in_place.add)(result)
        return result

    def _path(self, named: Any, folder: int | None) -> str:
        if isinstance(named, int):
            return self._paths.get(named, "")
        return str((Path(self._paths.get(folder, "")) if folder is not None else Path.cwd()) / os.fsdecode(named))

    def _has_room(self, handle: int, content: bytes) -> bool:
        return handle in self._in_place and os.lseek(handle, 0, os.SEEK_CUR) + len(content) <= os.fstat(handle).st_size

    def _fail(self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        first = self.count == self.at
        ends = self.how == "kill" or self.how.startswith("SIG")
        full = self.how == "full" and name in NEEDS_ROOM and not (name == "write" and self._has_room(*arguments))
        if first and name == "write" and (ends or full):  # torn
            real(arguments[0], arguments[1][: len(arguments[1]) // 2])
        if self.how == "kill":
            raise Killed
        if ends and first:
            os.kill(os.getpid(), getattr(signal, self.how))
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.how == "broken" and first:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.how == "interrupt" and first:
            raise KeyboardInterrupt


@contextmanager
def failing(at: int = NEVER, how: str = "kill", below: str = "") -> Iterator[Disk]:
    """Let calls through, but the ``at``-th on paths that begin with ``below``; a kill ends the block."""
    disk, real = Disk(at, how, below), {name: getattr(os, name) for name in CALLS}

    def through(name: str) -> Callable[..., Any]:
        return lambda *arguments, **keywords: disk.call(name, real[name], arguments, keywords)

    for name in CALLS:
        setattr(os, name, through(name))
    try:
        yield disk
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
    """What a writer has left behind."""
    return [str(path) for path in root.rglob(".meshwright*")]
