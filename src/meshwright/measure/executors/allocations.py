"""Allocations of Slurm that are held between trials: handed to a pilot inside, which runs one after another (``pilot.py``)."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.measure.executors import hand, keeper, pilot
from meshwright.measure.executors.kept import kept_ending, worded
from meshwright.measure.executors.slurm_scripts import (
    LASTS,
    SCRIPT,
    Kind,
    allocation_of,
    command_of,
    environment_of,
    minutes_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from meshwright.measure.executors.base import Handle, State
    from meshwright.measure.trial import Trial

HANDED, BEGUN, CANCEL = "handed.json", "begun", "cancel"


@dataclass(kw_only=True)
class Allocation:
    """One of them."""

    folder: Path
    job: Handle
    kind: Kind
    minutes: int
    avoid: tuple[str, ...] = ()
    """Nodes that it was asked for without."""
    trial: Path | None = None
    """Folder of the trial that it was handed last."""
    order: Path | None = None
    """Where that trial was put into its inbox; None where it had left that before somebody looked."""
    needs_s: float = 0.0
    """How long that trial may take."""
    nodes: tuple[str, ...] = ()

    @property
    def busy(self) -> bool:
        """Whether that trial has not ended."""
        return self.trial is not None and not worded(self.trial)

    @property
    def runs(self) -> bool:
        """Whether it has left the queue."""
        return (self.folder / "began").exists()

    def takes(self, trial: Trial, avoid: Collection[str]) -> bool:
        """Whether a trial may be handed to it: of its kind, with time enough, on none of some nodes."""
        return self.kind == Kind.of(trial) and self._takes(_lasts_s(trial), avoid)

    def _takes(self, needed_s: float, avoid: Collection[str]) -> bool:
        elsewhere = not set(self.nodes) & set(avoid) if self.nodes else set(avoid) <= set(self.avoid)
        return (
            not self.busy and elsewhere and (self.folder / "inbox").is_dir() and not (self.folder / "over").exists()
            and not (self.trial is not None and signalled(self.trial)) and self._left_s() > needed_s
        )

    def takes_over(self, other: Allocation) -> bool:
        """Take the trial that waits in the queue with another allocation -> whether it could be had.

        Holds:   it is moved in one step: its pilot has begun it by then and keeps it, or never sees it.
        """
        if other.order is None or other.trial is None or self.kind != other.kind or not self._takes(other.needs_s, other.avoid):
            return False
        order = self.folder / "inbox" / f"{time.time_ns():020d}"
        try:
            other.order.rename(order)
        except FileNotFoundError:  # it has begun, or this one is closed
            return False
        _note(other.trial, self)
        self.trial, self.order, self.needs_s = other.trial, order, other.needs_s
        other.trial = other.order = None
        return True

    def _left_s(self) -> float:
        with suppress(OSError, ValueError):
            return float((self.folder / "began").read_text()) + 60.0 * self.minutes - time.time()
        return 60.0 * self.minutes

    def hand(self, folder: Path, needs_s: float) -> bool:
        """Put a trial into its inbox -> whether it is still open."""
        number = f"{time.time_ns():020d}"
        new = self.folder / "inbox" / f"{number}.new"
        try:
            new.write_text(str(folder), encoding="utf-8")
            new.rename(new.with_suffix(""))
        except FileNotFoundError:
            return False
        self.trial, self.order, self.needs_s = folder, new.with_suffix(""), needs_s
        return True


class Allocations:
    """Those of one executor."""

    def __init__(self, submit: Callable[[Path, str], Handle], cancel: Callable[[Handle], object]) -> None:
        """``submit``: hands the script of a folder to Slurm; ``cancel``: takes a job back."""
        self._submit, self._cancel = submit, cancel
        self._held: list[Allocation] = []
        self._moved: dict[Path, Handle] = {}

    def run(self, trial: Trial, folder: Path, mark: str, avoid: Sequence[str]) -> Handle:
        """Hand a trial to an allocation that is idle, or to a new one."""
        _prepare(trial, folder, mark)
        for each in sorted(self._held, key=lambda each: not each.runs):
            if each.takes(trial, avoid):
                _note(folder, each)
                if each.hand(folder, _lasts_s(trial)):
                    return handle_of(each.job, folder)
        return handle_of(self._new(trial, folder, avoid).job, folder)

    def _new(self, trial: Trial, folder: Path, avoid: Sequence[str]) -> Allocation:
        token = f"allocation-{os.urandom(6).hex()}"
        place = folder.parent / token
        (place / "inbox").mkdir(parents=True)
        for program in (pilot.__file__, keeper.__file__):
            shutil.copy(program, place)
        minutes = LASTS * minutes_of([trial])
        (place / SCRIPT).write_text(allocation_of(Kind.of(trial), token, minutes, avoid), encoding="utf-8")
        found = Allocation(folder=place, job="", kind=Kind.of(trial), minutes=minutes, avoid=tuple(avoid))
        _note(folder, found)
        found.hand(folder, _lasts_s(trial))
        found.job = self._submit(place, token)
        (place / "allocation.json").write_text(json.dumps({"job": found.job, "kind": found.kind, "minutes": minutes}), "utf-8")
        self._held.append(found)
        return found

    def find(self, folder: Path) -> Handle | None:
        """A trial that another Meshwright has handed over and whose allocation is known: its handle, and the allocation is held."""
        try:
            place = folder.parent / json.loads((folder / HANDED).read_bytes())["allocation"]
            known = json.loads((place / "allocation.json").read_bytes())
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if all(each.folder != place for each in self._held):
            kind, minutes = Kind(*known["kind"]), known["minutes"]
            self._held.append(Allocation(folder=place, job=known["job"], kind=kind, minutes=minutes, trial=folder,
                                         order=_order_of(folder, place), needs_s=60.0 * minutes / LASTS))
        return handle_of(known["job"], folder)

    def job_of(self, folder: Path, job: Handle) -> Handle:
        """The job that a trial is in by now, where it was handed to another."""
        return self._moved.get(folder, job)

    def look(self, state_of: Callable[[Handle], State]) -> None:
        """Where allocations are: those that are no more are forgotten, and what waits for one goes to one that is idle."""
        for each in tuple(self._held):
            state = state_of(each.job)
            if state.phase == "ended":
                self._held.remove(each)
            each.nodes = state.nodes or each.nodes
        waiting = [each for each in self._held if each.order is not None and not each.runs]
        for idle in (each for each in self._held if each.runs):
            for other in waiting:
                if other.trial is not None and idle.takes_over(other):
                    assert idle.trial is not None, "it has just been moved"
                    self._moved[idle.trial] = idle.job

    def let_go(self) -> None:
        """Nothing more comes: each is given back when its trial has ended, and taken out of the queue where it has none."""
        for each in self._held:
            with suppress(OSError):
                (each.folder / "over").touch()
            if not each.runs and not each.busy:
                self._cancel(each.job)
        self._held.clear()


def _order_of(folder: Path, place: Path) -> Path | None:
    """Where a trial lies in the inbox of an allocation, as long as it does."""
    with suppress(OSError):
        return next((each for each in (place / "inbox").iterdir() if not each.suffix and each.read_text() == str(folder)), None)
    return None


def handle_of(job: Handle, folder: Path) -> Handle:
    """A trial of an allocation as a store keeps it."""
    return json.dumps({"job": job, "folder": str(folder)})


def signalled(folder: Path) -> bool:
    """Whether a trial may have ended with the job that it ran in: it was signalled, and nobody here wanted that."""
    kept = kept_ending(folder)
    found = kept is not None and (kept.cause == "cancelled" or kept.exit_status in pilot.SIGNALLED)
    return found and not (folder / CANCEL).exists()


def _lasts_s(trial: Trial) -> float:
    return trial.limits.total_s + trial.limits.grace_s


def _note(folder: Path, allocation: Allocation) -> None:
    """Which allocation a trial is handed to, before it is."""
    (folder / HANDED).write_text(json.dumps({"allocation": allocation.folder.name}), encoding="utf-8")


def _prepare(trial: Trial, folder: Path, mark: str) -> None:
    """What its keeper reads."""
    asked = {"command": list(command_of(trial)), "environment": dict(environment_of(trial, mark)), "grace_s": trial.limits.grace_s,
             "alone": True}
    if trial.resident is not None:
        asked |= {"command": handed_over(trial, folder), "ranks": trial.resident.command}
    (folder / "keeper.json").write_text(json.dumps(asked), encoding="utf-8")


def handed_over(trial: Trial, folder: Path) -> list[str]:
    """The command by which a trial is given to ranks that wait; what they read is written into its folder."""
    assert trial.resident is not None, "its program has ranks that stay"
    shutil.copy(hand.__file__, folder)
    (folder / "task").write_bytes(trial.resident.task)
    return [sys.executable, "-I", "-S", str(folder / "hand.py"), *command_of(trial)]
