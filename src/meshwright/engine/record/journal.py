"""Lines on their way to disk: appended without waiting, and there within a fraction of a second whatever ends the run."""

from __future__ import annotations

import json
import threading
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

FLUSH_S = 0.1
SILENT_S = 0.5
"""After so long without a line there is one of the time, so that who waits is told from who was ended."""


class Journal:
    """A file of JSON lines; a thread of its own hands them to the system, so that a rank that hangs has left what it had."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lines: list[str] = []
        self._stream = path.open("w", encoding="utf-8")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hand_on, daemon=True)
        self._thread.start()

    def add(self, line: dict[str, Any]) -> None:
        """One line more; any thread may."""
        self._lines.append(json.dumps(line, separators=(",", ":")))

    def close(self) -> None:
        """Everything is on its way, and no thread is left."""
        self._over.set()
        self._thread.join()
        self._stream.close()

    def _hand_on(self) -> None:
        over, last = False, perf_counter()
        while not over:
            over = self._over.wait(FLUSH_S)
            if not self._lines and not over and perf_counter() > last + SILENT_S:
                self.add({"at_s": perf_counter()})
            if some := len(self._lines):
                last = perf_counter()
                self._stream.write("\n".join(self._lines[:some]) + "\n")
                self._stream.flush()
                del self._lines[:some]  # what was added meanwhile stands behind
