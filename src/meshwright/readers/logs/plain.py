"""Logs of no framework that is known, for what they complain of and how they ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

from meshwright.readers.formats import BUILT_IN
from meshwright.readers.lines import tells
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.signs import anchors, by_id

_DATA = re.compile(rb"\s*(?:\{\s*\"|\[\s*\{|\x80|PK|<\?xml)")
"""How documents and archives begin: what they quote they do not complain of."""
_NAME = re.compile(r"\(\?P<\w+>")


def _told(sample: bytes) -> bool:
    """Whether it says something known, and is no log of a framework, which reads signs itself."""
    if _DATA.match(sample[:200]) or b"\x00" in sample[:4096] or any(each.told(sample) for each in _dialects()):
        return False
    return tells(sample, anchors(), re.compile("|".join(f"(?:{each})" for each in _patterns()), re.IGNORECASE))


def _patterns() -> Iterator[str]:
    """Those of the rules, without names of groups."""
    return (_NAME.sub("(?:", rule.pattern.pattern) for rule in by_id().values())


def _dialects() -> tuple[Dialect, ...]:
    names = (name for name in BUILT_IN if name.startswith("logs.") and name != "logs.plain")
    modules = (import_module(f"meshwright.readers.{name}") for name in names)
    return tuple(module.DIALECT for module in modules if hasattr(module, "DIALECT"))


_PLAIN = Dialect(
    name="plain_log", says="logs of no known framework, for what they complain of and how they ended", tells=re.compile(r"(?!)"),
    by=(), seeks=(), take=lambda draft, hit: None,
)
FORMAT = _PLAIN.as_told_by(_told)
