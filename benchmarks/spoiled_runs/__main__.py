"""Draws cases, and says what was wrong with any."""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import benchmarks.spoiled_runs
from benchmarks import samples as real
from benchmarks.spoiled_runs.case import Ended, case
from benchmarks.spoiled_runs.spoils import LONGEST


def samples(directory: Path) -> dict[str, bytes]:
    """The files of a directory, decompressed; of long ones the beginning, of long documents made whole again."""
    found = {}
    for path in sorted(each for each in directory.rglob("*") if each.is_file() and "EXPECTED" not in each.name):
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        if len(content) > LONGEST and path.suffix != ".pickle":
            end = content.rfind(b"\n  },", 0, LONGEST)
            whole = content[: end + 4] + b"\n]}" if end > 0 and content[:1] in b"{[" else content[:LONGEST]
            content = whole
        found[str(path.relative_to(directory))] = content
    return found


def run(cases: range, seed: int, texts: Mapping[str, bytes], keep: Path | None = None) -> Iterator[Ended]:
    """Drawn cases, each in a directory of its own."""
    for index in cases:
        with tempfile.TemporaryDirectory(prefix="spoiled-") as parent:
            directory = Path(parent) / "lab-of-jdoe"
            directory.mkdir()
            yield case(index, seed, texts, directory)
            if keep is not None:
                shutil.copytree(directory, keep, symlinks=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(benchmarks.spoiled_runs.__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    where = real.directory()
    if where is None:
        parser.error("MESHWRIGHT_SAMPLES names no directory of files of runs")
    ends: Counter[str] = Counter()
    classes: dict[str, list[int]] = {}
    longest, most = (0.0, ""), (0, "")
    cases = range(given.cases) if given.only is None else range(given.only, given.only + 1)
    for ended in run(cases, given.seed, samples(where), given.keep):
        ends[ended.end] += 1
        longest, most = max(longest, (ended.cpu_s, ended.what)), max(most, (ended.memory_bytes, ended.what))
        for fault in (*ended.faults, *ended.costs):
            print(f"{ended.what}\n    {fault}", flush=True)
            classes.setdefault(re.sub(r"[\d.e+-]+", "N", fault), []).append(ended.index)
    print(dict(ends), f"longest {longest[0]:.1f} s: {longest[1]}", f"most {most[0] / 1e6:.0f} MB: {most[1]}", sep="\n")
    for fault, found in sorted(classes.items(), key=lambda each: -len(each[1])):
        print(f"{len(found):5} {fault[:150]}  ({', '.join(map(str, found[:5]))})")
    return bool(classes)


if __name__ == "__main__":
    sys.exit(main())
