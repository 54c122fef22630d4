"""A seal in a text says that nothing of it has been changed: how a verb that renews its own file knows it again.

``text`` holds ``SEAL`` once, in whatever way its language has comments or keys; the zeros become the digest of the text with zeros.
"""

from __future__ import annotations

import re

from meshwright.outputs.disk import digest

SEAL = "seal:" + 64 * "0"
_FOUND = re.compile(rb"seal:[0-9a-f]{64}")


def sealed(text: str) -> str:
    """The text with its seal closed; a file with this text may be replaced unasked until somebody changes it."""
    assert text.count(SEAL) == 1, "a text has one seal"
    return text.replace(SEAL, f"seal:{digest(text.encode())}")


def is_intact(content: bytes) -> bool:
    """Whether a file has a seal, and has not been changed since it was closed."""
    found = _FOUND.findall(content)
    return len(found) == 1 and digest(content.replace(found[0], SEAL.encode())).encode() == found[0][5:]
