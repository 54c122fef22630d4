"""When a line was printed, by whatever way of writing times its logger has."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_ISO = re.compile(r"(?<!\d)(20\d\d)[-/]?(\d\d)[-/]?(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_AMERICAN = re.compile(r"(?<!\d)(\d\d)/(\d\d)/(20\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")


def at_s(text: str) -> float | None:
    """Seconds of the first time in a text, on the log's own clock; None without one.

    >>> at_s("10/17/2025 16:32:07 [INFO]") - at_s("[2025-10-17 16:31:56,500]")
    10.5
    """
    found = _ISO.search(text[:200])
    if found is not None:
        year, month, day, hour, minute, second, part = found.groups()
    else:
        found = _AMERICAN.search(text[:200])
        if found is None:
            return None
        month, day, year, hour, minute, second, part = found.groups()
    try:
        whole = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError:
        return None
    return whole.timestamp() + (float(f"0.{part}") if part else 0.0)
