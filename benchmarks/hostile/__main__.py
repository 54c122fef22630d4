"""``python -m benchmarks.hostile``: draw, run, judge, count. See the package."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.commit import ROOT, commit_of
from benchmarks.hostile.tally import HERE, PAGE, Tally, page


def parsed() -> argparse.Namespace:
    """The options of this command."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    options.add_argument("--cases", type=int, default=1500, help="how many are drawn")
    options.add_argument("--first", type=int, default=0, help="the number of the first")
    options.add_argument("--seed", default="1", help="another seed, other cases")
    options.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose src/ is tried")
    options.add_argument(
        "--only", type=int, action="append", help="run this case of the seed, and show what it printed; repeatable"
    )
    options.add_argument("--list", action="store_true", help="print cases, run none")
    options.add_argument("--times", action="store_true", help="print what each case took")
    options.add_argument("--verb", help="only cases of this verb")
    options.add_argument("--kind", help="only cases of this class")
    options.add_argument("--keep", type=Path, help="keep the counts in this file")
    options.add_argument("--failures", type=Path, help="write the distinct failures there, each with its shortest line")
    options.add_argument("--write", action="store_true", help="renew after.json and docs/hostile.md")
    return options.parse_args()


DEEPEST = 50_000
"""Folders in folders: some cases make thousands, and the walks of the standard library recurse."""


def main() -> int:
    """Run the campaign; 1 where a case has a fault."""
    options = parsed()
    sys.setrecursionlimit(DEEPEST)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # before numpy starts: a forked child has no threads of its parent
    from benchmarks.hostile.campaign import Campaign

    scratch = Path(tempfile.mkdtemp(prefix="hostile-"))
    scratch.chmod(0o755)
    try:
        campaign = Campaign(options.tree.resolve(), scratch)
        return tried(campaign, options)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def tried(campaign, options: argparse.Namespace) -> int:  # type: ignore[no-untyped-def]
    """The cases that the options ask for."""
    tally, failures = Tally(commit_of(options.tree), options.seed), defaultdict(list)
    begun = time.monotonic()
    for number in options.only or range(options.first, options.first + options.cases):
        case = campaign.draw(random.Random(f"{options.seed}/{number}"))
        if (options.verb and case.verb != options.verb) or (options.kind and case.kind != options.kind):
            continue
        if options.list:
            print(f"{number:5} {case.kind}: {case.shell}")
            continue
        judged = campaign.run(case)
        tally.add(judged)
        if options.times:
            outcome = judged.outcome
            took = f"{outcome.wall_s:.2f} s, {outcome.cpu_s:.2f} s of the processor, {outcome.rss_bytes / 1e6:.0f} MB"
            print(f"{number:5} {took}: {case.verb}, {case.kind}")
        for fault, detail in judged.faults.items():
            failures[fault].append((detail, case.shell, number))
            print(f"{number:5} {fault}: {detail}\n      {case.kind}: {case.shell[:400]}", flush=True)
        if options.keep and tally.cases["all"] % 25 == 0:
            tally.keep(options.keep)
        if options.only:
            outcome = judged.outcome
            print(f"{number:5} {case.kind}: {case.shell}", outcome.out[-3000:], outcome.err[-3000:], sep="\n")
            print(f"status {outcome.status} {judged.faults}")
    if options.list:
        return 0
    print(
        f"{tally.cases['all']} cases of seed {options.seed}, {tally.clean} without a fault, {time.monotonic() - begun:.0f} s",
        file=sys.stderr,
    )
    if options.failures:
        options.failures.write_text(distinct(failures), encoding="utf-8")
    if options.keep or options.write:
        tally.keep(options.keep or HERE / "after.json")
    if options.write:
        PAGE.write_text(page(), encoding="utf-8")
    return 0 if tally.clean == tally.cases["all"] else 1


def distinct(failures: dict[str, list[tuple[str, str, int]]]) -> str:
    """Failures grouped by what shows them, each with its shortest line."""
    lines = []
    for fault, found in failures.items():
        groups = defaultdict(list)
        for detail, shell, number in found:
            groups["".join("9" if one.isdigit() else one for one in detail)[:60]].append((len(shell), shell, number, detail))
        lines.append(f"\n## {fault}: {len(found)} cases, {len(groups)} kinds\n")
        for group in sorted(groups.values(), key=len, reverse=True):
            _, shell, number, detail = min(group)
            lines.append(f"- {len(group)} x {detail}\n  case {number}: `{shell[:700]}`")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
