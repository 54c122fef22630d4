"""Where values of JSON text end, for text that comes in pieces: strings and brackets are followed, nothing is decoded."""

from __future__ import annotations

import re

_STRING_OR_BRACKET = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+)("?)|[\[{]|[\]}]', re.DOTALL)
"""A string to its closing quote, or to the end of the text where it has none; or a bracket."""
_SCALAR = re.compile(rb"[^\s,\[\]{}\"]+")
_BLANK = re.compile(rb"\s*")
_BETWEEN = re.compile(rb"[\s,]*")
_NO_BRACKET = re.compile(rb'(?:[^\[\]{}"]++|\[\s*+\]|\{\s*+\}|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""What is neither a list nor an object with anything in it: scalars, whole strings, blanks."""
MAX_DEPTH = 1000
"""Of lists and objects within each other: what is deeper is decoded by nobody."""
_OPENS = ord("{")
LEAST_BYTES = 16
"""Of an object that is looked at: an event says its phase and its times."""


def past_blank(text: bytes | bytearray, at: int) -> int:
    """The place of the next byte that is not blank, or the end."""
    found = _BLANK.match(text, at)
    return found.end() if found else at


def past_value(text: bytes | bytearray, at: int) -> int:
    """The place behind the value that begins at ``at``; -1 where the text ends before it does, or may, and of what is too deep.

    >>> past_value(b'{"a": "}"}, 1', 0), past_value(b'"ab', 0), past_value(b'12', 0), past_value(b'12,', 0)
    (10, -1, -1, 2)
    """
    if at >= len(text):
        return -1
    if text[at] not in b'"[{':
        found = _SCALAR.match(text, at)
        return -1 if found is None or found.end() == len(text) else found.end()
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text, at):
        first = text[found.start()]
        if first == 0x22:
            if not found[2]:
                return -1
        else:
            depth += 1 if first in b"[{" else -1
        if depth <= 0:
            return found.end()
        if depth > MAX_DEPTH:
            return -1
    return -1


def items(text: bytes | bytearray, at: int = 0) -> tuple[list[tuple[int, int]], int, bool]:
    """Objects of a list whose inside begins at ``at``: where each whole one begins and ends, where the rest does, and whether ``]``
    was met.

    Whatever else stands in the list is stepped over, and objects that are too short to say anything are: a piece may hold millions.
    """
    found: list[tuple[int, int]] = []
    while True:
        gap = _NO_BRACKET.match(text, at)
        at = gap.end() if gap else at
        if at >= len(text):
            return found, at, False
        if text[at] in b"]}":
            return found, at + 1, True
        end = past_value(text, at)
        if end < 0:
            return found, at, False
        if text[at] == _OPENS and end - at >= LEAST_BYTES:
            found.append((at, end))
        at = end


def member(text: bytes | bytearray, at: int) -> tuple[bytes, int]:
    """The key of an object's member that begins at ``at`` (behind blanks and a comma), and where its value begins.

    An empty key and the place of the brace at the object's end; -1 where the text ends before the value begins.
    """
    gap = _BETWEEN.match(text, at)
    at = gap.end() if gap else at
    if at < len(text) and text[at] in b"}]":
        return b"", at
    end = past_value(text, at)
    if end < 0:
        return b"", -1
    colon = past_blank(text, end)
    start = past_blank(text, colon + 1)
    return (bytes(text[at:end]).strip(b'"'), start) if start < len(text) else (b"", -1)
