"""Comments that silence a rule: ``# meshwright: ignore[step.item]`` at the end of a line, or on a line of its own above it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from meshwright.lint.found import Found

_COMMENT = re.compile(r"#\s*meshwright:\s*ignore\[([^\]\n]*)\]")


def names(id: str, word: str) -> bool:
    """Whether a word names a rule: by its identifier, or by the group before the dot.

    >>> names("step.item", "step"), names("step.item", "step.item"), names("step.item", "item")
    (True, True, False)
    """
    return word in (id, id.partition(".")[0])


def unsuppressed(found: Iterable[Found], text: str) -> Iterator[Found]:
    """Findings that no comment silences."""
    if "meshwright:" not in text:
        yield from found
        return
    lines = re.split(r"\r\n?|\n", text)
    for each in found:
        if each.cell or not _silenced(each, lines):
            yield each


def _silenced(each: Found, lines: Sequence[str]) -> bool:
    """Whether the line of a finding, or a comment that stands alone above it, names its rule."""
    here = lines[each.line - 1] if each.line <= len(lines) else ""
    above = lines[each.line - 2] if each.line > 1 else ""
    for line in (here, above if above.lstrip().startswith("#") else ""):
        comment = _COMMENT.search(line)
        if comment is not None and any(names(each.id, word.strip()) for word in comment[1].split(",")):
            return True
    return False
