"""JSON that may break off: read as far as it goes, and said so."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from meshwright.errors import fault
from meshwright.readers.safe import refuse_long_numbers

if TYPE_CHECKING:
    from meshwright.readers.source import Source

MAX_BYTES = 200 * 10**6
MAX_DEPTH = 60
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{},]|"', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


def content(source: Source, max_bytes: int = MAX_BYTES) -> bytes:
    """Everything in a file of bounded size.

    Errors:  ``InputError`` where it is larger, or cannot be read.
    """
    with source.open() as stream:
        found = stream.read(max_bytes + 1)
    if len(found) > max_bytes:
        raise fault("file.large", "larger than {limit:,} bytes", path=source.shown, limit=max_bytes)
    return found


def load_json_so_far(text: str, where: str) -> tuple[object, bool]:
    """The document, and whether it was whole; of one that breaks off every value that stands whole.

    Control characters may stand in texts; NaN and Infinity read as null.

    Errors:  ``InputError`` for what is no JSON from its beginning, and for what is nested too deeply.
    """
    refuse_long_numbers(text, where)
    try:
        try:
            return _checked(json.loads(text, strict=False, parse_constant=lambda _: None), where), True
        except json.JSONDecodeError as error:
            cut = _whole_part(text, where)
            if cut is None:
                raise fault("json.malformed", "not JSON: {reason} (line {line}, column {column})", path=where, reason=error.msg,
                            line=error.lineno, column=error.colno) from None
            return _checked(json.loads(cut, strict=False, parse_constant=lambda _: None), where), False
    except RecursionError:
        raise fault("json.depth", "nested too deeply", path=where) from None
    except ValueError as error:
        raise fault("json.malformed", "not JSON: {reason}", path=where, reason=str(error)) from None


def _whole_part(text: str, where: str) -> str | None:
    """The text up to the last comma between whole values, with what is open closed; None where nothing is open."""
    stack: list[str] = []
    best: tuple[int, str] | None = None
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in "{[":
            stack.append(_CLOSES[token])
            if len(stack) > MAX_DEPTH:
                raise fault("json.depth", "nested too deeply", path=where)
            if best is None or token == "[":
                best = (found.end(), "".join(reversed(stack)))
        elif token in "}]":
            if not stack or stack.pop() != token:
                return None
            if not stack:
                break
            best = (found.end(), "".join(reversed(stack)))
        elif token == "," and stack:
            best = (found.start(), "".join(reversed(stack)))
        elif token == '"':
            break
    return text[: best[0]] + best[1] if best else None


def _checked(document: object, where: str) -> object:
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [item for each in level if isinstance(each, (dict, list))
                 for item in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return document
    raise fault("json.depth", "nested too deeply", path=where)
