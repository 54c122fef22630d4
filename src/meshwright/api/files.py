"""Files are written whole or not at all, and nothing that a person edited is overwritten unasked."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

from meshwright.errors import InputError, Message, fault

if TYPE_CHECKING:
    from collections.abc import Sequence


class Written(Protocol):
    """A file to write: a relative path, its text, and whether it can be run."""

    @property
    def path(self) -> str:
        """Relative to the directory."""

    @property
    def text(self) -> str:
        """The content."""

    @property
    def executable(self) -> bool:
        """Whether it is a script."""


def write_files(directory: str, files: Sequence[Written], *, force: bool = False) -> list[str]:
    """Write all files below a directory and return their paths.

    All are first written beside it, then moved: an error leaves nothing behind. A file that exists with other content
    is refused unless forced.
    """
    target = Path(directory)
    for file in files:
        parts = PurePosixPath(str(file.path)).parts
        assert parts and ".." not in parts and not Path(file.path).is_absolute(), f"{file.path} leaves its directory"
    faults = check_target(directory, [(str(file.path), file.text) for file in files], force=force)
    if faults:
        raise InputError(faults)
    try:
        parent = next(place for place in target.resolve().parents if place.is_dir())
        stage = Path(tempfile.mkdtemp(prefix=".meshwright-", dir=parent))
        try:
            for file in files:
                place = stage / file.path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(file.text, encoding="utf-8")
                place.chmod(0o755 if file.executable else 0o644)
            for file in files:
                place = target / file.path
                place.parent.mkdir(parents=True, exist_ok=True)
                (stage / file.path).replace(place)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise fault("file.write", "cannot be written: {reason}", path=directory, reason=reason) from None
    return [str(target / file.path) for file in files]


def check_target(directory: str, texts: Sequence[tuple[str, str]] = (), *, force: bool = False) -> list[Message]:
    """What would stand in the way of writing there."""
    target = Path(directory)
    try:
        if target.exists() and not target.is_dir():
            return [Message("file.directory", "is a file, a directory is wanted", {}, path=directory)]
        return [
            Message("file.exists", "exists with other content; --force overwrites it", {}, path=str(target / path))
            for path, text in texts
            if not force and (target / path).exists() and not _same(target / path, text)
        ]
    except OSError as error:  # as a name that is too long
        reason = error.strerror or str(error)
        return [Message("file.write", "cannot be written: {reason}", {"reason": reason}, path=directory)]


def _same(path: Path, text: str) -> bool:
    """Whether a file already has this content."""
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def check_file(path: str, inputs: Sequence[str] = ()) -> None:
    """Refuse a file that could not be written, or that is also read, before anything is computed."""
    target = Path(path)
    reason = ""
    try:
        if target.is_dir():
            reason = "is a directory, a file is wanted"
        elif target.exists() and not target.is_file():
            reason = "is not a regular file"
        elif not target.parent.is_dir():
            reason = "its directory does not exist"
        elif any(target.exists() and Path(each).exists() and target.samefile(each) for each in inputs):
            reason = "is the file that is read"
    except (OSError, ValueError) as error:
        reason = f"cannot be written: {getattr(error, 'strerror', None) or error}"
    if reason:
        raise fault("file.target", "{reason}", path=path, reason=reason)


def write_file(path: str, text: str) -> None:
    """Write one file whole or not at all: beside its place first, then moved there."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=".meshwright-", dir=target.parent)
        stage = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                stream.write(text)
            stage.chmod(0o666 & ~_mask())
            stage.replace(target)
        finally:
            stage.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise fault("file.write", "cannot be written: {reason}", path=path, reason=reason) from None


def _mask() -> int:
    """The permissions that this process takes from new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
