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
from meshwright.text import visible
from meshwright.words import about, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

    from rich.console import Console

LINES, FEW = 20, 4
"""Trials that are shown while they run: the last ones; and so many nodes are not named one by one."""
SHOWN = {"started": "starting", "adopted": "running", "runs": "running", "step": "running", "retry": "again"}
"""What a trial does behind an event."""


@dataclass
class Screen:
    """Takes events; shows a table on a terminal, and lines elsewhere."""

    console: Console
    shown: bool
    """Whether somebody watches."""
    total: int | None = None
    lines: bool = False
    """Whether what happens is said line by line instead, for whoever reads it later."""
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _spent_s: float = 0.0
    _known: int = 0
    _best: tuple[str, float] | None = None
    _live: Live | None = None
    _again: bool = False
    """Whether what happened last is no news."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """One event of the loop."""
        kind = event["event"]
        if kind == "closed":
            if self._live is not None:
                self._live.stop()
                self._live = None
            return
        self._note(kind, event)
        if self.lines or kind == "priced":
            self._say(kind, event)
        if not self.shown:
            return
        if self._live is None:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        self._live.update(self.view())

    def _note(self, kind: str, event: Mapping[str, Any]) -> None:
        if "label" in event:
            row = self._rows.setdefault(event["label"], {"label": event["label"], "status": "", "steps": 0, "step_s": None})
            kept = ("steps", "step_s", "attempt", "predicted_s", "nodes")
            row.update({name: event[name] for name in kept if event.get(name) is not None})
            self._again = kind == "waits" and row["status"].startswith("waits")
            row["status"] = f"waits: {event['why']}" if kind == "waits" else SHOWN.get(kind, event.get("status", row["status"]))
        if kind == "known":
            self._known += 1
        if kind == "withdrawn":
            self._rows.pop(event["label"], None)
        if kind == "planned":
            self.total = event["trials"]
        if kind == "ended":
            self._spent_s += event["device_s"]
            if event["status"] == "ok" and event["step_s"] and (self._best is None or event["step_s"] < self._best[1]):
                self._best = event["label"], event["step_s"]
        if kind == "best":
            self._best = event["label"], event["step_s"]

    def view(self) -> Group:
        """What is on the screen."""
        done = self._done
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        where = any(row.get("nodes") for row in self._rows.values())
        for name in ("layout", "status", *(["where"] if where else []), "steps", "predicted", "step"):
            table.add_column(name, justify="right" if name in ("steps", "predicted", "step") else "left")
        for row in list(self._rows.values())[-LINES:]:
            step, predicted = (seconds(row[name]) if row.get(name) else "" for name in ("step_s", "predicted_s"))
            nodes = [_nodes(row.get("nodes") or ())] if where else []
            table.add_row(terse(row["label"]), row["status"], *nodes, str(row["steps"] or ""), predicted, step)
        passed = time.monotonic() - self._began
        ran = done - self._known
        minutes = passed / ran * (self.total - done) / 60 if self.total and ran and done < self.total else None
        left = "" if minutes is None else f"   about {minutes:.0f} minutes left"
        return Group(Text(self._head(done) + left, style="bold"), table)

    @property
    def _done(self) -> int:
        """Trials that have ended, those of earlier calls too."""
        return sum(not row["status"].startswith(("starting", "waits", "running", "again")) and bool(row["status"])
                   for row in self._rows.values())

    def _head(self, done: int) -> str:
        best = "" if self._best is None else f"   best {terse(self._best[0])} {seconds(self._best[1])}"
        trials = f"{done} of {self.total} trials" if self.total else plural(done, "trial")
        return f"{trials}   {about(self._spent_s / 3600)} device-hours{best}"

    def _say(self, kind: str, event: Mapping[str, Any]) -> None:
        """What happened, on a line of its own with its time; nothing of steps, which are many."""
        label = terse(event.get("label", ""))
        row = self._rows.get(event.get("label", ""), {})
        match kind:
            case "priced":
                said = str(event["said"])
            case "waits" if not self._again:  # reasons of a scheduler come and go
                said = f"{label} waits: {event['why']}"
            case "runs":
                said = f"{label} runs" + (f" on {_nodes(event['nodes'])}" if event["nodes"] else "")
            case "adopted":
                said = f"{label} was started by an earlier call, and is watched"
            case "ended":
                said = f"{_ended(label, event, row.get('predicted_s'))}   [{self._head(self._done)}]"
            case "retry":
                said = f"{label} is tried again"
            case "refused":
                said = f"{label} is not run: {event['evidence']}"
            case "node":
                said = f"node {event['node']}: {event['evidence']}"
            case "withdrawn":
                said = f"{label} is taken back"
            case _:
                return
        at = time.strftime("%H:%M:%S ", time.localtime(event.get("at"))) if self.lines else ""
        self.console.print(Text(visible(f"{at}{said}")), soft_wrap=True)


def _ended(label: str, event: Mapping[str, Any], predicted_s: float | None) -> str:
    """How a trial ended, in a line."""
    predicted = f" ({seconds(predicted_s)} predicted)" if predicted_s else ""
    if event["status"] == "ok" and event["step_s"]:
        return f"{label}: {seconds(event['step_s'])} a step{predicted}"
    return f"{label}: {event['status']}" + (f": {event['evidence']}" if event.get("evidence") else "")


def _nodes(names: Sequence[str]) -> str:
    """Nodes in short.

    >>> _nodes(["a", "b"]), _nodes(["a", "b", "c", "d"])
    ('a, b', 'a and 3 others')
    """
    return ", ".join(names) if len(names) < FEW else f"{names[0]} and {len(names) - 1} others"


def screen(stream: IO[str], *, total: int | None = None) -> Screen:
    """A screen on a stream; lines where that is no terminal."""
    from meshwright.report.console import console

    watched = stream.isatty()
    return Screen(console=console(stream), shown=watched, lines=not watched, total=total)
