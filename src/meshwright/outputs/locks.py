"""One writer in a folder at a time, on this host and, where the file system has locks for it, on all of them.

The folder itself is locked (``flock``), so that nothing is left behind by whoever dies. NFS locks no folders: there a file in it
is locked. On a file system without any locks nobody is kept apart.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOCK = ".meshwright-lock"
WAIT_S, EVERY_S = 5.0, 0.02
_NO_LOCKS = {errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EISDIR}


@contextmanager
def locked(folders: Iterable[str], wait_s: float | None = None) -> Iterator[None]:
    """Hold folders; always in one order, so that two who want several do not wait for each other.

    Errors:  InputError where another process keeps one of them for longer than that, or than ``WAIT_S``.
    """
    deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
    with ExitStack() as held:
        for folder in sorted(set(folders)):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, handle)
            if not _taken(handle, folder, deadline):
                handle = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
                held.callback(os.close, handle)
                _taken(handle, folder, deadline)
        yield


def _taken(handle: int, folder: str, deadline: float) -> bool:
    """Wait for a lock; False where there is none to be had on this file system."""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES, errno.EINTR}:
                raise
        else:
            return True
        if time.monotonic() > deadline:
            raise fault("file.busy", "another process is writing there: try again when it has ended", path=folder)
        time.sleep(EVERY_S)
