"""``python -m benchmarks.coherence``: draw cases, ask the laws, count. See the package."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.coherence.campaign import options_of, run
from benchmarks.coherence.draw import shell
from benchmarks.coherence.tally import PAGE, Tally, kept, page
from benchmarks.commit import commit_of


def parsed() -> argparse.Namespace:
    """The options of this command."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.coherence", description=__doc__)
    options.add_argument("--cases", type=int, default=300, help="how many are drawn")
    options.add_argument("--first", type=int, default=0, help="the number of the first")
    options.add_argument("--seed", default="1", help="another seed, other cases")
    options.add_argument("--only", type=int, action="append", help="this case of the seed; repeatable")
    options.add_argument("--list", action="store_true", help="print cases, plan none")
    options.add_argument("--times", action="store_true", help="print what each case took")
    options.add_argument("--seconds", type=float, help="draw no further case after so many")
    options.add_argument("--keep", type=Path, help="write everything there as JSON, every ten cases")
    options.add_argument("--write", action="store_true", help="renew docs/coherence.md")
    return options.parse_args()


def main() -> int:
    """Run the campaign; 1 where a law is broken."""
    options = parsed()
    tally, begun = Tally(commit_of(), options.seed), time.monotonic()
    for count, number in enumerate(options.only or range(options.first, options.first + options.cases), start=1):
        if options.list:
            print(f"{number:5} {shell('plan', options_of(options.seed, number))}")
            continue
        before = time.process_time()
        drawn, outcome, asked = run(options.seed, number)
        tally.add(number, outcome, drawn, asked)
        if options.times or options.only:
            took = f"{time.process_time() - before:.1f} s of the processor"
            print(f"{number:5} {outcome}, {took}: {shell('plan', drawn)}", flush=True)
        for each in asked:
            if each.broken:
                print(f"{number:5} {each.law}: {each.broken}\n      {shell(each.verb, {**drawn, **each.more})}", flush=True)
        if options.keep and count % 10 == 0:
            options.keep.write_text(kept(tally), encoding="utf-8")
        if options.seconds is not None and time.monotonic() - begun > options.seconds:
            break
    if options.list:
        return 0
    print(
        f"{sum(tally.cases.values())} cases of seed {options.seed}, {sum(tally.asked.values())} questions, "
        f"{sum(tally.broken.values())} broken, {time.monotonic() - begun:.0f} s", file=sys.stderr,
    )
    if options.keep:
        options.keep.write_text(kept(tally), encoding="utf-8")
    if options.write:
        PAGE.write_text(page(tally), encoding="utf-8")
    return 1 if tally.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
