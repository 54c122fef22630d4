"""What is to be written: a file, its text, and what is known of what stands there."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Protocol

from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence


class Written(Protocol):
    """A file of a folder: a relative path, its text, and whether it can be run."""

    @property
    def path(self) -> str:
        """Relative to the folder."""

    @property
    def text(self) -> str:
        """The content."""

    @property
    def executable(self) -> bool:
        """Whether it is a script."""


class Output(Value, frozen=True, kw_only=True):
    """A file to write."""

    path: str
    """As the user names it; links are followed."""
    text: str = ""
    spool: IO[bytes] | None = None
    """A file that holds the text instead, where it is too long to be held: UTF-8, written to its end."""
    executable: bool = False
    """Whether a file that is not there yet may be run."""
    folder: str = ""
    """The folder of several files that was asked for, made where it is missing; empty: the file's own must be there."""
    read: str | None = None
    """For a user's file that is changed in place: the text that was read from it, and that it must still have."""
    like: str = ""
    """For a copy of a user's file: the file whose owner, mode and byte order mark it takes."""


def in_folder(directory: str, files: Sequence[Written]) -> list[Output]:
    """The outputs that files of a folder are; a path that leaves it is a mistake of the caller's."""
    for file in files:
        parts = PurePosixPath(file.path).parts
        assert parts and ".." not in parts and not Path(file.path).is_absolute(), f"{file.path} leaves its directory"
    return [
        Output(path=str(Path(directory) / file.path), text=file.text, executable=file.executable, folder=directory)
        for file in files
    ]
