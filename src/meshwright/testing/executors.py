"""The promises of an executor, each as a test over small programs of a shell.

    from meshwright.testing.executors import executor_promises

    @pytest.mark.parametrize("promise", executor_promises(Mine).values(), ids=executor_promises(Mine))
    def test_promise(promise, tmp_path):
        promise(tmp_path)
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from meshwright.measure.executors.base import Handed, TakesSeveral
from meshwright.measure.executors.processes import marked
from meshwright.measure.trial import OUTPUT, Limits, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from meshwright.measure.executors.base import Ended, Executor

    Make = Callable[[], Executor]

LIMITS = Limits(first_step_s=60.0, step_s=60.0, silence_s=60.0, total_s=60.0, grace_s=0.5)


def executor_promises(make: Make, *, wait_s: float = 60.0) -> dict[str, Callable[[Path], None]]:
    """Every promise as a function of an empty folder, by its name; ``wait_s``: how long a trial may take to be done."""
    return {promise.__name__: partial(promise, make, wait_s) for promise in PROMISES}


def its_output_and_its_status_come_home(make: Make, wait_s: float, folder: Path) -> None:
    """What a command prints stands in ``output.log``, and its exit status is told."""
    executor = make()
    _, ended = _run(executor, folder, ["sh", "-c", "echo to $HOME_OF_IT; echo and >&2; exit 7"], wait_s, {"HOME_OF_IT": "a b;'"})
    assert (folder / OUTPUT).read_text().split("\n") == ["to a b;'", "and", ""]
    assert (ended.exit_status, ended.cause) == (7, "")


def a_signal_is_told(make: Make, wait_s: float, folder: Path) -> None:
    """A command that was killed is known from one that ended."""
    _, ended = _run(make(), folder, ["sh", "-c", "kill -9 $$"], wait_s)
    assert ended.exit_status in (-9, 137)


def a_command_that_is_not_there_ends(make: Make, wait_s: float, folder: Path) -> None:
    """Nothing waits for a program that cannot be started."""
    _, ended = _run(make(), folder, ["no-such-program-of-anybodys"], wait_s)
    assert ended.exit_status not in (None, 0) or ended.cause


def cancelling_ends_everything(make: Make, wait_s: float, folder: Path) -> None:
    """Processes in sessions of their own and such that ignore being asked end with their trial."""
    executor = make()
    command = ["sh", "-c", "trap '' TERM; setsid sleep 1003 & (trap '' TERM; sleep 1003) & echo up; sleep 1003; sleep 1003"]
    handle, mark = _started(executor, folder, command)
    _until(lambda: (folder / OUTPUT).exists() and "up" in (folder / OUTPUT).read_text(), wait_s)
    assert executor.poll([handle])[handle].phase == "running"
    executor.cancel(handle, LIMITS.grace_s)
    _until(lambda: executor.poll([handle])[handle].phase == "ended", wait_s)
    assert executor.collect(handle, folder).cause == "cancelled"
    _until(lambda: not marked(mark), 5.0)


def what_is_left_behind_ends(make: Make, wait_s: float, folder: Path) -> None:
    """A command that ends leaves nothing running."""
    _, ended = _run(make(), folder, ["sh", "-c", "setsid sleep 1003 & sleep 0.2; exit 0"], wait_s)
    assert ended.exit_status == 0


def a_trial_that_ended_is_found_by_another(make: Make, wait_s: float, folder: Path) -> None:
    """An executor that knows nothing finds a trial by its mark, whether or not its handle was noted."""
    first = make()
    handle, mark = _started(first, folder, ["sh", "-c", "echo one; exit 3"])
    _until(lambda: first.poll([handle])[handle].phase == "ended", wait_s)
    for known in (handle, None):
        other = make()
        found = other.adopt(folder, mark, known)
        assert found is not None
        _until(lambda other=other, found=found: other.poll([found])[found].phase == "ended", wait_s)  # type: ignore[misc]
        assert other.collect(found, folder).exit_status == 3
    first.collect(handle, folder)


def a_trial_that_never_was_is_not_found(make: Make, wait_s: float, folder: Path) -> None:
    """A claim without a start is no trial."""
    assert make().adopt(folder, f"never-{os.urandom(4).hex()}", None) is None


def trials_are_described(make: Make, wait_s: float, folder: Path) -> None:
    """A dry run says the command, whatever stands in it."""
    executor = make()
    text = executor.describe(_trial(["echo", "a b", "$(id)"]))
    assert "'a b'" in text and "'$(id)'" in text and executor.at_once >= 1


def trials_handed_together_have_each_their_own_end(make: Make, wait_s: float, folder: Path) -> None:
    """Of trials that start together each has its output, its status and its end; another executor finds each by its mark."""
    executor = make()
    if not isinstance(executor, TakesSeveral):
        return
    handed = []
    for number, last in enumerate(("exit 0", "exit 5", "trap '' TERM; sleep 1003; sleep 1003")):
        place = folder / f"t{number}"
        place.mkdir()
        mark = f"promise-{os.urandom(6).hex()}"
        handed.append(Handed(_trial(["sh", "-c", f"echo {number}; {last}"]), place, mark))
    handles = executor.submit_all(handed)
    assert len(set(handles)) == len(handed)
    for place in (each.folder for each in handed):
        _until(lambda place=place: (place / OUTPUT).exists() and (place / OUTPUT).read_text(), wait_s)  # type: ignore[misc]
    executor.cancel(handles[2], LIMITS.grace_s)
    _until(lambda: all(each.phase == "ended" for each in executor.poll(handles).values()), wait_s)
    ends = [executor.collect(handle, each.folder) for handle, each in zip(handles, handed, strict=True)]
    assert [each.exit_status for each in ends[:2]] == [0, 5] and [each.cause for each in ends] == ["", "", "cancelled"]
    assert [(each.folder / OUTPUT).read_text() for each in handed] == ["0\n", "1\n", "2\n"]
    for handle, each in zip(handles[:2], handed, strict=False):
        other = make()
        assert other.adopt(each.folder, each.mark, None) in (handle, "0")
    _until(lambda: not any(marked(each.mark) for each in handed), 5.0)


PROMISES = (
    its_output_and_its_status_come_home, a_signal_is_told, a_command_that_is_not_there_ends, cancelling_ends_everything,
    what_is_left_behind_ends, trials_handed_together_have_each_their_own_end, a_trial_that_ended_is_found_by_another,
    a_trial_that_never_was_is_not_found, trials_are_described,
)


def _trial(command: Sequence[str], environment: dict[str, str] | None = None) -> Trial:
    return Trial(label="; echo hostile $(id)", command=tuple(command), environment=environment or {}, limits=LIMITS, spreads=False)


def _started(
    executor: Executor, folder: Path, command: Sequence[str], environment: dict[str, str] | None = None
) -> tuple[str, str]:
    mark = f"promise-{os.urandom(6).hex()}"
    return executor.submit(_trial(command, environment), folder, mark), mark


def _run(
    executor: Executor, folder: Path, command: Sequence[str], wait_s: float, environment: dict[str, str] | None = None
) -> tuple[str, Ended]:
    """A command to its end, and that nothing of it is left."""
    handle, mark = _started(executor, folder, command, environment)
    _until(lambda: executor.poll([handle])[handle].phase == "ended", wait_s)
    ended = executor.collect(handle, folder)
    _until(lambda: not marked(mark), 5.0)
    return handle, ended


def _until(holds: Callable[[], object], wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.02)
