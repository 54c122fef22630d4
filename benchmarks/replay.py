"""The tuner against recorded runs: ``python -m benchmarks.replay [--learn | --write]``.

Each cell of the corpus with twenty measured layouts or more is tuned by a calibration that has not seen its rows, and once more by
one that has not seen its model; the scales of the prior are learnt without the model, too. Beside it: chance, Optuna's samplers,
the plan's order without learning, and a grid, with the same candidates. ``--learn`` writes the scales that ship (from all cells),
``--write`` ``docs/replay.md`` and its picture. The first call fits the corpus, which takes minutes; ``--cache`` keeps that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.replay_cells import LEARNT_FROM, SCHEMES, HeldOut, code, held_out_cells, kept
from meshwright.measure.tuning.learning import learn, within
from meshwright.measure.tuning.replay import Replayed, grid_order, replayed, words_of
from meshwright.measure.tuning.samplers import Optuna, Ordered, shuffled
from meshwright.measure.tuning.scales import FILE, Scales
from meshwright.measure.tuning.tuner import Tuner

LEAST_MEASURED, SEEDS, GP_SEEDS = 20, 20, 2
"""Measured layouts of a cell that is replayed; seeds of each way but the GP, whose every proposal takes long."""
ASKED = 60
"""Trials that Optuna's samplers are given: what they have not found by then counts as one more."""


@dataclass(frozen=True)
class Result:
    """One way to choose, on one cell: trials to a layout as good as the best, by seed."""

    way: str
    cell: HeldOut
    near: tuple[int, ...]
    replayed: Replayed | None = None


def learnt(cells: Sequence[HeldOut], cache: Path, without: str = "") -> Scales:
    """The scales of all cells but those of a model, as calibrations see them that have not seen the cell."""
    name = sha256("\x1f".join((code("learning", "scales", "steps", "running", "beliefs"), without)).encode()).hexdigest()[:16]

    def found() -> Scales:
        return learn([within(each.seen) for each in cells if each.scheme == SCHEMES[0] and each.model != without])

    scales: Scales = kept(cache / f"scales-{name}.pickle", found)
    return scales


def model_results(cells: Sequence[HeldOut], cache: Path) -> list[Result]:
    """The tuner on every cell under both schemes."""
    scales: dict[str, Scales] = {}
    found = []
    for each in cells:
        if each.cell.measured < LEAST_MEASURED:
            continue
        if each.model not in scales:
            scales[each.model] = learnt(cells, cache, each.model)
            print(f"without {each.model}: {scales[each.model]}", file=sys.stderr)
        tuner = partial(Tuner, each.cell.candidates, each.known, scales[each.model])
        result = replayed(each.cell, each.known, tuner(), onward=tuner(stop_probability=0.0))
        assert result.trials_to_near is not None
        found.append(Result(f"model, without the {each.scheme}", each, (result.trials_to_near,), result))
        print(f"{each.scheme:5} {each.cell.id}: near after {result.trials_to_near}, stopped after {len(result.tried)}, "
              f"regret {result.regret_by_trial[-1]:.3f}", file=sys.stderr, flush=True)
    return found


def other_results(cells: Sequence[HeldOut], cache: Path, seeds: int, gp_seeds: int) -> list[Result]:
    """The other ways on every cell; those that use a model under the first scheme."""
    found = []
    for each in cells:
        if each.cell.measured < LEAST_MEASURED or each.scheme != SCHEMES[0]:
            continue
        candidates, known, cell = each.cell.candidates, each.known, each.cell
        words = words_of(known)
        ways: dict[str, tuple[int, Callable[[int], Any], int | None]] = {
            "the plan's order": (
                1, lambda _, c=candidates, k=known: Ordered([c[i] for i in np.argsort(k.expected_s, kind="stable")]), None,
            ),
            "grid": (1, lambda _, c=cell: Ordered(grid_order(c)), None),
            "random": (seeds, lambda seed, c=candidates: shuffled(c, seed), None),
        }
        if find_spec("optuna"):
            ways["Optuna TPE"] = (seeds, lambda seed, c=candidates, w=words: Optuna(c, w, "tpe", seed), ASKED)
            ways["Optuna GP"] = (gp_seeds, lambda seed, c=candidates, w=words: Optuna(c, w, "gp", seed), ASKED)
        for way, (count, make, most) in ways.items():
            key = "\x1f".join((code("samplers", "replay", "beliefs"), way, cell.id, str(count), str(ASKED)))

            def near(
                count: int = count, make: Callable[[int], Any] = make, most: int | None = most, each: HeldOut = each
            ) -> tuple[int, ...]:
                return tuple(
                    replayed(each.cell, each.known, make(seed), most=most).trials_to_near or ASKED + 1 for seed in range(count)
                )

            if count:
                found.append(Result(way, each, kept(cache / f"near-{sha256(key.encode()).hexdigest()[:16]}.pickle", near)))
        print(f"{cell.id}: {[(each.way, median(each.near)) for each in found[-len(ways):]]}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Learn, or replay and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--learn", action="store_true", help="write the scales that ship")
    parser.add_argument("--write", action="store_true", help="write docs/replay.md and its picture")
    parser.add_argument("--others", action="store_true", help="the other ways to choose, too (implied by --write)")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--gp-seeds", type=int, default=GP_SEEDS)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "meshwright-replay")
    given = parser.parse_args()
    cells = held_out_cells(given.cache, LEARNT_FROM)
    if given.learn:
        write_scales(learnt(cells, given.cache))
        return 0
    results = model_results(cells, given.cache)
    if given.write or given.others:
        results += other_results(cells, given.cache, given.seeds, given.gp_seeds)
    from benchmarks.replay_page import page, picture

    text = page(results)
    if given.write:
        docs = Path(__file__).parents[1] / "docs"
        (docs / "replay.md").write_text(text, encoding="utf-8")
        (docs / "replay.svg").write_text(picture(results), encoding="utf-8")
    else:
        print(text)
    return 0


def write_scales(scales: Scales) -> None:
    """The scales with the words that say where they come from."""
    text = FILE.read_text(encoding="utf-8") if FILE.exists() else "scales:\n"
    head = text.partition("scales:\n")[0]
    lines = [f"  {each.name}: {getattr(scales, each.name):g}" for each in fields(scales)]
    FILE.write_text(head + "scales:\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
