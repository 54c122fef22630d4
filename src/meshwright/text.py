"""Text and values of others: what hides in them, and how a message shows them so that everybody sees them, in bounded length.

Control characters move the cursor of a terminal and end lines, bidi marks turn what stands around them (CVE-2021-42574), lone
surrogates fit into no file. Letters of every script, spaces and signs are what they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from math import log10

_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Unicode's Cc, Zl, Zp and Cs, and the marks, embeddings, overrides and isolates of its bidirectional algorithm."""
_USUAL = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
LONGEST = 60
"""Characters of a value that a message quotes."""
LONGEST_WORDS = 400
"""Of a text that stands in a message without quotes: a reason, a hint."""
LONGEST_LIST = 160
"""Of a list of names."""
LONGEST_PLACE = 240
"""Of a file and a key."""
MANY_BITS = 200
"""Of a whole number that is said by how many digits it has."""


def hidden(text: str) -> str:
    """The first character of a text that nobody sees, as an escape; the empty string where all can be seen.

    >>> hidden("Qwen 2.5 $(x)"), hidden("llama\\nrm"), hidden("a\\u202eb")
    ('', '\\\\n', '\\\\u202e')
    """
    found = _HIDDEN.search(text)
    return _escaped(found[0]) if found else ""


def visible(text: str, keep: str = "") -> str:
    """The text with an escape for each character that nobody sees; those in ``keep`` stay.

    >>> visible("a\\x1b[31mb\\n"), visible("a\\nb\\x07", keep="\\n")
    ('a\\\\x1b[31mb\\\\n', 'a\\nb\\\\x07')
    """
    return _HIDDEN.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def quoted(text: str, longest: int = LONGEST) -> str:
    """A text as a message quotes it: visible, in quotes, and short; of a long one the part where something hides.

    >>> quoted("llama\\nrm"), quoted("x" * 70, 3), quoted("x" * 70 + "\\n", 4)
    ("'llama\\\\nrm'", "'xxx...' (70 characters)", "'...xx\\\\n' (71 characters)")
    """
    found = _HIDDEN.search(text)
    first = max(0, found.end() - longest + longest // 4) if found else 0
    end = first + longest
    short = f"'{'...' * (first > 0)}{visible(text[first:end])}{'...' * (len(text) > end)}'"
    return f"{short} ({len(text):,} characters)" if len(text) > longest else short


def shown(value: object, longest: int = LONGEST) -> str:
    """A value of a file as the file writes it, short: text in quotes, ``true``, ``null``, lists and keys in brackets.

    >>> shown("4096"), shown(True), shown([1, "a", None]), shown({"rows": 10**300})
    ("'4096'", 'true', "[1, 'a', null]", '{rows: a number of 301 digits}')
    """
    if isinstance(value, str):
        return quoted(value, longest)
    if isinstance(value, Mapping):
        entries = (f"{visible(str(key)[:longest])}: {shown(item, longest)}" for key, item in value.items())
        return _listed(entries, value, "{}", longest)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _listed((shown(item, longest) for item in value), value, "[]", longest)
    return shortened(_scalar(value), longest)


def plain(value: object) -> str:
    """A value as a message says it without quotes: figures, names, reasons; a list is its entries, as many as a line takes.

    >>> plain(0.5), plain(True), plain(["tp", "cp"]), plain(["x" * 100] * 9)[-11:]
    ('0.5', 'true', 'tp, cp', ' and 8 more')
    """
    if isinstance(value, str):
        return shortened(value, LONGEST_WORDS)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _words([plain(each) for each in (sorted(map(str, value)) if isinstance(value, (set, frozenset)) else value)])
    return shown(value) if isinstance(value, Mapping) else shortened(_scalar(value), LONGEST_WORDS)


def kind(value: object) -> str:
    """What sort of thing a value of a file is, in words.

    >>> kind("x"), kind([1]), kind({"a": 1}), kind(None)
    ('a text', 'a list', 'keys with values', 'nothing')
    """
    names: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "true or false"), (str, "a text"), ((int, float), "a number"), (Mapping, "keys with values"),
        ((list, tuple, set, frozenset), "a list"), (type(None), "nothing"),
    )
    found = next((name for sort, name in names if isinstance(value, sort)), "")
    return found or ("a date" if hasattr(value, "isoformat") else "another kind of value")


def shortened(text: str, longest: int) -> str:
    """A text up to a length; what is left out is said.

    >>> shortened("x" * 5001, 3)
    'xxx... (5,001 characters)'
    """
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text):,} characters)"


def place(path: str) -> str:
    """A file and a key in front of a message, visible; of a long one both ends."""
    half = LONGEST_PLACE // 2
    return visible(path if len(path) <= LONGEST_PLACE else f"{path[:half]}... ({len(path):,} characters) ...{path[-half:]}")


def _scalar(value: object) -> str:
    """A value that is neither text nor several."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and value.bit_length() > MANY_BITS:
        return f"a number of {int(abs(value).bit_length() * log10(2)) + 1:,} digits"
    if isinstance(value, bytes):
        return "bytes"
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return "another kind of value" if text.startswith("<") and " object at 0x" in text else text


def _listed(entries: Iterable[str], whole: Collection[object], brackets: str, longest: int) -> str:
    """Entries in brackets; those beyond a length are counted."""
    found: list[str] = []
    length = 0
    for entry in entries:
        length += len(entry) + 2
        if found and length > longest:
            return f"{brackets[0]}{', '.join(found)}, ...{brackets[1]} ({len(whole):,} entries)"
        found.append(entry)
    return brackets[0] + ", ".join(found) + brackets[1]


def _words(entries: list[str]) -> str:
    """Names behind each other; those beyond a length are counted."""
    length = 0
    for before, entry in enumerate(entries):
        length += len(entry) + 2
        if before and length > LONGEST_LIST:
            return f"{', '.join(entries[:before])} and {len(entries) - before:,} more"
    return ", ".join(entries)


def _escaped(letter: str) -> str:
    """A character as Python writes it between quotes."""
    code = ord(letter)
    return _USUAL.get(letter) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
