"""``python -m benchmarks.log_speed [--gigabytes 2] [--every 100]``: what reading a long log costs beside ``grep -c`` on it.

The log is made in a temporary directory: steps with their timers as Megatron prints them, and so many lines of noise to each.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from meshwright.domain.observed import RunLog
from meshwright.readers.formats import observe

_STEP = (
    " iteration {number:8d}/ 9999999 | consumed samples: {number:12d} | elapsed time per iteration (ms): {ms:.1f} | "
    "learning rate: 1.5E-04 | global batch size:     4 | lm loss: 7.974370E+00 | loss scale: 16384.0 | grad norm: 3.312 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    "time (ms) | forward-compute: {part:.2f} | forward-recv: 126.20 | backward-compute: 514.12 | backward-send: 0.64 | "
    "backward-params-all-reduce: 23.20 | backward-embedding-all-reduce: 420.71 | optimizer: 113.44 | batch-generator: 2.55\n"
)
_WORDS = (
    "loading", "shard", "data", "worker", "finished", "index", "rank", "node", "cache", "tensor", "setup", "0.123", "7.89e-05",
)


def main() -> None:
    """Make the log, read it, print a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--every", type=int, default=100, help="lines of noise to each step")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run.log"
        steps = _write(path, given.gigabytes * 1e9, given.every)
        grep = min(_grep(path) for _ in range(3))
        begun, clock = time.process_time(), time.perf_counter()
        (log,) = (each for each in observe((path,)).observations if isinstance(each, RunLog))
        seconds, waited = time.process_time() - begun, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{given.gigabytes:g} GB, {log.lines:,} lines, {steps:,} steps: {seconds:.2f} s of processor time ({waited:.1f} s), "
        f"{seconds / grep:.1f} times grep -c ({grep:.2f} s), {peak:.0f} MiB at most; {len(log.steps):,} steps read; "
        f"{'; '.join(log.notes)}")


def _write(path: Path, size: float, every: int) -> int:
    rng = random.Random(1)
    stamp = "2026-02-24 19:46:17 [INFO] (worker"
    noise = [f"{stamp} {rng.randint(0, 63)}) {' '.join(rng.choices(_WORDS, k=15))}\n" for _ in range(3000)]
    written = number = 0
    with path.open("w") as stream:
        while written < size:
            number += 1
            step = _STEP.format(number=number, ms=1380 + rng.random(), part=175 + rng.random())
            written += stream.write(step + "".join(rng.choices(noise, k=every)))
    return number


def _grep(path: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["grep", "-c", "iteration", str(path)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
