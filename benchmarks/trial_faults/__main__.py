"""The tables of docs/sweep-faults.md: ``python -m benchmarks.trial_faults [--executor NAME] [--draws N] [--seed S]``.

NAME is local, slurm, or slurm+reuse: jobs of their own, or allocations that are held between trials.
Scenes are drawn in turn, each as often as its share says; the moment, the step and the children of each are drawn. A fault counts
as right where every trial of it has the class that it must have; ``orphans`` are processes of trials that run on, ``lost`` finished
trials that the store lacks or that were run again.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.trial_faults.scenes import SCENES, Result, Scene, ending

DOC = Path(__file__).parents[2] / "docs" / "sweep-faults.md"
ENOUGH = 0.95


def drawn(scenes: tuple[Scene, ...], draws: int) -> list[Scene]:
    """Scenes in turn, those of a larger share more often."""
    turn = [scene for scene in scenes for _ in range(scene.share)]
    return [turn[index % len(turn)] for index in range(draws)]


def campaign(scenes: tuple[Scene, ...], name: str, draws: int, seed: int) -> dict[str, list[Result]]:
    """Every fault in a folder of its own."""
    found: dict[str, list[Result]] = defaultdict(list)
    for number, scene in enumerate(drawn(scenes, draws)):
        rng = random.Random(f"{seed} {number}")
        with tempfile.TemporaryDirectory(prefix="meshwright-faults-", ignore_cleanup_errors=True) as place:
            os.environ["TMPDIR"] = tempfile.tempdir = place  # leases of its own
            try:
                result = (scene.run or ending)(scene, Path(place), rng, name)
            finally:
                tempfile.tempdir = None
                os.environ.pop("TMPDIR", None)
        found[scene.name].append(result)
        if result.right < result.trials or result.orphans or result.lost:
            print(f"{number} {scene.name}: {result}", file=sys.stderr)
    return found


def table(found: dict[str, list[Result]]) -> list[str]:
    """The rows, and their sum."""
    lines = ["| fault | times | trials | right class | orphans | lost |", "|---|---|---|---|---|---|"]
    every: list[Result] = []
    for name, results in [*found.items(), ("all", every)]:
        every += results if name != "all" else []
        trials, right = sum(each.trials for each in results), sum(each.right for each in results)
        lines.append(f"| {name} | {len(results)} | {trials} | {right} ({100 * right / max(1, trials):.1f} %) | "
                     f"{sum(each.orphans for each in results)} | {sum(each.lost for each in results)} |")
    return lines


def main() -> int:
    """Run the campaign -> whether it is as good as it must be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--executor", default="local")
    parser.add_argument("--draws", type=int, default=210)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    scenes = tuple(scene for scene in SCENES if asked.only in scene.name)
    if asked.executor.startswith("slurm"):
        from benchmarks.trial_faults.slurm import SCENES as QUEUED

        scenes = tuple(scene for scene in QUEUED if asked.only in scene.name)
    began = time.monotonic()
    found = campaign(scenes, asked.executor, asked.draws, asked.seed)
    lines = table(found)
    print("\n".join(lines), f"{time.monotonic() - began:.0f} s", sep="\n")
    if asked.write:
        write(asked.executor, lines, asked.draws, asked.seed)
    every = [each for results in found.values() for each in results]
    good = sum(each.right for each in every) >= ENOUGH * sum(each.trials for each in every)
    return int(not good or any(each.orphans or each.lost for each in every))


def write(name: str, lines: list[str], draws: int, seed: int) -> None:
    """The section of one executor in the page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = DOC.read_text()
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    said = f"`python -m benchmarks.trial_faults --executor {name} --draws {draws} --seed {seed} --write`"
    DOC.write_text(f"{before}{begin}\n{said}\n\n" + "\n".join(lines) + f"\n{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
