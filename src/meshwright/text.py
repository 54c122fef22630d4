"""Text of others: what hides in it, and how it is shown so that everybody sees it.

Control characters move the cursor of a terminal and end lines, bidi marks turn what stands around them (CVE-2021-42574), lone
surrogates fit into no file. Letters of every script, spaces and signs are what they are.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Unicode's Cc, Zl, Zp and Cs, and the marks, embeddings, overrides and isolates of its bidirectional algorithm."""
_USUAL = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
LONGEST = 60


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
    ("'llama\\\\nrm'", "'xxx...'", "'...xx\\\\n'")
    """
    found = _HIDDEN.search(text)
    first = max(0, found.end() - longest + longest // 4) if found else 0
    end = first + longest
    return f"'{'...' * (first > 0)}{visible(text[first:end])}{'...' * (len(text) > end)}'"


def _escaped(letter: str) -> str:
    """A character as Python writes it between quotes."""
    code = ord(letter)
    return _USUAL.get(letter) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
