"""One screen of a sweep that runs: trials, the best so far, predicted against measured, what is spent and what runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from meshwright.report.rehearse import terse
from meshwright.words import about, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

    from rich.console import Console

LINES = 20
"""Trials that are shown while they run: the last ones."""


@dataclass
class Screen:
    """Takes events; shows a table on a terminal and a line an ending elsewhere."""

    console: Console
    shown: bool
    """Whether somebody watches."""
    total: int | None = None
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _spent_s: float = 0.0
    _known: int = 0
    _best: tuple[str, float] | None = None
    _live: Live | None = None

    def __call__(self, event: Mapping[str, Any]) -> None:
        """One event of the loop."""
        kind = event["event"]
        if kind == "closed":
            if self._live is not None:
                self._live.stop()
                self._live = None
            return
        self._note(kind, event)
        if not self.shown:
            return
        if self._live is None:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        self._live.update(self.view())

    def _note(self, kind: str, event: Mapping[str, Any]) -> None:
        if "label" in event:
            row = self._rows.setdefault(event["label"], {"label": event["label"], "status": "", "steps": 0, "step_s": None})
            row.update({name: event[name] for name in ("steps", "step_s", "attempt") if event.get(name) is not None})
            row["status"] = {"started": "starting", "adopted": "running", "step": "running", "retry": "again"}.get(
                kind, event.get("status", row["status"]))
        if kind == "known":
            self._known += 1
        if kind == "withdrawn":
            self._rows.pop(event["label"], None)
        if kind == "planned":
            self.total = event["trials"]
        if kind == "ended":
            self._spent_s += event["device_s"]
        if kind == "best":
            self._best = event["label"], event["step_s"]

    def view(self) -> Group:
        """What is on the screen."""
        done = sum(row["status"] not in ("starting", "running", "again", "") for row in self._rows.values())
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("layout", "status", "steps", "step"):
            table.add_column(name, justify="right" if name.startswith("step") else "left")
        for row in list(self._rows.values())[-LINES:]:
            step = seconds(row["step_s"]) if row["step_s"] else ""
            table.add_row(terse(row["label"]), row["status"], str(row["steps"] or ""), step)
        passed = time.monotonic() - self._began
        ran = done - self._known
        minutes = passed / ran * (self.total - done) / 60 if self.total and ran and done < self.total else None
        left = "" if minutes is None else f"   about {minutes:.0f} minutes left"
        best = "" if self._best is None else f"   best {terse(self._best[0])} {seconds(self._best[1])}"
        head = f"{done}{f' of {self.total}' if self.total else ''} trials   {about(self._spent_s / 3600)} device-hours{best}{left}"
        return Group(Text(head, style="bold"), table)


def screen(stream: IO[str], *, total: int | None = None) -> Screen:
    """A screen on a stream, which shows nothing where that is no terminal."""
    from meshwright.report.console import console

    return Screen(console=console(stream), shown=stream.isatty(), total=total)
