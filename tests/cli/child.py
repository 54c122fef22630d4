"""A fork that is a command line of its own: a whole process at the price of none, for all imports are done."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.cli import ending, main

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSED = "closed"


@dataclass(frozen=True)
class Ended:
    """How a child ended, and what it said."""

    status: int
    out: str
    err: str


class Child:
    """A fork of this process that is a command line of its own."""

    def __init__(self, body: Callable[[], int], *, streams: dict[int, str] | None = None, encoding: str = "utf-8") -> None:
        pipes = {1: os.pipe(), 2: os.pipe()}
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # later Pythons warn of forks beside threads
            self.pid = os.fork()
        if not self.pid:
            self._be(body, streams or {}, pipes, encoding)
        for _, write in pipes.values():
            os.close(write)
        self._read = {number: read for number, (read, _) in pipes.items()}

    @staticmethod
    def _be(body: Callable[[], int], streams: dict[int, str], pipes: dict[int, tuple[int, int]], encoding: str) -> None:
        status = 99
        try:
            for number, (_, write) in pipes.items():
                os.dup2(write, number)
            for number, how in streams.items():
                if how == CLOSED:
                    os.close(number)
                else:
                    os.dup2(os.open(how, os.O_RDWR), number)

            def stream(number: int, mode: str) -> io.TextIOWrapper | None:
                return None if streams.get(number) == CLOSED else open(number, mode, encoding=encoding, closefd=False)

            sys.stdin, sys.stdout, sys.stderr = stream(0, "r"), stream(1, "w"), stream(2, "w")  # type: ignore[assignment]
            for number in ending.ENDING:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            status = body()
        except SystemExit as error:
            status = int(error.code or 0)
        except BaseException:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                traceback.print_exc()
        finally:
            os._exit(status)

    def send(self, number: int) -> None:
        """Send a signal once the child has said that it is ready, or at once where it says nothing."""
        assert os.read(self._read[1], 1) == b"."
        time.sleep(0.02)
        os.kill(self.pid, number)

    def ended(self) -> Ended:
        """Wait for the end."""
        said = {}
        for number, read in self._read.items():
            with os.fdopen(read, encoding="utf-8", errors="replace") as stream:
                said[number] = stream.read()
        _, status = os.waitpid(self.pid, 0)
        return Ended(os.waitstatus_to_exitcode(status), said[1], said[2])


def command(*arguments: str) -> Callable[[], int]:
    """A whole command line, as the entry point runs it."""

    def run() -> int:
        sys.argv = ["meshwright", *arguments]
        return main()

    return run
