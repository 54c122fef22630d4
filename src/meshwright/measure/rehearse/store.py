"""What has been run, one line of JSON each: appended and flushed to disk at once, so that nothing done is done again."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_BYTES = 64 * 2**20
BEGIN = b'{"machine": "'
"""How each line begins; a file of one unfinished line that does not is no store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of one layout: what was measured, or why there is nothing."""

    machine: str
    subject: str
    """Which model, batch and numbers were run, in short."""
    label: str
    ranks: int
    number: int
    """The round, from 0."""
    steps_s: tuple[float, ...] = ()
    """Measured steps; empty where it failed."""
    memory_peak_bytes: int = 0
    """The allocator's peak on the fullest rank; 0 where there is no such allocator."""
    cause: str = ""
    """Why it failed, in one line."""
    cause_id: str = ""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What makes it the same run as another."""
        return self.subject, self.label, self.ranks, self.number


class Store:
    """The trials of a file, and new ones behind them. Without a file they are kept in memory."""

    def __init__(self, path: Path | None, machine: str) -> None:
        """Read what is there.

        Errors:  InputError where the file cannot be read or written, is no store, or is another machine's.
        """
        self.path, self.machine = path, machine
        self.trials: list[Trial] = []
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab"):
                pass
            if path.stat().st_size > MAX_BYTES:
                raise fault("store.size", "is no store of trials: above {limit} bytes", path=str(path), limit=MAX_BYTES)
            content = path.read_bytes()
            whole, _, torn = content.rpartition(b"\n")
            lines = whole.splitlines()
            self.trials = [_trial(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
            if torn and not self.trials and not torn.startswith(BEGIN[: len(torn)]):
                raise fault("store.line", "is no run of this program: choose another --out, or remove the line",
                            path=f"{path}:{len(lines) + 1}")
            if torn:  # the line that was being written when the last run ended
                with path.open("r+b") as file:
                    file.truncate(len(content) - len(torn))
        except OSError as error:
            raise fault("store.file", "cannot be used: {reason}", path=str(path), reason=error.strerror or str(error)) from None
        others = {trial.machine for trial in self.trials} - {self.machine}
        if others:
            raise fault("store.machine", "holds runs of another machine ({other}); this one is {own}: choose another --out",
                        path=str(path), other=", ".join(sorted(others)), own=self.machine)

    def add(self, trial: Trial) -> None:
        """Keep a trial: on disk before this returns."""
        self.trials.append(trial)
        if self.path is None:
            return
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(asdict(trial)).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise fault(
                "store.file", "cannot be used: {reason}", path=str(self.path), reason=error.strerror or str(error)
            ) from None

    def done(self) -> dict[tuple[str, str, int, int], Trial]:
        """Trials that were measured; what failed may be tried again."""
        return {trial.key: trial for trial in self.trials if trial.steps_s}


def _trial(line: bytes, where: str) -> Trial:
    try:
        fields: Any = json.loads(line)
        steps = tuple(float(step) for step in fields.pop("steps_s"))
        texts = {name: fields.pop(name) for name in ("machine", "subject", "label", "cause", "cause_id")}
        numbers = {name: fields.pop(name) for name in ("ranks", "number", "memory_peak_bytes")}
        good = (
            not fields and _all(texts.values(), str) and _all(numbers.values(), int) and all(s > 0 and isfinite(s) for s in steps)
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        good = False
    if not good:
        raise fault("store.line", "is no run of this program: choose another --out, or remove the line", path=where)
    return Trial(**texts, **numbers, steps_s=steps)


def _all(values: Iterable[object], kind: type) -> bool:
    return all(isinstance(value, kind) for value in values)
