"""A program in the place of a framework: ``stand_in.py KIND [MS [AT [CHILDREN]]]`` prints a log of Megatron's and ends so.

MS is the step that it prints, AT the step after which it fails, CHILDREN how many processes it leaves in groups and sessions of
their own, every second of which ignores SIGTERM. It takes a few hundredths of a second where nothing is to be waited for.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

LINE = (
    " [2026-01-01 10:00:00] iteration {step:8d}/      50 | consumed samples: {samples:12d} | "
    "elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 400.0 | learning rate: 3.0E-06 | "
    "global batch size:    64 | lm loss: {loss} | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |"
)
LAST = {
    "oom": "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB.",
    "nccl": "[rank3]: torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1970, unhandled system error, "
            "ncclSystemError: System call failed",
    "watchdog": "[rank3]:[E ProcessGroupNCCL.cpp:563] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=52, "
                "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
    "preempted": "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
    "user": "pretrain_gpt.py: error: unrecognized arguments: --foo",
    "task-killed": "srun: error: node1: task 3: Killed",
    "rank-killed": "  exitcode  : -9 (pid: 17)\n  traceback : Signal 9 (SIGKILL) received by PID 17\n"
                   "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
}
WAITS = {"half": "oom", "alone": "task-killed"}
"""One rank has died, and says so or has it said; the others wait for it."""
STEPS, PACE_S = 9, 0.005


def main(kind: str, ms: float = 50.0, at: float = 6, children: float = 0) -> int:
    for number in range(int(children)):
        words = ["sh", "-c", "trap '' TERM; sleep 1001; sleep 1001"] if number % 2 else ["sleep", "1001"]
        subprocess.Popen(words, start_new_session=number > 0)
    if kind == "silent":
        time.sleep(1000)
    if kind == "garbage":
        os.write(1, os.urandom(20_000))
        return 0
    if kind == "nothing":
        print("hello")
        return 0
    if kind == "clash":
        taken = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
        socket.create_server(("127.0.0.1", taken.getsockname()[1]))
    for step in range(1, (int(at) + 20 if kind == "slow" else STEPS) + 1):
        loss = "nan" if kind == "nan" and step > 3 else f"{10 + 2 * step if kind == 'diverging' else 10 - 0.01 * step:.6E}"
        noise = random.uniform(0.5, 2.0) if kind == "slow" else 1 + 0.05 * (step % 3)  # slow: never known well enough
        print(LINE.format(step=step, samples=64 * step, ms=ms * noise, loss=loss), flush=True)
        time.sleep({"slow": 0.25, "brisk": 0.4}.get(kind, PACE_S))
        if step == int(at) and (status := _end(kind)) is not None:
            return status
    return 0


def _end(kind: str) -> int | None:
    """What becomes of it at that step; None where it goes on."""
    if kind in LAST:
        print(LAST[kind], flush=True)
        return 1
    if kind in ("hang", "stubborn", *WAITS):
        if kind in WAITS:
            print(LAST[WAITS[kind]], flush=True)
        if kind == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
    while kind == "chatty":
        print("NCCL INFO still here", flush=True)
        time.sleep(0.05)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "disk":
        with Path("checkpoint.bin").open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
    return 3 if kind == "exits" else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(float, sys.argv[2:5])))
