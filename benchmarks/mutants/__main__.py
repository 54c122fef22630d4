"""``python -m benchmarks.mutants``: draw mutants over all rooms, run the tests of each, list what survived. See the package."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.mutants.forked import noticed, warm_up
from benchmarks.mutants.page import EQUIVALENT, PAGE, page
from benchmarks.mutants.seeing import Seen, see
from benchmarks.mutants.sites import mutated, sites
from benchmarks.mutants.trying import ROOT, SOURCE, Copy, Mutant, rooms_with_tests

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.jsonl"


def parsed() -> argparse.Namespace:
    """The options of this command."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    options.add_argument("--number", type=int, default=60, help="how many are drawn")
    options.add_argument("--seed", default="1", help="another seed, other mutants")
    options.add_argument("--known", action="store_true", help="those of known.yaml in place of drawn ones")
    options.add_argument("--room", help="only sources that begin with this, as in perf or search/balance")
    options.add_argument("--list", action="store_true", help="print them, run nothing")
    options.add_argument("--again", action="store_true", help="those that survived, once more with today's tests")
    options.add_argument("--results", type=Path, default=RESULTS, help="JSON lines that are kept from run to run")
    options.add_argument("--see", nargs="*", metavar="FOLDER", help="run tests once under coverage: which execute which line")
    options.add_argument("--write", action="store_true", help="renew docs/mutants.md")
    return options.parse_args()


def sources() -> dict[str, str]:
    """Path below the package -> text, of everything that rooms.yaml gives tests."""
    root = ROOT / SOURCE
    paths = (path.relative_to(root).as_posix() for path in sorted(root.rglob("*.py")))
    return {path: (root / path).read_text(encoding="utf-8") for path in paths if rooms_with_tests(path)}


def drawn(number: int, seed: str, within: str = "") -> list[Mutant]:
    """Mutants drawn in turn from every room, so that a large room is not all there is."""
    every = defaultdict(list)
    texts = {path: text for path, text in sources().items() if path.startswith(within)}
    for path, text in texts.items():
        every[path.split("/")[0]] += [(path, site) for site in sites(text)]
    rng = random.Random(seed)
    rooms, found = sorted(every), dict[str, Mutant]()
    while len(found) < min(number, sum(map(len, every.values()))):
        path, site = rng.choice(every[rooms[len(found) % len(rooms)]])
        mutant = _mutant(path, site.kind, site.line, texts[path], mutated(texts[path], site))
        found.setdefault(mutant.key, mutant)
    return [*found.values()]


def known() -> list[Mutant]:
    """The list of known.yaml, as far as today's source still has the formula."""
    texts, found = sources(), []
    for each in yaml.safe_load((HERE / "known.yaml").read_text(encoding="utf-8")):
        text = texts.get(each["path"], "")
        if text.count(each["before"]) != 1:
            print(f"no longer there: {each['path']}: {each['before']}", file=sys.stderr)
            continue
        line = text[: text.index(each["before"])].count("\n") + 1
        found.append(_mutant(each["path"], each["says"], line, text, text.replace(each["before"], each["after"])))
    return found


def survivors(done: dict[str, dict[str, Any]]) -> list[Mutant]:
    """Those that survived and change something, as far as their line still stands in today's source."""
    texts, found, same = sources(), [], {each["key"] for each in yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or []}
    for each in done.values():
        lines = texts.get(each["path"], "").splitlines(keepends=True)
        places = [number for number, line in enumerate(lines, start=1) if line.strip() == each["before"]]
        if each["killed"] or each["key"] in same:
            continue
        if not places:
            print(f"no longer there: {each['path']}: {each['before']}", file=sys.stderr)
            continue
        place = min(places, key=lambda number: abs(number - each["line"]))
        line = lines[place - 1]
        after = "".join([*lines[: place - 1], line.replace(each["before"], each["after"]), *lines[place:]])
        found.append(_mutant(each["path"], each["kind"], place, texts[each["path"]], after))
    return found


def _mutant(path: str, kind: str, line: int, before: str, after: str) -> Mutant:
    old, new = (text.splitlines()[line - 1].strip() for text in (before, after))
    return Mutant(path=path, kind=kind, line=line, before=old, after=new, text=after)


def main() -> int:
    """Run them; 1 where one survived without a reason."""
    options = parsed()
    if options.see is not None:
        see(options.see or ("tests",))
        return 0
    done = _kept(options.results)
    drawing = partial(drawn, options.number, options.seed, options.room or "")
    mutants = survivors(done) if options.again else known() if options.known else drawing()
    if options.list:
        for each in mutants:
            print(f"{each.path}:{each.line} {each.kind}\n  - {each.before}\n  + {each.after}")
        return 0
    warm_up()
    copy, seen = Copy(), Seen()
    for count, each in enumerate(mutants, start=1):
        kept = done.get(each.key)
        if kept is None or (options.again and not kept["killed"]):
            try:
                outcome = noticed(each) or copy.tried(each.path, each.text)
                if not outcome.killed and (others := seen.tests(each.path, each.line, each.before)):
                    outcome = noticed(each, others) or outcome
            except RuntimeError as error:
                print(f"{count}/{len(mutants)} {each.path}:{each.line} left out: {error}", flush=True)
                continue
            drawn_by = kept["set"] if kept else "known" if options.known else f"seed {options.seed}"
            kept = {
                "set": drawn_by, "key": each.key, "path": each.path, "line": each.line, "kind": each.kind, "before": each.before,
                "after": each.after, "killed": outcome.killed, "by": outcome.by, "cpu_s": outcome.cpu_s,
                "later": options.again,
            }
            done[each.key] = kept
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(kept) + "\n")
        said = f"killed by {kept['by']}" if kept["killed"] else "SURVIVED"
        print(f"{count}/{len(mutants)} {each.path}:{each.line} {each.kind}: {said} ({kept['cpu_s']} s)", flush=True)
        if not kept["killed"]:
            print(f"  - {each.before}\n  + {each.after}", flush=True)
    results = [done[each.key] for each in mutants if each.key in done]
    print(f"{sum(each['killed'] for each in results)} of {len(results)} killed", file=sys.stderr)
    if options.write:
        PAGE.write_text(page(drawn_results(done), [each for each in done.values() if each.get("set") == "known"]), encoding="utf-8")
    return 0 if all(each["killed"] for each in results) else 1


def drawn_results(done: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of drawn mutants, in their order."""
    return [each for each in done.values() if each.get("set", "").startswith("seed")]


def _kept(results: Path) -> dict[str, dict[str, Any]]:
    """Results of earlier runs; the last one of a key counts."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return {each["key"]: each for each in map(json.loads, lines)}


if __name__ == "__main__":
    raise SystemExit(main())
