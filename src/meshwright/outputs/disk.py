"""What is done to a disk, each step on it before the next one begins."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

BOM = b"\xef\xbb\xbf"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 2**20


def create(path: str, content: bytes | memoryview, *, executable: bool = False) -> None:
    """Write a file that is not there yet; its permissions are those of any new file of this user."""
    handle = os.open(path, _NEW, 0o777 if executable else 0o666)
    try:
        _write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)


def overwrite(path: str, content: bytes | memoryview) -> None:
    """Write into a file that is there. Room for all of it is taken before the first byte changes."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if len(content) > os.fstat(handle).st_size:
            _reserve(handle, len(content))
        _write(handle, content)
        os.ftruncate(handle, len(content))
        os.fsync(handle)
    finally:
        os.close(handle)


def _reserve(handle: int, length: int) -> None:
    """Room on the disk; file systems that cannot promise any are taken at their word."""
    try:
        os.posix_fallocate(handle, 0, length)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}:
            raise


def _write(handle: int, content: bytes | memoryview) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left[:_CHUNK]) :]


def is_torn(content: bytes, old: bytes, new: bytes) -> bool:
    """Whether ``overwrite``, there or back, could have left a file so: each byte is the old one, the new one, or still a zero."""
    longest = max(len(old), len(new))
    if not min(len(old), len(new)) <= len(content) <= longest:
        return False
    return all(byte in pair for byte, *pair in zip(content, old.ljust(longest, b"\0"), new.ljust(longest, b"\0"), strict=False))


def read(path: str) -> bytes:
    """All of a file."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe in its place is not waited for
    try:
        return b"".join(iter(lambda: os.read(handle, _CHUNK), b""))
    finally:
        os.close(handle)


def digest(content: bytes | memoryview) -> str:
    """SHA-256 in hexadecimal digits."""
    import hashlib  # loads OpenSSL, and only who writes asks

    return hashlib.sha256(content).hexdigest()


def sync_folder(path: str) -> None:
    """See the names of a folder on the disk; a file system that knows no such thing does it by itself."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}:
            raise
    finally:
        os.close(handle)


def dress(path: str, model: str) -> bool:
    """Give a file the owner, mode and attributes of another one; False where this user may not give it the owner."""
    wanted, own = os.stat(model), os.stat(path)
    given = (own.st_uid, own.st_gid) == (wanted.st_uid, wanted.st_gid)
    if not given:
        with suppress(OSError):
            os.chown(path, wanted.st_uid, wanted.st_gid)
            given = True
    os.chmod(path, stat.S_IMODE(wanted.st_mode))
    with suppress(OSError, AttributeError):  # lists of who may what stand there; not every system has attributes
        for name in os.listxattr(model):
            with suppress(OSError):
                os.setxattr(path, name, os.getxattr(model, name))
    return given


def keep(path: str, kept: str) -> None:
    """A second name of a file, under which it stays as it is; a synced copy where a file has one name only."""
    try:
        os.link(path, kept)
    except OSError:
        create(kept, read(path))
        dress(kept, path)
