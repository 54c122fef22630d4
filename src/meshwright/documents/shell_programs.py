"""The few programs of ``$(...)`` whose output follows from their words; none is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.shell_values import joined, literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.documents.shell_values import Text

KNOWN = ("echo", "expr", "basename", "dirname")
"""``expr`` is arithmetic, and is computed where that is."""


def printed(program: str, words: Sequence[Text], line: int) -> Text | None:
    """What ``echo``, ``basename`` or ``dirname`` prints of known words; None where that is not said."""
    plain = [word.plain for word in words]
    if program == "echo":
        return joined(words[1:] if plain[:1] == ["-n"] else words)
    if len(plain) not in (1, 2) or plain[0].startswith("-") or not plain[0].strip("/"):
        return None
    stripped = plain[0].rstrip("/")
    if program == "dirname":
        head = stripped.rpartition("/")
        return literal((head[0].rstrip("/") or "/") if head[1] else ".", line)
    base = stripped.rpartition("/")[2]
    suffix = plain[1] if len(plain) > 1 else ""
    return literal(base[: -len(suffix)] if suffix and base != suffix and base.endswith(suffix) else base, line)
