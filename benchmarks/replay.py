"""The tuner against recorded runs: ``python -m benchmarks.replay [--learn | --write]``.

Each cell of the corpus with twenty measured layouts or more is tuned by a calibration that has not seen its rows, and once more by
one that has not seen its model; the scales of the prior are learnt without the model, too. Beside it: chance, Optuna's samplers,
the order believed first, and a grid, with the same candidates. ``--learn`` writes the scales that ship (from all cells),
``--write`` ``docs/replay.md`` and its picture. The first call fits the corpus, which takes minutes, and Optuna's samplers take
seven minutes of a processor for all their seeds; ``--cache`` keeps every part, so that a call that was ended goes on where it was,
and what knows no model stands whatever is fitted since. ``--minutes`` bounds the other ways: those seeds count that were replayed
on every cell by then, and the page says how many they are.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.left_out import kept
from benchmarks.replay_cells import LEARNT_FROM, SCHEMES, HeldOut, code, escaping, held_out_cells
from meshwright.measure.chooser import Listed
from meshwright.measure.tuning.learning import escapes, learn
from meshwright.measure.tuning.replay import Replayed, grid_order, replayed, trials_to_near, words_of
from meshwright.measure.tuning.samplers import Optuna, shuffled
from meshwright.measure.tuning.scales import FILE, Scales
from meshwright.measure.tuning.tuner import Tuner

if TYPE_CHECKING:
    from meshwright.measure.tuning.beliefs import Beliefs

LEAST_MEASURED, SEEDS = 20, 20
"""Measured layouts of a cell that is replayed; seeds of each way that throws dice."""
TUNER = ("tuner", "steps", "running", "scales", "beliefs", "replay")
"""Modules that decide what the tuner asks for."""
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
    can = [each for each in escaping(cache) if each.model != without]
    escape = escapes(np.array([each.shift for each in can]), np.array([each.above for each in can]))
    seen = (_of(each.known) for each in cells)
    name = _digest(code("learning", "scales", "steps", "running", "beliefs"), without, str(escape), *seen)

    def found() -> Scales:
        return learn([each.seen for each in cells if each.scheme == SCHEMES[0] and each.model != without], escape)

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
        name = _digest(code(*TUNER), repr(scales[each.model]), each.cell.id, each.scheme, _of(each.known))
        tuner = partial(Tuner, each.cell.candidates, each.known, scales[each.model])

        def run(each: HeldOut = each, tuner: Callable[..., Any] = tuner) -> Replayed:
            return replayed(each.cell, each.known, tuner(), onward=tuner(stop_probability=0.0))

        result: Replayed = kept(cache / f"tuned-{name}.pickle", run)
        assert result.trials_to_near is not None
        found.append(Result(f"model, without the {each.scheme}", each, (result.trials_to_near,), result))
        print(f"{each.scheme:5} {each.cell.id}: near after {result.trials_to_near}, stopped after {len(result.tried)}, "
              f"regret {result.regret_by_trial[-1]:.3f}", file=sys.stderr, flush=True)
    return found


def other_results(cells: Sequence[HeldOut], cache: Path, seeds: int, until_s: float) -> list[Result]:
    """The other ways on every cell, those that use a model under the first scheme: seed by seed, until the time is over."""
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)  # Optuna's Gaussian processes are small: threads cost them ten times what they compute
    own = [each for each in cells if each.cell.measured >= LEAST_MEASURED and each.scheme == SCHEMES[0]]
    found = []
    for way in [way for way in WAYS if find_spec("optuna") or not way.startswith("Optuna")]:
        near: dict[str, list[int]] = {each.cell.id: [] for each in own}
        for seed in range(seeds if way in CHANCE else 1):
            one = {each.cell.id: _near(way, each, seed, cache, until_s if seed else math.inf) for each in own}
            if None in one.values():
                break
            for id_, trials in one.items():
                near[id_].append(trials or 0)
            print(f"{way}, seed {seed}: median {median(each or 0 for each in one.values())}", file=sys.stderr, flush=True)
        found += [Result(way, each, tuple(near[each.cell.id])) for each in own]
    return found


def _near(way: str, each: HeldOut, seed: int, cache: Path, until_s: float) -> int | None:
    """Trials of one way on one cell with one seed; None where that was not replayed and the time is over."""
    rows = repr([(row.label, row.outcome.step_s) for row in each.cell.candidates])
    known = _of(each.known) if way == BELIEVED else ""  # the others know no model: they stand whatever was fitted since
    name = _digest(code("samplers", "replay", kin=False), way, each.cell.id, rows, str(seed), str(ASKED), known)
    path = cache / f"near-{name}.pickle"
    if not path.exists() and time.monotonic() > until_s:
        return None
    chooser, most = WAYS[way](each, seed), ASKED if way.startswith("Optuna") else None
    return int(kept(path, lambda: trials_to_near(each.cell, chooser, most) or ASKED + 1))


def _of(known: Beliefs) -> str:
    """A digest of what is believed: it changes with the calibration."""
    return sha256(b"".join(np.ascontiguousarray(getattr(known, each.name)).tobytes() for each in fields(known))).hexdigest()


def _digest(*words: str) -> str:
    return sha256("\x1f".join(words).encode()).hexdigest()[:16]


BELIEVED = "the order believed first"
WAYS: dict[str, Callable[[HeldOut, int], Any]] = {
    BELIEVED: lambda each, _: Listed(
        [each.cell.candidates[index] for index in np.argsort(each.known.expected_s, kind="stable")]),
    "grid": lambda each, _: Listed(grid_order(each.cell)),
    "random": lambda each, seed: shuffled(each.cell.candidates, seed),
    "Optuna TPE": lambda each, seed: Optuna(each.cell.candidates, words_of(each.known), "tpe", seed),
    "Optuna GP": lambda each, seed: Optuna(each.cell.candidates, words_of(each.known), "gp", seed),
}
CHANCE = ("random", "Optuna TPE", "Optuna GP")
"""Those that throw dice."""


def main() -> int:
    """Learn, or replay and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--learn", action="store_true", help="write the scales that ship")
    parser.add_argument("--write", action="store_true", help="write docs/replay.md and its picture")
    parser.add_argument("--others", action="store_true", help="the other ways to choose, too (implied by --write)")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=math.inf, help="of the other ways; the first seed of each is whole")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "meshwright-replay")
    given = parser.parse_args()
    cells = held_out_cells(given.cache, LEARNT_FROM)
    if given.learn:
        write_scales(learnt(cells, given.cache))
        return 0
    results = model_results(cells, given.cache)
    if given.write or given.others:
        results += other_results(cells, given.cache, given.seeds, time.monotonic() + 60.0 * given.minutes)
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
