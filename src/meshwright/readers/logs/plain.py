"""Logs of no framework that is known, for what they complain of and how they ended."""

from __future__ import annotations

import re
from importlib import import_module

from meshwright.readers.formats import BUILT_IN
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.needles import Needles
from meshwright.readers.signs import anchors, rules

_DATA = re.compile(rb"\s*(?:\{\s*\"|\[\s*\{|\x80|PK|<\?xml)")
"""How documents and archives begin: what they quote they do not complain of."""
_TRIED = 400


def _told(sample: bytes) -> bool:
    """Whether it says something known, and is no log of a framework, which reads signs itself."""
    if _DATA.match(sample[:200]) or b"\x00" in sample[:4096] or any(each.told(sample) for each in _dialects()):
        return False
    places, which = Needles(anchors(), sample[: 1 << 17]).places(sample, len(sample), len(sample))
    for at, index in zip(places[:_TRIED].tolist(), which[:_TRIED].tolist(), strict=True):
        start = sample.rfind(b"\n", 0, at) + 1
        text = sample[start: start + 4000].split(b"\n", 1)[0].decode("utf-8", "replace")
        if rules()[index].pattern.search(text) is not None:
            return True
    return False


def _dialects() -> tuple[Dialect, ...]:
    names = (name for name in BUILT_IN if name.startswith("logs.") and name != "logs.plain")
    modules = (import_module(f"meshwright.readers.{name}") for name in names)
    return tuple(module.DIALECT for module in modules if hasattr(module, "DIALECT"))


_PLAIN = Dialect(
    name="plain_log", says="logs of no known framework, for what they complain of and how they ended", tells=re.compile(r"(?!)"),
    by=(), seeks=(), take=lambda draft, hit: None,
)
FORMAT = _PLAIN.as_told_by(_told)
