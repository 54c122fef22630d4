"""Where something was seen."""

from __future__ import annotations

from meshwright.value import Value


class Place(Value, frozen=True, kw_only=True):
    """A file, and in it a line, or a span of time on the clock of the file."""

    file: str
    line: int | None = None
    t0_s: float | None = None
    t1_s: float | None = None
