"""How a command line begins and ends, whatever is closed, full or sent: streams, signals, and lines on standard error.

Imports next to nothing, because it must stand before anything heavy is imported.
"""

from __future__ import annotations

import _thread
import io
import os
import signal
import sys
import time

TYPE_CHECKING = False  # what importing ``typing`` for it would cost is spent before an interrupt is heard
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType
    from typing import Any, TextIO

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a scheduler's request, a terminal that was closed."""
GRACE_S = 10.0
"""From a signal to the end at the latest, should something swallow the exception or not let go; children watch for that end."""
SAME_S = 0.1
"""``timeout`` signals a process and then its group: twice within so short a time is once."""
INTERRUPTED, OUTPUT = "interrupted", "standard output"
MAX_LINE, MAX_LINES = 2000, 100


class Interrupted(KeyboardInterrupt):
    """Ctrl-C. A class of its own: where the plain one passes through text that is executed, as of a data class, Python takes note,
    and ends by the signal whatever status it is given.
    """


class Signals:
    """Inside, signals that end a program are exceptions: the first unwinds what is open, a second one ends at once.

    Ctrl-C is a ``KeyboardInterrupt``, any other a ``SystemExit``: nothing that forgives errors forgives it. Where Python itself
    drops an exception, as in the callbacks of weak references that every import has, it is raised again.
    Signals that were ignored when the program began, as under ``nohup``, stay so; other threads than the main one have none.
    """

    def __init__(self, *, for_good: bool) -> None:
        """``for_good``: the process ends behind it; a signal that comes so late ends it at once, without a word."""
        self.number, self._over, self._since_s = 0, False, 0.0
        self._for_good = for_good
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        try:
            for number in ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._ended)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        except ValueError:  # not the main thread
            self._before = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        if sys.unraisablehook == self._dropped:
            sys.unraisablehook = self._hook
        for number, before in self._before.items():
            signal.signal(number, _leave if self._for_good else before)

    @property
    def status(self) -> int:
        """128 and the number, as shells have it: 130 of Ctrl-C, 143 of SIGTERM."""
        return 128 + (self.number or signal.SIGINT)

    @property
    def line(self) -> str:
        """What is said of the end."""
        return INTERRUPTED if self.status == 128 + signal.SIGINT else f"ended by {signal.Signals(self.number).name}"

    def _ended(self, number: int, _: FrameType | None) -> None:
        if self.number:
            if time.monotonic() - self._since_s < SAME_S:
                return
            self._at_once()
        self.number, self._since_s = int(number), time.monotonic()
        _thread.start_new_thread(self._latest, ())
        raise Interrupted if number == signal.SIGINT else SystemExit(self.status)

    def _dropped(self, unraisable: sys.UnraisableHookArgs) -> None:
        if self.number and isinstance(unraisable.exc_value, (KeyboardInterrupt, SystemExit)):
            number, self.number = self.number, 0
            _thread.start_new_thread(self._again, (number,))
        else:
            self._hook(unraisable)

    def _again(self, number: int) -> None:
        time.sleep(0.01)
        os.kill(os.getpid(), number)

    def _latest(self) -> None:
        time.sleep(GRACE_S)
        if not self._over or self._for_good:
            self._at_once()

    def _at_once(self) -> None:
        """End without unwinding; processes that this one has started go first."""
        try:
            _end_children()
        finally:
            self._gone()

    def _gone(self) -> None:
        try:
            os.write(2, f"error: {self.line}\n".encode())
        finally:
            os._exit(self.status)


def _end_children() -> None:
    started = sys.modules.get("multiprocessing")
    for each in [] if started is None else started.active_children():
        each.kill()


def _leave(number: int, _: FrameType | None) -> None:
    leave(128 + number)


def leave(status: int) -> None:
    """End this process now, whatever its threads still compute; what it has said is out."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):
            continue
    os._exit(status)


class Output(io.TextIOWrapper):
    """Standard output whose errors carry its name, so that they are known from those of other files."""

    def write(self, text: str) -> int:
        """The number of characters; characters that the encoding lacks become question marks."""
        try:
            return super().write(text)
        except OSError as error:
            error.filename = OUTPUT
            raise

    def flush(self) -> None:
        """Everything written has left this process."""
        try:
            super().flush()
        except OSError as error:
            error.filename = OUTPUT
            raise


def open_streams() -> bool:
    """Make the three standard streams safe to use; False where standard output was closed.

    What is closed becomes /dev/null, so that no file that is opened later takes its number.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        return False
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding, at_once, by_line = sys.stdout.encoding, sys.stdout.write_through, sys.stdout.line_buffering
        sys.stdout = Output(
            sys.stdout.detach(), encoding=encoding, errors="replace", write_through=at_once, line_buffering=by_line
        )
    return True


def let_go(stream: TextIO) -> None:
    """What is left for a stream that cannot be written goes nowhere: else the interpreter changes the status at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        stream.flush()
    except (OSError, ValueError, AttributeError):
        return


def complain(faults: Iterable[object], status: int) -> int:
    """One line per fault on standard error; the status is handed through, also where nothing can be written."""
    from meshwright.text import visible

    try:
        for number, each in enumerate(faults):
            if number == MAX_LINES:
                print("error: and more", file=sys.stderr)
                break
            line = visible(str(each))
            print(f"error: {line if len(line) <= MAX_LINE else line[:MAX_LINE] + ' ...'}", file=sys.stderr)
        sys.stderr.flush()
    except (OSError, ValueError):
        let_go(sys.stderr)
    return status
