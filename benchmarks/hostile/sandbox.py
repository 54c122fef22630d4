"""One command line in a forked child: its streams, limits and powers; what it printed, how it ended, what it took."""

from __future__ import annotations

import ctypes
import io
import os
import pty
import resource
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSCTTY
from typing import TYPE_CHECKING

from benchmarks.hostile.case import Stream, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GIB = 2**30
ADDRESS_BYTES, CPU_S, WALL_S = 8 * GIB, 25, 300.0
"""What ends a case that would not end: nothing that is held to the targets comes near."""
KEPT_BYTES = 2**22
LOST_POWERS = (0, 1, 2, 3, 5, 21)
"""Root's powers that a case does not have, so that rights mean something: chown, DAC override and read, fowner, kill, sys_admin."""
ENDED_CHILDREN_S = 2.0
WAITING_S, WORKED_S = 20.0, 0.1
"""A command that had less of the processor in so long a time waits for something that does not come."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one command line ended."""

    status: int
    """Exit status; of a signal that nobody caught 128 + its number, as a shell says it."""
    out: str
    err: str
    out_bytes: int
    err_bytes: int
    wall_s: float
    cpu_s: float
    rss_bytes: int
    stopped: bool = False
    """It was ended here, after ``WALL_S`` or ``CPU_S``."""
    left: int = 0
    """Processes of it that lived on for two seconds."""
    took_s: float = 0.0
    """From the signal to the end."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a child needs: where, with what, on which streams."""

    folder: Path
    arguments: Sequence[str]
    environment: dict[str, str]
    out: Stream = Stream.FILE
    err: Stream = Stream.FILE
    executable: tuple[str, ...] = ()
    """A real start of this program; else a fork that calls ``main``."""
    privileged: bool = False
    file_limit_bytes: int = GIB


