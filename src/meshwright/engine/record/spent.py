"""Where the time of a step goes: spans within spans, each second counted once, for the innermost."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER = "other"


class Spent:
    """Seconds and times by name, of the thread that made it; other threads' spans are nobody's step."""

    def __init__(self) -> None:
        self._owner = threading.get_ident()
        self._open = [OTHER]
        self.restart()

    def restart(self) -> None:
        """Nothing spent from here on; spans that are open stay open."""
        self._mark = perf_counter()
        self.seconds: dict[str, float] = {}
        self.times: dict[str, int] = {}

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """A span."""
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    def begin(self, name: str) -> None:
        """A span begins; what was spent so far is its parent's."""
        if threading.get_ident() == self._owner:
            self.settle()
            self._open.append(name)
            self.times[name] = self.times.get(name, 0) + 1

    def end(self) -> None:
        """The innermost span ends."""
        if threading.get_ident() == self._owner:
            self.settle()
            self._open.pop()

    def settle(self) -> None:
        """Count up to now."""
        now, name = perf_counter(), self._open[-1]
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._mark
        self._mark = now
