"""How a command ends: streams that are closed or full, signals at any moment."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from child import CLOSED, Child, Ended, command

from meshwright.cli import app, ending
from meshwright.errors import fault
from meshwright.evidence.fit.processes import held_signals, processes, submit

if TYPE_CHECKING:
    from collections.abc import Callable

FULL = "/dev/full"
pytestmark = pytest.mark.skipif(not Path(FULL).exists(), reason="needs /dev/full")

WRONG = ("plan", "--nodes", "x")
MODELS = ("catalog", "models", "--json")


@pytest.mark.parametrize(
    ("arguments", "streams", "status", "line"),
    [
        (("--version",), {1: CLOSED}, 2, "error: standard output is closed\n"),
        (WRONG, {1: CLOSED}, 2, "error: standard output is closed\n"),
        (("--version",), {1: FULL}, 2, "error: standard output cannot be written: No space left on device\n"),
        (MODELS, {1: FULL}, 2, "error: standard output cannot be written: No space left on device\n"),
        (("plan", "--help"), {1: FULL}, 2, "error: standard output cannot be written: No space left on device\n"),
        (("catalog", "devices"), {1: FULL, 2: FULL}, 2, ""),
        (WRONG, {2: FULL}, 2, ""),
        (WRONG, {2: CLOSED}, 2, ""),
        (WRONG, {0: CLOSED, 1: CLOSED, 2: CLOSED}, 2, ""),
        (("--version",), {0: CLOSED}, 0, ""),
        (("--version",), {2: CLOSED}, 0, ""),
        (("fix", "--oom", "-", "x.sh", "--from", "megatron"), {0: CLOSED}, 2, None),
    ],
)
def test_a_stream_that_is_closed_or_full_is_a_line_and_its_status(arguments, streams, status, line):
    found = Child(command(*arguments), streams=streams).ended()
    assert found.status == status
    assert "Traceback" not in found.err
    assert "please report" not in found.err
    assert line is None or found.err == line


def test_no_file_takes_the_number_of_a_stream_that_was_closed():
    def body() -> int:
        ending.open_streams()
        return os.open(os.devnull, os.O_RDONLY)

    assert Child(body, streams={0: CLOSED, 1: CLOSED, 2: CLOSED}).ended().status > 2


def test_what_an_encoding_lacks_is_replaced_and_nothing_fails():
    def run(_: object) -> int:
        print("120 \u2264 130 \u2588 \ud800")
        return 0

    def body() -> int:
        app.run = run  # type: ignore[assignment]
        return command("-")()

    found = Child(body, encoding="ascii").ended()
    assert (found.status, found.out, found.err) == (0, "120 ? 130 ? ?\n", "")


def waiting(run: Callable[[], None]) -> Callable[[], int]:
    """A command whose verb says that it is ready, and then waits in some way; ``untidy`` says so itself."""

    def verb(_: object) -> int:
        if not getattr(run, "says_so", False):
            os.write(1, b".")
        run()
        return 0

    def body() -> int:
        app.run = verb  # type: ignore[assignment]
        return command("-")()

    return body


def forgiving() -> None:
    """Nothing gets out of here."""
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(30)


class Slow:
    """Python drops what is raised while it is taken away."""

    def __del__(self) -> None:
        time.sleep(0.3)


def dropping() -> None:
    """The signal comes while an exception cannot be raised."""
    Slow()
    time.sleep(30)


def untidy() -> None:
    """Cleaning up takes for ever: a second signal ends it."""
    try:
        os.write(1, b".")
        time.sleep(30)
    finally:
        os.write(1, b".")
        time.sleep(30)


untidy.says_so = True  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("number", "status", "line"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGHUP, 129, "ended by SIGHUP")],
)
@pytest.mark.parametrize("run", [lambda: time.sleep(30), dropping, forgiving], ids=["waiting", "dropping", "forgiving"])
def test_a_signal_is_one_line_and_its_status(monkeypatch, number, status, line, run):
    monkeypatch.setattr(ending, "GRACE_S", 0.2 if run is forgiving else 30.0)
    child = Child(waiting(run))
    child.send(number)
    found = child.ended()
    assert (found.status, found.err) == (status, f"error: {line}\n")


def test_a_second_signal_ends_at_once():
    child = Child(waiting(untidy))
    child.send(signal.SIGTERM)
    time.sleep(ending.SAME_S)
    child.send(signal.SIGINT)
    assert child.ended() == Ended(143, "", "error: ended by SIGTERM\n")


def test_what_is_signalled_twice_at_once_cleans_up():
    """``timeout`` signals its command, and then the group in which it is."""
    def verb() -> None:
        try:
            time.sleep(30)
        finally:
            time.sleep(0.05)
            os.write(1, b"cleaned")

    child = Child(waiting(verb))
    child.send(signal.SIGTERM)
    os.kill(child.pid, signal.SIGTERM)
    assert child.ended() == Ended(143, "cleaned", "error: ended by SIGTERM\n")


def test_a_second_signal_ends_the_processes_too(tmp_path):
    def verb() -> None:
        started = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
        started.start()
        (tmp_path / "pid").write_text(str(started.pid))
        untidy()

    verb.says_so = True  # type: ignore[attr-defined]
    child = Child(waiting(verb))
    child.send(signal.SIGTERM)
    time.sleep(ending.SAME_S)
    child.send(signal.SIGTERM)
    assert child.ended().status == 143
    pid, until = int((tmp_path / "pid").read_text()), time.monotonic() + 10.0  # which is less than it sleeps
    while time.monotonic() < until and _alive(pid):
        time.sleep(0.01)
    assert not _alive(pid)


def test_a_signal_that_was_ignored_stays_ignored():
    def body() -> int:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return waiting(lambda: time.sleep(0.1))()

    child = Child(body)
    child.send(signal.SIGHUP)
    assert child.ended().status == 0


def test_a_command_in_this_process_leaves_its_handlers_as_they_were(cli):
    before = [signal.getsignal(number) for number in ending.ENDING], sys.unraisablehook
    assert cli("--version").status == 0
    assert ([signal.getsignal(number) for number in ending.ENDING], sys.unraisablehook) == before


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(36, "File name too long", "a" * 3000), "File name too long"),
        (PermissionError(13, "Permission denied", "x"), "error: x: the system says: Permission denied"),
        (RuntimeError("Symlink loop from 'l'"), "error: l: a link leads back to itself"),
        (MemoryError(), "error: more memory is needed than there is"),
        (MemoryError("Unable to allocate 7 TiB"), "error: more memory is needed than there is: Unable to allocate 7 TiB"),
        (RecursionError("maximum recursion depth exceeded"), "error: something in the input is nested too deeply"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), "characters that cannot be written"),
    ],
)
def test_what_the_machine_or_the_input_is_to_blame_for_is_no_bug(cli, monkeypatch, error, line):
    def fail(_: object) -> int:
        raise error

    monkeypatch.delenv("MESHWRIGHT_DEBUG", raising=False)
    monkeypatch.setattr(app, "run", fail)
    answer = cli("plan")
    assert (answer.status, len(answer.lines)) == (2, 1)
    assert line in answer.err
    assert len(answer.err) < 2500


def test_faults_without_end_are_cut(cli, monkeypatch):
    def fail(_: object) -> int:
        raise fault("x", "{word}", word="w " * 10_000)

    monkeypatch.setattr(app, "run", fail)
    assert len(cli("plan").err) < 2 * ending.MAX_LINE


def test_held_signals_are_heard_behind_and_none_is_lost():
    heard = []
    with pytest.raises(KeyboardInterrupt), held_signals():
        signal.raise_signal(signal.SIGINT)
        heard.append("inside")
    assert heard == ["inside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent_however_that_ends(number):
    def run() -> None:
        with processes(2) as pool:
            napping = [submit(pool, time.sleep, 60.0) for _ in range(2)]
            while not all(each.running() for each in napping):
                time.sleep(0.01)
            os.write(2, f"{' '.join(str(each.pid) for each in pool._processes.values())}\n".encode())
            time.sleep(1.0)  # they are past their imports, and watch
            os.write(1, b".")
            time.sleep(60)

    child = Child(waiting(run))
    child.send(0)  # the verb has begun, now its workers
    child.send(number)
    workers = [int(word) for word in child.ended().err.split("\n")[0].split()]
    until = time.monotonic() + 2.0
    while time.monotonic() < until and any(map(_alive, workers)):
        time.sleep(0.02)
    assert len(workers) == 2
    assert not any(map(_alive, workers))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
