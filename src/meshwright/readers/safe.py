"""Files are hostile until parsed: size, encoding, nesting and duplicate keys come before any value (YAML: ``safe_yaml``).

Every fault is one ``InputError`` with one line; nothing else escapes from here.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING

from meshwright.errors import fault
from meshwright.text import kind

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 10 * 10**6
"""Larger than any configuration; smaller than what hurts."""
MAX_DEPTH = 60

MAX_DIGITS = 100
"""Characters of a number; none that means anything has as many."""
_LONG_NUMBER = re.compile(rf"(?<![0-9A-Za-z_])(?:0[xXoObB][0-9a-fA-F_]{{{MAX_DIGITS},}}|[0-9][0-9_.:]{{{MAX_DIGITS},}})")


def load_json(path: Path | str, *, unknown: bool = False) -> object:
    """The document of a JSON file; ``unknown``: NaN and Infinity, which Python writes into files of JSON, read as null."""
    return parse_json(read_text(path), where=str(path), unknown=unknown)


@contextmanager
def open_regular(path: Path | str) -> Iterator[IO[bytes]]:
    """A regular file, open to be read; what the system says against it, then or while it is read, is a fault of the file."""
    path = Path(path)
    try:
        if not path.exists():
            raise fault("file.missing", "no such file", path=str(path))
        if not path.is_file():
            raise fault("file.kind", "not a regular file", path=str(path))
        with path.open("rb") as stream:
            yield stream
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise fault("file.unreadable", "cannot be read: {reason}", path=str(path), reason=reason) from None


def read_text(path: Path | str, max_bytes: int = MAX_BYTES, *, errors: str = "strict") -> str:
    """The text of a regular UTF-8 file of at most ``max_bytes``; ``errors`` is what ``bytes.decode`` does with other bytes."""
    path = Path(path)
    with open_regular(path) as stream:
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise fault("file.large", "larger than {limit} bytes", path=str(path), limit=max_bytes)
    try:
        return content.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise fault("file.encoding", "not UTF-8 text (byte {offset})", path=str(path), offset=error.start) from None


def read_lines(path: Path | str, max_characters: int) -> Iterator[str]:
    """The lines of a regular UTF-8 file of any length, one at a time, without what ends them.

    Errors:  ``InputError`` for a line of more than ``max_characters``, and for bytes that are no UTF-8, when they are met.
    """
    with open_regular(path) as stream, TextIOWrapper(stream, "utf-8-sig") as text:
        number = 0
        try:
            while line := text.readline(max_characters + 1):
                number += 1
                if len(line) > max_characters:
                    raise fault("file.line", "line {line:,} has more than {limit:,} characters", path=str(path), line=number,
                                limit=max_characters)
                yield line.rstrip("\n")
        except UnicodeDecodeError:
            raise fault("file.encoding", "not UTF-8 text (behind line {line:,})", path=str(path), line=number) from None


def refuse_long_numbers(text: str, where: str = "") -> None:
    """Refuse a number of hundreds of digits before a parser makes one of it, which takes the square of their number.

    Errors:  ``InputError`` with its line; also for such a number in a text or a comment.
    """
    found = _LONG_NUMBER.search(text)
    if found:
        raise fault(
            "number.digits", "a number of {size:,} characters (line {line}); {limit} are the limit", path=where,
            size=len(found[0]), line=text.count("\n", 0, found.start()) + 1, limit=MAX_DIGITS,
        )


def parse_json(text: str, where: str = "", *, unknown: bool = False) -> object:
    """One JSON document; refuses duplicate keys, deep nesting, and (``unknown``: reads as null) NaN and Infinity."""

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(items)
        if len(result) < len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise fault("json.duplicate", "key {key!r} stands twice in one place", path=where, key=twice)
        return result

    def constant(name: str) -> None:  # what it returns stands for the value
        if unknown:
            return
        raise fault("json.constant", "{name} is not JSON", path=where, name=name)

    refuse_long_numbers(text, where)
    try:
        document: object = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        ended = error.pos >= len(text.rstrip())
        raise fault(
            "json.malformed", "not JSON: {reason} (line {line}, column {column}){hint}",
            path=where, reason=error.msg, line=error.lineno, column=error.colno,
            hint="; the file is empty" if not text.strip() else "; is it truncated?" if ended else "",
        ) from None
    except RecursionError:
        raise fault("json.depth", "nested too deeply", path=where) from None
    except ValueError as error:  # integers of thousands of digits
        raise fault("json.malformed", "not JSON: {reason}", path=where, reason=one_line(str(error))) from None
    _check_depth(document, where)
    return document


def _check_depth(document: object, where: str) -> None:
    """Depth of a JSON document, before anything recursive touches it."""
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [item for each in level if isinstance(each, (dict, list))
                 for item in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return
    raise fault("json.depth", "nested too deeply", path=where)


_PARSERS = {
    "mapping values are not allowed": "a second ': ' is not allowed", "block mapping": "keys", "flow mapping": "braces",
    "mapping": "keys", "block sequence": "a list", "flow sequence": "brackets", "sequence": "a list", "scalar": "a value",
}
"""What parsers call things -> what their writers do."""


def one_line(text: str) -> str:
    """A parser's complaint in one line, in words that people write."""
    if "integer string conversion" in text:
        return "a number of too many digits"
    for theirs, ours in _PARSERS.items():
        text = text.replace(theirs, ours)
    return " ".join(text.split())


def require_mapping(document: object, where: str) -> dict[str, object]:
    """The document as a mapping with text keys, or an ``InputError``."""
    if not isinstance(document, dict):
        raise fault(
            "document.kind", "holds {kind}, keys with values were expected", path=where, kind=kind(document),
        )
    odd = [key for key in document if not isinstance(key, str)]
    if odd:
        raise fault("document.key", "key {key!r} is not text", path=where, key=odd[0])
    return document
