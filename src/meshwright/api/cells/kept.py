"""Cells that are kept while an atlas is made: a line of JSON each, so that whatever ends it, what was found is found again.

The file is no output but a store, one line behind the other; the last line of a cell counts, and a refined one above a coarse one.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.cells.cell import NAMES, Cell
from meshwright.errors import fault
from meshwright.readers.safe import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = "meshwright atlas 1"
MAX_BYTES = 64 * 2**20
REQUIRED = {"series": str, "model": str, "device": str, "devices": int, "devices_per_node": int, "source": str, "why": str}
_MAY_BE: dict[str, tuple[type, ...]] = {
    "grade": (str,), "label": (str,), "layout": (dict,), "interval": (dict,), "run": (dict,), "batch": (dict,),
}


class Kept:
    """The file of kept cells: what it has, and where more go. Without a path nothing is kept."""

    def __init__(self, path: str | None) -> None:
        """Read what is there.

        Errors:  ``InputError`` where the file is none of this program's, is too long, or cannot be read or written.
        """
        self.path = path
        self.cells: dict[str, Cell] = {}
        self._written: dict[str, str] = {}
        if path is None:
            return
        try:
            if not Path(path).exists():
                Path(path).write_text(json.dumps({"format": FORMAT}) + "\n", encoding="utf-8")
                return
            self._read(path)
        except OSError as error:
            raise _unwritten(path, error) from None

    def _read(self, path: str) -> None:
        with open_regular(path) as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise fault("atlas.kept-large", "larger than {limit:,} bytes", path=path, limit=MAX_BYTES)
        whole = content[: content.rfind(b"\n") + 1]
        head, *lines = whole.decode("utf-8", "replace").split("\n")[:-1] or [""]
        if _parsed(head) != {"format": FORMAT}:
            words = "is no file of an atlas' cells: its first line does not say {format!r}"
            raise fault("atlas.kept", words, path=path, format=FORMAT)
        for number, line in enumerate(lines, start=2):
            document = _parsed(line)
            if isinstance(document, dict) and isinstance(document.get("written"), str) and isinstance(document.get("digest"), str):
                self._written[document["written"]] = document["digest"]
            elif isinstance(document, dict) and isinstance(document.get("key"), str) and (cell := _cell(document.get("cell"))):
                self._take(document["key"], cell)
            else:
                raise fault("atlas.kept-line", "line {number} is no cell", path=path, number=number)
        if len(whole) < len(content):
            with Path(path).open("r+b") as stream:
                stream.truncate(len(whole))

    def add(self, key: str, cell: Cell) -> None:
        """Keep a cell: on the disk before this returns."""
        self._take(key, cell)
        self._append({"key": key, "cell": cell.to_json()})

    def wrote(self, outputs: Mapping[str, bytes]) -> None:
        """Note what was written where, so that it is known again as long as nobody changes it."""
        for path, content in outputs.items():
            where, digest = str(Path(path).resolve()), sha256(content).hexdigest()
            if self._written.get(where) != digest:
                self._written[where] = digest
                self._append({"written": where, "digest": digest})

    def own(self, paths: Iterable[str]) -> frozenset[str]:
        """Those of some files that this atlas wrote, and nobody has changed since."""
        found = set()
        for path in paths:
            digest = self._written.get(str(Path(path).resolve()))
            try:
                if digest is not None and sha256(Path(path).read_bytes()).hexdigest() == digest:
                    found.add(path)
            except OSError:
                continue
        return frozenset(found)

    def _take(self, key: str, cell: Cell) -> None:
        if key not in self.cells or cell.grade == "refined" or self.cells[key].grade != "refined":
            self.cells[key] = cell

    def _append(self, document: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        try:
            with Path(self.path).open("ab") as stream:
                stream.write((json.dumps(document, allow_nan=False) + "\n").encode())
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise _unwritten(self.path, error) from None


def _unwritten(path: str, error: OSError) -> Exception:
    return fault("atlas.kept-write", "cannot be written: {reason}", path=path, reason=error.strerror or str(error))


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _cell(document: Any) -> Cell | None:
    """A cell from JSON; None for anything else."""
    if not isinstance(document, dict) or set(document) != set(NAMES):
        return None
    for name, value in document.items():
        if name in REQUIRED:
            right = isinstance(value, REQUIRED[name]) and not isinstance(value, bool)
        elif name in _MAY_BE:
            right = value is None or isinstance(value, _MAY_BE[name])
        else:
            right = value is None or (isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value))
        if not right:
            return None
    return Cell(**document) if document["devices"] > 0 and document["devices_per_node"] > 0 else None
