"""``python -m benchmarks.faults [--cases N] [--clean N] [--seed S] [--write]``: faults in the reference step, and what is said.

On one machine; about seven seconds a case on two cores. ``--write`` renews docs/faults.md.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.faults.campaign import Told, run
from benchmarks.faults.draw import cases
from benchmarks.faults.judge import right
from benchmarks.faults.page import PAGE, page
from meshwright.engine.nursery import Nursery
from meshwright.words import percent


def main() -> int:
    """Run the campaign; 1 where something was not told."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    options.add_argument("--cases", type=int, default=60, help="faults, the kinds in turn")
    options.add_argument("--clean", type=int, default=20, help="runs without one")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", type=int, action="append", help="this case of the seed; repeatable")
    options.add_argument("--write", action="store_true", help="renew docs/faults.md")
    given = options.parse_args()
    told: list[Told] = []
    with Nursery() as nursery:
        for case in cases(given.cases, given.clean, given.seed):
            if given.only and case.number not in given.only:
                continue
            begin = time.perf_counter()
            one = run(case, nursery)
            told.append(one)
            mark = "right" if right(one) else "WRONG"
            first = one.first
            said = "nothing" if first is None else f"{first.id}: {first.message}"
            print(f"{case.number:3} {mark} {case.kind} {percent(case.intensity, 0)} on {case.layout}, rank {case.rank}, "
                  f"{time.perf_counter() - begin:.1f} s: {said}", flush=True)
            if not right(one):
                for each in one.findings[:5]:
                    print(f"      {each.severity} {each.id} {each.loss_ratio or 0.0:.3f} {each.message}", flush=True)
                print(f"      {one.ended[:150]}", flush=True)
    wrong = [each for each in told if not right(each)]
    print(f"{len(told) - len(wrong)} of {len(told)} right")
    if given.write:
        PAGE.write_text(page(told, given.seed), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
