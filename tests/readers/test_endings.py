"""How a run ended: the first cause, not what followed from it."""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from meshwright.domain.observed import RunLog
from meshwright.readers.endings import ended
from meshwright.readers.formats import observe
from meshwright.readers.lines import Line
from meshwright.readers.needles import SHORTEST, folded
from meshwright.readers.signs import Signs, by_id, rules

STEP = " iteration {}/ 100 | consumed samples: 10 | elapsed time per iteration (ms): 10.0 | global batch size: 4 |"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB."
NCCL = "[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, unhandled system error, ncclSystemError: System call failed"
WATCHDOG = "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000)"
REMOTE = "[rank1]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
RAISED = "[rank2]: ValueError: number of layers is not divisible by pipeline stages"
TIME = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"
PREEMPTED = "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***"
CANCELLED = "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"
TERM = "Main process received SIGTERM, exiting"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
ELASTIC = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
KILLED = "srun: error: node1: task 3: Killed, exit code 137"
# of a real Slurm 22.05, with SLURM_KILL_BAD_EXIT=1
FAILED = "srun: error: n2: task 1: Exited with exit code 3"
ENDED_FOR_IT = "srun: launch/slurm: _step_signal: Terminating StepId=1.1"
OF_ITS_STEP = "slurmstepd-n1: error: *** STEP 1.1 ON n1 CANCELLED AT 2026-11-24T03:31:24 ***"
ENDED = "srun: error: n1: task 0: Terminated"
DONE = "[after training is done] datetime: 2026-01-01 00:00:00"


@pytest.fixture
def ending(tmp_path):
    def of(*texts, **known):
        logs = []
        for index, text in enumerate(texts):
            path = tmp_path / f"rank{index}.log"
            path.write_text(text + "\n")
            logs += [each for each in observe([path]).observations if isinstance(each, RunLog)]
        return ended(logs, **known)
    return of


@pytest.mark.parametrize(("lines", "status", "rank"), [
    ([OOM], "oom", 3),
    ([NCCL, OOM], "oom", 3),
    ([OOM, NCCL, REMOTE, ELASTIC], "oom", 3),
    ([WATCHDOG, NCCL, TIME], "hang", 0),
    ([RAISED, WATCHDOG, REMOTE, ELASTIC], "user", 2),
    ([REMOTE], "nccl", 1),
    ([NCCL, REMOTE, ELASTIC], "nccl", 0),
    ([XID, WATCHDOG], "node", None),
    ([TIME, TERM], "timeout", None),
    ([TERM, PREEMPTED], "preempted", None),
    ([CANCELLED, TERM, REMOTE], "cancelled", None),
    ([TERM], "cancelled", None),
    ([ELASTIC], "user", None),
    ([KILLED, ELASTIC], "oom", None),
    ([FAILED, ENDED_FOR_IT, OF_ITS_STEP, ENDED], "user", None),
    ([STEP.format(1), REMOTE, FAILED, ENDED_FOR_IT, OF_ITS_STEP, ENDED], "nccl", 1),
    (["srun: error: n2: task 1: Killed", ENDED_FOR_IT, OF_ITS_STEP, ENDED], "oom", None),
    (["srun: error: n2: tasks 1-3: Out Of Memory", ENDED_FOR_IT, OF_ITS_STEP, ENDED], "oom", None),
    ([OF_ITS_STEP, ENDED, FAILED], "cancelled", None),
    ([STEP.format(1), DONE], "ok", None),
    ([STEP.format(1), DONE, TERM], "ok", None),
    ([STEP.format(1)], "unknown", None),
    (["pretrain_gpt.py: error: unrecognized arguments: --foo", ELASTIC], "user", None),
    ([NCCL, *(STEP.format(step) for step in range(1, 9))], "unknown", None),
    ([*(STEP.format(step) for step in range(1, 9)), OOM, STEP.format(9)], "oom", 3),
])
def test_the_first_cause_counts(ending, lines, status, rank):
    found = ending("\n".join(lines))
    assert (found.status, found.rank) == (status, rank)


def test_the_cause_is_found_in_whichever_rank_s_log_it_stands(ending):
    found = ending(f"{NCCL}\n{REMOTE}", REMOTE, f"loading\n{OOM}")
    assert (found.status, found.place.line, found.evidence) == ("oom", 2, OOM.partition(": ")[2])


@pytest.mark.parametrize(("status", "steps", "expected"), [
    (0, 3, "ok"), (0, 0, "parse"), (1, 3, "user"), (137, 3, "oom"), (-15, 3, "cancelled"), (124, 3, "timeout"),
])
def test_without_words_the_exit_status_says_it(ending, status, steps, expected):
    text = "\n".join(STEP.format(step) for step in range(1, 1 + steps)) or "Setting OMP_NUM_THREADS environment variable for each process to be 1"
    assert ending(text, exit_status=status).status == expected


def test_a_run_that_goes_on_has_no_end_yet(ending):
    assert ending(OOM, running=True).status == "running"


@pytest.mark.parametrize("rule", by_id().values(), ids=lambda rule: rule.id)
def test_every_rule_holds_on_its_own_line_and_no_other_does(rule):
    said = folded(rule.example.encode())
    signs = Signs("a.log")
    signs.take(Line(1, rule.example), [index for index, each in enumerate(rules()) if folded(each.anchor) in said])
    assert [sign.id for sign in signs.found] == [rule.id]


def test_every_anchor_can_be_sought():
    assert all(len(rule.anchor) >= SHORTEST for rule in rules())
    assert {rule.ends for rule in rules()} - {""} <= {"ok", "oom", "nccl", "timeout", "hang", "node", "preempted", "user", "cancelled"}


def test_signs_are_counted_and_keep_their_first_line():
    signs = Signs("a.log")
    index = next(index for index, rule in enumerate(rules()) if rule.id == "allocator.retries")
    for number in (4, 7, 9):
        signs.take(Line(number, f"[rank1] {number} CUDA memory allocation retries."), [index])
    sign = signs.found[0]
    assert (sign.times, sign.value, sign.place.line, sign.last_line, sign.rank) == (3, 9.0, 4, 9, 1)
