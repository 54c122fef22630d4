"""One process serves all workers of a run, ends after the last of them, and owes nobody another's answer."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import pytest
from served import Served, end

SERVER = """
    import os, sys
    print("started", file=sys.stderr, flush=True)
    for line in sys.stdin:
        if "die" in line:
            sys.exit("it died")
        print(os.getpid(), line.strip()[::-1], flush=True)
"""


@pytest.fixture
def asker(tmp_path):
    """Makes one more of those who ask; all end with the test."""
    made = []

    def make(program=SERVER, folder=tmp_path):
        made.append(Served([sys.executable, "-S", "-c", textwrap.dedent(program)], folder))
        return made[-1]

    yield make
    ends = [threading.Thread(target=end, args=[[each]]) for each in made]  # as workers do, side by side
    for each in ends:
        each.start()
    for each in ends:
        each.join()


def said(asker, line):
    process, answer = asker.answers([line])[0].split(" ", 1)
    return int(process), answer


def gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_all_who_ask_have_one_process_and_their_own_answers(asker):
    first, second = asker(), asker()
    process, answer = said(first, "abc")
    assert answer == "cba"
    assert said(second, "xyz") == (process, "zyx")
    assert first.answers(["1 2", "3 4"]) == [f"{process} 2 1", f"{process} 4 3"]
    assert said(second, "é" * 100_000) == (process, "é" * 100_000)  # more than a pipe holds


def test_it_serves_who_is_left_and_ends_after_the_last(asker):
    first, second = asker(), asker()
    process, _ = said(first, "a")
    said(second, "b")
    ending = threading.Thread(target=end, args=[[first]])
    ending.start()
    assert said(second, "cd") == (process, "dc")
    end([second])
    ending.join()
    assert gone(process)
    assert said(second, "ef")[1] == "fe"  # another one


def test_workers_that_started_one_each_and_asked_both_wait_for_nobody(asker):
    other = SERVER + "    # another"
    workers = [(asker(), asker(other)), (asker(other), asker())]
    for first, _ in workers:  # each starts another one
        said(first, "a")
    for _, second in workers:
        said(second, "b")
    ends = [threading.Thread(target=end, args=[worker], daemon=True) for worker in workers]
    for each in ends:
        each.start()
    for each in ends:
        each.join(timeout=20)
    assert not any(each.is_alive() for each in ends)


def test_other_commands_have_other_processes(asker):
    assert said(asker(), "a")[0] != said(asker(SERVER + "    # another"), "a")[0]


def test_what_dies_is_said_with_the_end_of_its_log_and_the_next_question_starts_another(asker):
    first, second = asker(), asker()
    process, _ = said(first, "a")
    with pytest.raises(AssertionError, match="it died"):
        second.answers(["die"])
    another, answer = said(first, "bc")
    assert answer == "cb"
    assert another != process
    assert said(second, "de") == (another, "ed")


def test_an_answer_to_a_killed_worker_is_nobodys(asker, tmp_path):
    first, second = asker(), asker()
    process, _ = said(first, "a")
    said(second, "b")
    worker = f"""
        import os, sys
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from served import Served, end
        asker = Served({first.command!r}, Path({str(tmp_path)!r}))
        assert asker._join()
        asker._owed.touch()
        asker.asks.write("not yours\\n")
        asker.asks.flush()
        os._exit(9)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(worker)], check=False).returncode == 9
    other, answer = said(first, "yours")
    assert answer == "sruoy"
    assert other != process
    assert said(second, "mine") == (other, "enim")
