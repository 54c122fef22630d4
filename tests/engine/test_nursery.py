"""Ranks that are forked do what ranks of their own interpreters do, and end as they do."""

from __future__ import annotations

import os
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.engine.launch import Task, launch
from meshwright.engine.nursery import Nursery
from meshwright.errors import NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("torch")
OS, TORCH = "__import__('os')", "__import__('torch')"


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


def run(nursery: Nursery, code: str, **more: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return launch(Task(target="builtins:eval", payload=code), 2, start=nursery.start, **more)


def test_ranks_know_who_they_are_and_find_each_other(nursery: Nursery) -> None:
    code = f"(lambda d, o: (d.get_rank(), d.get_world_size(), o.environ['RANK'], o.getpid()))({TORCH}.distributed, {OS})"
    first, second = run(nursery, code), run(nursery, code)
    assert [each[:3] for each in first] == [(0, 2, "0"), (1, 2, "1")]
    assert len({each[3] for each in (*first, *second)}) == 4, "fresh ranks every time"


def test_a_rank_that_raises_or_dies_is_named(nursery: Nursery) -> None:
    with pytest.raises(NoAnswerError, match=r"rank [01]: error: ZeroDivisionError"):
        run(nursery, "1 / 0")
    with pytest.raises(NoAnswerError, match=r"rank 1: killed: killed by the system \(signal 9\)"):
        run(nursery, f"{OS}.environ['RANK'] == '1' and {OS}.kill({OS}.getpid(), 9)")
    assert run(nursery, "7") == [7, 7], "the nursery itself goes on"


def test_a_rank_that_hangs_is_ended(nursery: Nursery, tmp_path: Path) -> None:
    told = f"__import__('pathlib').Path({str(tmp_path / 'pid')!r} + {OS}.environ['RANK']).write_text(str({OS}.getpid()))"
    code = f"{told} and __import__('time').sleep(600)"
    with pytest.raises(NoAnswerError, match="not done within"):
        run(nursery, code, limit_s=3.0)
    for rank in "01":
        _gone(int((tmp_path / f"pid{rank}").read_text()))


def test_nobody_waits_for_ranks_whose_nursery_died_and_it_is_said() -> None:
    die = f"({OS}.environ['RANK'] == '0' and {OS}.kill({OS}.getppid(), 9))"
    with Nursery() as own:
        with pytest.raises(NoAnswerError, match="signal 9"):
            run(own, f"{die} or __import__('time').sleep(600)")
        assert own.process is not None
        with pytest.raises(NoAnswerError, match="the process that forks ranks has ended"):
            run(own, "1")
    _gone(own.process.pid)


def test_a_nursery_ends_with_its_orders(nursery: Nursery) -> None:
    """As where the program that began it is killed: its end of the pipe closes."""
    assert run(nursery, "1") == [1, 1]
    assert nursery.process is not None and nursery.process.stdin is not None
    nursery.process.stdin.close()
    assert nursery.process.wait(10.0) == 0


def _gone(pid: int) -> None:
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"{pid} still runs")
