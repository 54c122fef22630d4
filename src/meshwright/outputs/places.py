"""Where an output lands: links followed, the nearest folder that is there, and what stands at its place now."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

from meshwright.errors import fault
from meshwright.value import Value


class Place(Value, frozen=True):
    """Where one output lands."""

    path: str
    """As it was named."""
    real: str
    base: str
    """The nearest folder that is there: locked, and where what will stand at the place is prepared."""
    missing: tuple[str, ...]
    """Folders that are to be made, from the outermost one."""
    before: os.stat_result | None
    """What stands there; None where nothing does."""

    @property
    def is_file(self) -> bool:
        """Whether an ordinary file stands there."""
        return self.before is not None and stat.S_ISREG(self.before.st_mode)

    def unchanged(self) -> bool:
        """Whether still the same stands there, or still nothing."""
        now = _stat(self.real)
        if now is None or self.before is None:
            return now is self.before
        return _mark(now) == _mark(self.before)


def place_of(path: str, folder: str = "") -> Place:
    """The place of a file, in a folder that may be missing or in one that must be there.

    Errors:  InputError where something else than a folder is on the way, or the path is none.
    """
    said = folder or path
    try:
        within = _stat(folder) if folder else None
        if within is not None and not stat.S_ISDIR(within.st_mode):
            raise fault("file.directory", "is a file, a directory is wanted", path=folder)
        said = path
        before, real = _stat(path), os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise unwritable(said, error) from None
    base = os.path.dirname(real)
    missing: list[str] = []
    while not os.path.isdir(base):
        missing.insert(0, base)
        base = os.path.dirname(base)
    if missing and not folder:
        raise fault("file.parent", "its directory does not exist", path=path)
    return Place(path, real, base, tuple(missing), before)


def place_within(folder: str) -> Place:
    """The place of any file of a folder, under the folder's name."""
    return replace(place_of(os.path.join(folder, ".meshwright"), folder), path=folder)


def unwritable(path: str, error: Exception) -> Exception:
    """What the system said, as a fault of the path that the user named."""
    reason = getattr(error, "strerror", None) or str(error)
    return fault("file.write", "cannot be written: {reason}", path=path, reason=reason)


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two names are of one file."""
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _mark(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
