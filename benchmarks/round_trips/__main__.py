"""``python -m benchmarks.round_trips``: draw plans, write them, read them, count what does not come back. See the package."""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter

from benchmarks.round_trips.draw import drawn
from benchmarks.round_trips.trial import asked


def parsed() -> argparse.Namespace:
    """The options of this command."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.round_trips", description=__doc__)
    options.add_argument("--cases", type=int, default=200, help="how many are drawn")
    options.add_argument("--first", type=int, default=0, help="the number of the first")
    options.add_argument("--seed", default="1", help="another seed, other plans")
    options.add_argument("--only", type=int, action="append", help="this plan of the seed; repeatable")
    options.add_argument("--framework", default="", help="only plans of frameworks that begin so, or of NAME@VERSION")
    options.add_argument("--task", choices=("pretrain", "sft", "lora"), default="", help="only plans of this task")
    options.add_argument("--times", action="store_true", help="print what each plan took")
    return options.parse_args()


def main() -> int:
    """Draw and ask; 1 where a law is broken."""
    options, counts, broken, begun = parsed(), Counter[str](), Counter[str](), time.monotonic()
    for number in options.only or range(options.first, options.first + options.cases):
        before = time.process_time()
        plan = drawn(random.Random(f"{options.seed}/{number}"), only=options.framework, task=options.task)
        words = " ".join(f"{key}={value}" for key, value in plan.request.items())
        try:
            every = list(asked(plan))
        except Exception:
            traceback.print_exc()
            print(f"{number:5} raised: {plan.release} {words} layout={plan.label}", flush=True)
            broken["raised"] += 1
            continue
        if options.times or options.only:
            print(f"{number:5} {time.process_time() - before:.2f} s: {plan.release} {words} layout={plan.label}")
        for each in every:
            counts[each.law] += 1
            if each.broken:
                broken[each.law] += 1
                print(f"{number:5} {each.law}: {each.broken}\n      {plan.release} {words} layout={plan.label}", flush=True)
    for law, count in counts.items():
        print(f"{count:6} {law}" + (f": {broken[law]} broken" if broken[law] else ""))
    print(f"{sum(counts.values())} questions, {sum(broken.values())} broken, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
