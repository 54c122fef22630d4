"""A program in the place of a framework: prints a log of Megatron's, and ends as it is told to."""

import os
import signal
import subprocess
import sys
import time

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
    "port": "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, "
            "code: -98, name: EADDRINUSE, message: address already in use",
    "preempted": "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
    "user": "pretrain_gpt.py: error: unrecognized arguments: --foo",
    "disk": "OSError: [Errno 28] No space left on device",
}


def main(kind: str, ms: float = 50.0, steps: int = 9, pace_s: float = 0.005) -> int:
    if kind == "silent":
        time.sleep(1000)
    if kind == "garbage":
        os.write(1, os.urandom(20_000))
        return 0
    if kind == "nothing":
        print("hello")
        return 0
    for step in range(1, steps + 1):
        loss = "nan" if kind == "nan" and step > 3 else f"{10 + 2 * step if kind == 'diverging' else 10 - 0.01 * step:.6E}"
        print(LINE.format(step=step, samples=64 * step, ms=ms * (1 + 0.05 * (step % 3)), loss=loss), flush=True)
        time.sleep(pace_s)
        if step == 6:
            if kind in LAST:
                print(LAST[kind], flush=True)
                return 1
            if kind in ("hang", "stubborn", "escaped"):
                if kind != "hang":
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if kind == "escaped":
                    subprocess.Popen(["sleep", "1001"], start_new_session=True)
                time.sleep(1000)
            if kind == "chatty":
                while True:
                    print("NCCL INFO still here", flush=True)
                    time.sleep(0.05)
            if kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "half":  # one rank has died and says so, the others wait for it
                print(LAST["oom"], flush=True)
                time.sleep(1000)
            if kind == "exits":
                return 3
            if kind == "leaves":
                subprocess.Popen(["sleep", "1001"], start_new_session=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(float, sys.argv[2:3])))
