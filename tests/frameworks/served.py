"""A process that answers lines with lines, one for all workers of a test run: most of what an oracle costs is its start.

It reads one named pipe and writes another (``Served``). Whoever has the first of them open keeps it alive: it ends, as one with a
pipe of its own would, once every worker that asked has ended, however that came about.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO

from tests.shared import held

LEAN = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}  # frameworks decorate with torch.compile; nothing is compiled


class Served:
    """The process of a command, as one of those who ask it; the first who asks starts it."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.command = command
        self.place = folder / f"served-{sha256(repr(tuple(command)).encode()).hexdigest()[:16]}"
        self._owed = self.place / "owed"
        """There from question to answer; left there, somebody was killed, and the next answer is nobody's."""
        self.process: subprocess.Popen[bytes] | None = None
        """Where it was started here."""
        self.asks: IO[str] | None = None
        self.hears: IO[str] | None = None

    def answers(self, lines: Sequence[str]) -> list[str]:
        """One line for each; ``AssertionError`` with the end of its log where the process ended instead."""
        with held(self.place / "lock"):
            return [self._answer(line) for line in lines]

    def _answer(self, line: str) -> str:
        if self.asks and (self._owed.exists() or not self._same(self.asks)):
            self.let_go()
        joined = self.asks is None and self._join()
        if self.asks is None:
            self._start()
        answer = self._exchange(line)
        if not answer and joined:  # it was about to end: nobody was left to ask
            self._start()
            answer = self._exchange(line)
        assert answer, f"the oracle ended: {(self.place / 'log').read_text(errors='replace')[-3000:]}"
        return answer

    def _same(self, asks: IO[str]) -> bool:
        """Whether nobody has started another one since."""
        return os.fstat(asks.fileno()).st_ino == (self.place / "in").stat().st_ino

    def _exchange(self, line: str) -> str:
        """The answer, or nothing where there is none."""
        assert self.asks and self.hears
        self._owed.touch()
        try:
            self.asks.write(line + "\n")
            self.asks.flush()
            answer = self.hears.readline()
        except BrokenPipeError:
            answer = ""
        if not answer.endswith("\n"):
            return ""
        self._owed.unlink()
        return answer.rstrip("\n")

    def _join(self) -> bool:
        """Whether somebody's process is there, and no answer is owed."""
        if self._owed.exists():
            return False
        try:
            asks = os.open(self.place / "in", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in {errno.ENXIO, errno.ENOENT}:
                raise
            return False
        self._open(asks, os.open(self.place / "out", os.O_RDONLY | os.O_NONBLOCK))
        return True

    def _start(self) -> None:
        self.let_go()
        if self.process is not None:  # it died, or owes an answer; others may have it open still, and wait for the lock
            self.process.kill()
            self.ended()
        for name in ("in", "out", "log", "owed"):
            (self.place / name).unlink(missing_ok=True)
        for name in ("in", "out"):
            os.mkfifo(self.place / name)
        takes = os.open(self.place / "in", os.O_RDONLY | os.O_NONBLOCK)
        hears = os.open(self.place / "out", os.O_RDONLY | os.O_NONBLOCK)
        says = os.open(self.place / "out", os.O_WRONLY)
        self._open(os.open(self.place / "in", os.O_WRONLY), hears)
        os.set_blocking(takes, True)
        with (self.place / "log").open("wb") as log:
            self.process = subprocess.Popen(self.command, stdin=takes, stdout=says, stderr=log, env=os.environ | LEAN)
        os.close(takes)
        os.close(says)

    def _open(self, asks: int, hears: int) -> None:
        for descriptor in (asks, hears):
            os.set_blocking(descriptor, True)
        self.asks, self.hears = os.fdopen(asks, "w", encoding="utf-8"), os.fdopen(hears, encoding="utf-8")

    def let_go(self) -> None:
        """Asks no more."""
        for file in filter(None, (self.asks, self.hears)):
            with suppress(BrokenPipeError):  # what it did not read
                file.close()
        self.asks = self.hears = None

    def ended(self) -> None:
        """Waits for a process that was started here: it ends when nobody asks it any more."""
        if self.process is not None:
            self.process.wait()
            self.process = None


def end(several: Sequence[Served]) -> None:
    """Asks none of them any more. All are let go before one is waited for: others who end may wait for what is held here."""
    for each in several:
        each.let_go()
    for each in several:
        each.ended()
