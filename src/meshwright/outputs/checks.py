"""What stands in the way of writing; all of it is said before anything is changed, most of it before anything is computed."""

from __future__ import annotations

import fnmatch
import mmap
import os
import stat
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from meshwright.errors import InputError, Message, fault
from meshwright.outputs.disk import BOM, read
from meshwright.outputs.places import Place, place_of, place_within, same_file
from meshwright.outputs.seal import is_intact
from meshwright.outputs.stage import may
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from meshwright.outputs.output import Output

MAX_SEALED_BYTES = 64 * 2**20


def obstacles(
    files: Iterable[str] = (), *, folder: str = "", inputs: Iterable[str] = (), force: bool = False, fresh: bool = False
) -> list[Message]:
    """What is known to be in the way before there is anything to write to these files, or into this folder.

    ``inputs``: files that the command reads. ``fresh``: a file that is there is refused now and not when its new text is known,
    because that takes long; not so one that carries the program's own seal unbroken.
    """
    found: list[Message] = []
    places: list[Place] = []
    for path in files:
        try:
            places.append(place_of(path))
        except InputError as error:
            found += error.messages
    try:
        found += _folder_faults(place_within(folder)) if folder else ()
    except InputError as error:
        found += error.messages
    read_from = _stats(inputs)
    for place in places:
        known = [*_folder_faults(place), *_kind_faults(place), *_read_faults(place, read_from)]
        if not known and fresh and not force and place.before is not None and not _intact(place):
            known.append(Message("file.there", "exists; --force replaces it", {}, place.path))
        found += known
    return _once([*found, *_meeting(places)])


def files_in(folder: str, pattern: str) -> list[str]:
    """The files of a folder by a pattern of their names; none where there is no such folder."""
    with suppress(OSError, ValueError):
        return sorted(os.path.join(folder, name) for name in fnmatch.filter(os.listdir(folder), pattern))
    return []


class Target(Value, frozen=True):
    """An output, its place, and the bytes that are to stand there."""

    output: Output
    place: Place
    content: bytes | memoryview

    @property
    def is_done(self) -> bool:
        """Whether the file already has this content."""
        before = self.place.before
        with suppress(OSError):
            return (self.place.is_file and before is not None and before.st_size == len(self.content)
                    and read(self.place.real) == self.content)
        return False


def target_of(output: Output) -> Target:
    """The place and the bytes of an output, behind the mark that the user's file begins with.

    Errors:  InputError where there is no such place, or the text is none in UTF-8.
    """
    place, mark = place_of(output.path, output.folder), b""
    model = output.path if output.read is not None else output.like
    with suppress(OSError):
        mark = BOM if model and read(model).startswith(BOM) else b""
    if output.spool is not None:
        return Target(output, place, _mapped(output.spool))
    try:
        content = output.text.encode()
    except UnicodeEncodeError as error:
        raise fault("file.text", "its text has a character that UTF-8 cannot say (at {at})", path=output.path,
                    at=error.start) from None
    return Target(output, place, content if content.startswith(mark) else mark + content)


def _mapped(spool: IO[bytes]) -> memoryview:
    """What a file holds, in the system's memory for files."""
    spool.flush()
    return memoryview(mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(spool.fileno()).st_size else b"")


def faults(targets: Sequence[Target], *, inputs: Iterable[str], force: bool) -> list[Message]:
    """What is in the way of these outputs, with what is in the files that stand there."""
    found: list[Message] = []
    read_from = _stats(inputs)
    for target in targets:
        place = target.place
        known = [*_folder_faults(place), *_kind_faults(place)]
        known += [] if target.is_done else _read_faults(place, read_from)
        found += known or _content_faults(target, force=force)
    return _once([*found, *_meeting([target.place for target in targets])])


def _folder_faults(place: Place) -> Iterator[Message]:
    if not may(place.base, os.W_OK | os.X_OK):
        yield Message("file.permission", "its directory cannot be written to", {}, place.path)


def _kind_faults(place: Place) -> Iterator[Message]:
    if place.before is None:
        return
    if stat.S_ISDIR(place.before.st_mode):
        yield Message("file.is-directory", "is a directory, a file is wanted", {}, place.path)
    elif not place.is_file:
        yield Message("file.irregular", "is not a regular file", {}, place.path)
    elif any(same_file(place.before, stream) for stream in _streams()):
        yield Message("file.stream", "is where this command prints to: name another file", {}, place.path)


def _streams() -> Iterator[os.stat_result]:
    """Standard output and standard error, where they are open."""
    for handle in (1, 2):
        with suppress(OSError):
            yield os.fstat(handle)


def _read_faults(place: Place, inputs: Sequence[os.stat_result]) -> Iterator[Message]:
    if place.before is not None and any(same_file(place.before, each) for each in inputs):
        yield Message("file.read", "is the file that is read", {}, place.path)


def _content_faults(target: Target, *, force: bool) -> Iterator[Message]:
    """A file that is there: is it what was read, or what this program may replace?"""
    place, original = target.place, target.output.read
    if original is not None and place.before is None:
        yield Message("file.gone", "cannot be read: it is there no more; nothing is changed", {}, place.path)
    if place.before is None:
        return
    read_only = not place.before.st_mode & 0o222
    try:
        if original is not None:
            if read(place.real).removeprefix(BOM) != original.encode():
                yield Message("file.changed", "has changed since it was read: nothing is changed", {}, place.path)
            elif read_only:
                yield Message("file.read-only", "is read-only", {}, place.path)
        elif not force and not target.is_done:
            if not _intact(place):
                yield Message("file.exists", "exists with other content; --force overwrites it", {}, place.path)
            elif read_only:
                yield Message("file.protected", "is read-only; --force overwrites it", {}, place.path)
    except OSError as error:
        yield Message("file.unreadable", "cannot be read: {reason}", {"reason": error.strerror or error}, place.path)


def _meeting(places: Sequence[Place]) -> Iterator[Message]:
    """Outputs that would land on each other: one file, two names of one file, or a file where another one needs a folder."""
    for number, place in enumerate(places):
        for other in places[:number]:
            one_file = place.before is not None and other.before is not None and same_file(place.before, other.before)
            if place.real == other.real or one_file:
                yield Message("file.twice", "is written twice: as {other} too", {"other": other.path}, place.path)
            elif place.real in other.missing or other.real in place.missing:
                yield Message("file.within", "one of it and {other} is a file, and the folder of the other", {"other": other.path},
                              place.path)


def _intact(place: Place) -> bool:
    """Whether the program's own seal in a file is unbroken."""
    if place.before is None or place.before.st_size > MAX_SEALED_BYTES:
        return False
    with suppress(OSError):
        return is_intact(read(place.real))
    return False


def _stats(paths: Iterable[str]) -> list[os.stat_result]:
    """The files that are read, of those that can be named."""
    found = []
    for path in paths:
        with suppress(OSError, ValueError):
            found.append(os.stat(path))
    return found


def _once(messages: Iterable[Message]) -> list[Message]:
    """Each message once, in the order in which they were found."""
    return list({str(message): message for message in messages}.values())

