"""Runs trials one after another in an allocation, each under a keeper of its own: ``python pilot.py FOLDER``. The standard library
alone.

A trial is a file in ``inbox`` that names its folder. ``begun`` in that folder says that it runs, ``cancel`` that it is to end, and
its keeper's ``ended.json`` how it did. Where none has come for a while, or ``over`` stands in the pilot's folder, the inbox is
closed by renaming it: a trial is in it by then and is run, or whoever brings it finds no inbox and asks for another allocation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False  # ``typing`` takes as long as all else here
if TYPE_CHECKING:
    from typing import Any

IDLE_S, EVERY_S = 60.0, 0.05
"""How long an allocation is held without a trial: longer than a chooser thinks, and what is lost where Meshwright was killed."""
RANKS = "MESHWRIGHT_RANKS"
"""In the environment of a trial: the folder of ranks that wait for it."""
SPOILT = "spoilt"
FRESH_S = 1.0
"""How old its knowledge of folders may be that other hosts bring things to (``kept.fresh``)."""
SIGNALLED = (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
"""Exit statuses of what was ended by a signal, also as shells have them."""
END_S = 30.0
"""How long a keeper may take to end ranks, on a machine that is busy with others: what it has not ended stays if it is killed."""


class Company:
    """Ranks that stay between trials, under a keeper of their own: they end with whoever holds this, or when one of them fails."""

    def __init__(self, place: Path, keeper: Path) -> None:
        """``place``: a folder in which each set of them has its own; ``keeper``: the program that keeps them."""
        self.place, self.keeper = place, keeper
        self.folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._command: list[str] = []
        self._number = 0

    @property
    def alive(self) -> bool:
        """Whether there are some that may be given a trial."""
        if self.folder is None or self._process is None or self._process.poll() is not None:
            return False
        return not (self.folder / SPOILT).exists()

    def ready(self, command: list[str], environment: dict[str, str], pass_fds: tuple[int, ...] = ()) -> Path:
        """Ranks that were started by a command, started now where there are none -> their folder."""
        if self.alive and self._command == command and self.folder is not None:
            return self.folder
        self.end()
        self._number, self._command = self._number + 1, command
        self.folder = self.place / f"ranks-{os.getpid()}-{self._number}"
        (self.folder / "orders").mkdir(parents=True)
        asked = {"command": [*command, str(self.folder)], "environment": environment, "grace_s": 1.0}
        (self.folder / "keeper.json").write_text(json.dumps(asked), encoding="utf-8")
        with (self.folder / "keeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(self.keeper), str(self.folder)], stdin=subprocess.PIPE, stdout=log, stderr=log,
                cwd=self.folder, start_new_session=True, env={**os.environ, **environment}, pass_fds=pass_fds,
            )
        return self.folder

    def end(self) -> None:
        """End them, where there are any."""
        process, self._process, self.folder = self._process, None, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(OSError):
            process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Looked:
    """Folders that are looked into again and again."""

    def __init__(self) -> None:
        self._last = -FRESH_S

    def at(self, *folders: Path) -> None:
        """Have the next look see what is there by now, where the last such was too long ago: over NFS a host believes what it
        knows of a folder for up to a minute, unless it changes the folder's times."""
        if time.monotonic() - self._last >= FRESH_S:
            self._last = time.monotonic()
            for each in folders:
                with suppress(OSError):
                    os.utime(each)


def main(place: Path) -> int:
    """Take trials until none comes -> 0."""
    wanted: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: wanted.append(1))
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    inbox, company = place / "inbox", Company(place, place / "keeper.py")
    (place / "began").write_text(repr(time.time()), encoding="utf-8")
    last = time.monotonic()
    looked = Looked()
    try:
        while True:
            looked.at(inbox, place)
            for order in _orders(inbox):
                taken = order.with_suffix(".taken")
                try:
                    order.rename(taken)
                except FileNotFoundError:  # an allocation that was idle has taken it over
                    continue
                if _run(taken, place, company, wanted):
                    wanted.append(1)
                last = time.monotonic()
            if wanted or (place / "over").exists() or time.monotonic() - last > IDLE_S:
                inbox = _closed(inbox)
                Looked().at(inbox)
                if wanted or not _orders(inbox):
                    return 0
            time.sleep(EVERY_S)
    finally:
        company.end()


def _orders(inbox: Path) -> list[Path]:
    return sorted(each for each in inbox.iterdir() if not each.suffix)


def _closed(inbox: Path) -> Path:
    """The inbox under a name that nobody brings trials to."""
    if inbox.suffix:
        return inbox
    return inbox.rename(inbox.with_suffix(".closed"))


def _run(order: Path, place: Path, company: Company, wanted: list[int]) -> bool:
    """One trial to its end, with all that it has started -> whether a signal that nobody here has sent ended it: so does what ends
    an allocation, and whoever looks waits for Slurm's word of it.
    """
    folder = Path(order.read_text(encoding="utf-8"))
    asked: dict[str, Any] = json.loads((folder / "keeper.json").read_text(encoding="utf-8"))
    environment: dict[str, str] = asked["environment"]
    ranks = asked.get("ranks")
    if ranks:
        waiting = company.ready(ranks, {"MESHWRIGHT_TRIAL": place.name})
        environment[RANKS] = str(waiting)
        (folder / "keeper.json").write_text(json.dumps(asked), encoding="utf-8")
    (folder / "begun").touch()
    with (place / "keeper.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(place / "keeper.py"), str(folder)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            cwd=folder, start_new_session=True, env={**os.environ, **environment},
        )
        told, looked = False, Looked()
        while process.poll() is None:
            looked.at(folder)
            if not told and (wanted or (folder / "cancel").exists()):
                process.terminate()
                told = True
            time.sleep(EVERY_S)
        if process.returncode or not company.alive:
            company.end()  # ranks of a trial that failed are not given another
        if not (folder / "ended.json").exists():  # the keeper was killed: nothing goes on without it
            mark = environment["MESHWRIGHT_TRIAL"]
            words = [sys.executable, "-I", "-S", str(place / "keeper.py"), "--end", mark]
            subprocess.run(words, check=False, stdout=log, stderr=log)
            (folder / "unkept").touch()
    order.unlink()
    return not told and _signalled(folder)


def _signalled(folder: Path) -> bool:
    with suppress(OSError, ValueError):
        ended = json.loads((folder / "ended.json").read_text(encoding="utf-8"))
        return ended["cause"] == "cancelled" or ended["exit_status"] in SIGNALLED
    return False


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
