"""A user's files changed in place: all of them or none, and only where they are what was read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, fault

if TYPE_CHECKING:
    from meshwright.frameworks import File

BOM = b"\xef\xbb\xbf"


def apply(files: Sequence[File], originals: Mapping[str, str]) -> list[str]:
    """Exchange the texts of files; what was read of them is in ``originals``. Permissions, links and marks stay.

    Errors: ``InputError`` where a file has changed meanwhile, may not be written, or cannot be; then none is changed.
    """
    staged: list[tuple[Path, Path, bytes]] = []
    faults = [message for file in files if (message := _refusal(file.path, originals[file.path])) is not None]
    if faults:
        raise InputError(faults)
    place = ""
    try:
        for file in files:
            place = file.path
            target = Path(file.path).resolve()
            before = target.read_bytes()
            staged.append((target, _beside(target, file.text, before), before))
        done: list[tuple[Path, bytes]] = []
        for target, stage, before in staged:
            place = str(target)
            try:
                stage.replace(target)
            except OSError:
                for back, content in done:
                    back.write_bytes(content)
                raise
            done.append((target, before))
    except OSError as error:
        raise fault("file.write", "cannot be written: {reason}", path=place, reason=error.strerror or str(error)) from None
    finally:
        for _, stage, _ in staged:
            stage.unlink(missing_ok=True)
    return [file.path for file in files]


def _refusal(path: str, original: str) -> Message | None:
    """Why a file may not be changed."""
    target = Path(path).resolve()
    try:
        content = target.read_bytes()
        if not target.stat().st_mode & 0o222:
            return Message("apply.read-only", "is read-only", {}, path)
    except OSError as error:
        return Message("file.unreadable", "cannot be read: {reason}", {"reason": error.strerror or error}, path)
    if content.removeprefix(BOM) != original.encode():
        return Message("apply.changed", "has changed since it was read: nothing is applied", {}, path)
    return None


def _beside(target: Path, text: str, before: bytes) -> Path:
    """The new content in a file beside the old one, with its permissions."""
    handle, name = tempfile.mkstemp(prefix=".meshwright-", dir=target.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write((BOM if before.startswith(BOM) else b"") + text.encode())
    shutil.copymode(target, name)
    return Path(name)