class Child:
    """A started command line."""

    def __init__(self, start: Start, main: Callable[[list[str]], int]) -> None:
        self.readers: dict[int, int] = {}
        ends: list[int] = []
        terminal = pty.openpty() if Stream.TTY in (start.out, start.err) else None
        targets = []
        for number, stream in ((1, start.out), (2, start.err)):
            target, reader = _stream(stream, terminal)
            targets.append(target)
            ends += [target] if target is not None else []
            if reader is not None:
                self.readers[reader] = number
        sys.stdout.flush()
        sys.stderr.flush()
        self.begun = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            _become(start, main, targets, terminal)
        for end in {*ends, *((terminal[1],) if terminal else ())}:
            os.close(end)
        self.watch = os.pidfd_open(self.pid)
        self.texts = {1: bytearray(), 2: bytearray()}
        self.sizes = {1: 0, 2: 0}

    def send(self, number: int) -> None:
        """A signal to the command alone, as ``kill`` sends it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.watch, number)

    def wait(self, seconds: float) -> bool:
        """Read what it prints until it ends or the time is over; whether it has ended."""
        until = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([*self.readers, self.watch], [], [], max(until - time.monotonic(), 0.0))
            for end in ready:
                if end != self.watch:
                    self._read(end)
            if self.watch in ready:
                return True
            if not ready:
                return False

    def finish(self, *, stopped: bool = False, took_s: float = 0.0) -> Outcome:
        """What is left of its output, its status, what it took; children that it left are ended."""
        wall_s = time.monotonic() - self.begun
        _, status, usage = os.wait4(self.pid, 0)
        os.close(self.watch)
        left = _end_session(self.pid)
        while self.readers and (ready := select.select([*self.readers], [], [], 0.0)[0]):
            for end in ready:
                self._read(end)
        for end in self.readers:
            os.close(end)
        code = os.waitstatus_to_exitcode(status)
        stopped = stopped or code == -signal.SIGXCPU
        texts = [self.texts[number].decode("utf-8", "surrogateescape") for number in (1, 2)]
        return Outcome(code if code >= 0 else 128 - code, *texts, self.sizes[1], self.sizes[2], wall_s,
            usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024,
                       stopped, left, took_s)

    def _read(self, end: int) -> None:
        """The next piece of a stream; a stream that has ended is closed."""
        try:
            piece = os.read(end, 2**16)
        except OSError:  # a terminal whose other end is closed
            piece = b""
        if not piece:
            os.close(end)
            del self.readers[end]
            return
        number = self.readers[end]
        self.sizes[number] += len(piece)
        self.texts[number] += piece[: max(KEPT_BYTES - len(self.texts[number]), 0)]


def finished(child: Child, seconds: float = WALL_S) -> Outcome:
    """Wait for a command; one that waits for something, or takes too long, is interrupted, then killed."""
    until, worked_s = time.monotonic() + seconds, -1.0
    while (left := until - time.monotonic()) > 0:
        if child.wait(min(left, patience(WAITING_S))):
            return child.finish()
        now_s = _session_cpu_s(child.pid)
        if now_s - worked_s < WORKED_S:
            break
        worked_s = now_s
    child.send(signal.SIGINT)
    if not child.wait(5.0):
        child.send(signal.SIGKILL)
        child.wait(10.0)
    return child.finish(stopped=True)


def _stream(stream: Stream, terminal: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """The end that the child gets (None: closed) and the one that is read here."""
    match stream:
        case Stream.CLOSED:
            return None, None
        case Stream.FULL:
            return os.open("/dev/full", os.O_WRONLY), None
        case Stream.TTY:
            assert terminal is not None
            return terminal[1], terminal[0]
    reader, writer = os.pipe()
    if stream is Stream.GONE:
        os.close(reader)
        return writer, None
    return writer, reader


def _become(start: Start, main: Callable[[list[str]], int], targets: list[int | None], terminal: tuple[int, int] | None) -> None:
    """The child: never returns."""
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # a campaign in the background ignores some
            signal.signal(number, signal.SIG_DFL)
        if terminal:
            ioctl(terminal[1], TIOCSCTTY, 0)
        moved = [None if target is None else os.dup(target) for target in targets]
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for number, target in zip((1, 2), moved, strict=True):
            os.close(number) if target is None else os.dup2(target, number)
        os.closerange(3, 256)
        os.chdir(start.folder)
        _limit(start)
        if start.executable:
            words = [encoded(word) for word in start.arguments]
            os.execve(start.executable[0], [*map(os.fsencode, start.executable), *words], start.environment)
        os.environ.clear()
        os.environ.update(start.environment)
        status = _called(main, list(start.arguments), targets)
    except BaseException:  # only the sandbox's own faults come here
        traceback.print_exc()
    finally:
        os._exit(status)


def _called(main: Callable[[list[str]], int], arguments: list[str], targets: list[int | None]) -> int:
    """``main`` as the interpreter calls it: fresh streams, and a traceback where it raises."""
    for name, number, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        stream = None
        if targets[number - 1] is not None:
            raw = open(number, "wb", closefd=False)  # noqa: SIM115 - as long as the child
            stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=number == 2 or os.isatty(number))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["meshwright", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.argv = ["meshwright", *arguments]
        status = main()  # as a process calls it
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        if sys.stderr is not None:
            with suppress(OSError, ValueError):
                traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError) as error:
            status = 120 if stream is sys.stdout else status
            with suppress(OSError, ValueError, AttributeError):
                print(f"Exception ignored: {error}", file=sys.stderr, flush=True)
    return status


def _limit(start: Start) -> None:
    """Ends of memory, time and files; without the powers that make rights meaningless."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for which, soft, hard in (
        (resource.RLIMIT_AS, ADDRESS_BYTES, ADDRESS_BYTES), (resource.RLIMIT_CPU, CPU_S, CPU_S + 5), (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, start.file_limit_bytes, start.file_limit_bytes),
    ):
        resource.setrlimit(which, (soft, hard))
    if os.geteuid() != 0 or start.privileged:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for power in LOST_POWERS:
        libc.prctl(24, power, 0, 0, 0)  # PR_CAPBSET_DROP: not after an exec either
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    for power in LOST_POWERS:
        for half in range(3):
            data[half] &= ~(1 << power) & 0xFFFFFFFF
    libc.capset(header, data)


def _end_session(session: int) -> int:
    """Processes of a session that live on after two seconds; they are killed."""
    until = time.monotonic() + patience(ENDED_CHILDREN_S)
    while members := _members(session):
        if time.monotonic() > until:
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return len(members)
        time.sleep(0.05)
    return 0


def patience(seconds: float) -> float:
    """So long on an idle machine; longer where others work on it."""
    return seconds * max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)


def _session_cpu_s(session: int) -> float:
    """Seconds of the processor that a session has had."""
    return sum(int(fields[11]) + int(fields[12]) for fields in _members(session).values()) / os.sysconf("SC_CLK_TCK")


def _members(session: int) -> dict[int, list[str]]:
    """Processes of a session that are no zombies, each with its figures."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found[int(entry.name)] = fields
    return found
