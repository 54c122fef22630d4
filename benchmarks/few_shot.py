"""A few runs of one's own, tried on the corpus: ``python -m benchmarks.few_shot [--write]``.

Each source is left out of the calibration whole (the jackknife that ``validate --scheme leave-one-source-out`` uses, at the offsets
that ship), and of what says how far constants move (``benchmarks.own_shares``). Of its rows, 0, 1, 3 or 5 are drawn and given to
``calibrate --runs`` as own runs, or three that it names; the others are predicted. ``--write`` makes ``docs/few-shot.md`` and its
picture. Some CPU minutes; ``--cache`` keeps every source, so that a call that was ended goes on.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import own_shares
from benchmarks.left_out import LeftOut, kept
from meshwright.catalog.calibrations import freedoms
from meshwright.domain.calibration import CalibrationTable, Freedom
from meshwright.estimate import estimate
from meshwright.evidence.fit import choice, likeness, own, sharing, solve, spread
from meshwright.evidence.fit.fitters import predictor_of
from meshwright.evidence.fit.linear import key_of
from meshwright.evidence.fit.own import calibrate_on_top, own_freedoms
from meshwright.evidence.rows.groups import folds
from meshwright.evidence.rows.run import Run
from meshwright.words import percent

GIVEN = (0, 1, 3, 5)
"""Own runs."""
LEAST_RUNS, DRAWS, SCORED = own_shares.LEAST_RUNS, 6, 40
"""Measured runs of a source that is tried; draws of each; other rows that each draw is scored on."""
DRAWN, FIRST, IN_TURN = "drawn", "chosen before any is run", "chosen one after the other"
CHOSEN, BETWEEN = 3, 200
"""Own runs that are chosen, not drawn, of so many configurations at most."""


@dataclass(frozen=True)
class Told:
    """One other row after so many own runs."""

    own: int
    error: float
    """log(measured / predicted)."""
    half_width: float
    """Of the interval of 0.9, in log units."""
    same: bool
    """Whether an own run has its device, framework and precision."""
    cell: str
    """Device, framework and precision."""
    how: str = DRAWN
    """How the own runs were found."""

    @property
    def held(self) -> bool:
        """Whether the measured step lies inside."""
        return abs(self.error) <= self.half_width


def tried(source: str, runs: Sequence[Run], base: CalibrationTable, free: Sequence[Freedom]) -> list[Told]:
    """Every draw of a source, with every number of own runs."""
    random = np.random.default_rng(int(sha256(source.encode()).hexdigest()[:8], 16))
    found = []
    for _ in range(DRAWS):
        order = [runs[index] for index in random.permutation(len(runs))]
        chosen = list({run.group: run for run in reversed(order)}.values())[::-1][: max(GIVEN)]
        others = [run for run in order if run.group not in {each.group for each in chosen}][:SCORED]
        for count in GIVEN:
            found += _scored(others, chosen[:count], base, free)
    return found + _by_choice([runs[index] for index in random.permutation(len(runs))], base, free)


def _by_choice(runs: Sequence[Run], base: CalibrationTable, free: Sequence[Freedom]) -> list[Told]:
    """The own runs that ``calibrate`` would name, all before any was run or each once those before it were; as many others as all
    draws have.
    """
    case = predictor_of(base)
    asked = list({run.group: run for run in reversed(runs)}.values())[::-1][:BETWEEN]
    seen = own.seen_by(base, [replace(run, case=case(run)) for run in asked], free)
    in_turn: list[int] = []
    for _ in range(CHOSEN):
        in_turn += [each.index for each in choice.most_telling(seen, in_turn, 1)]
    found = []
    for how, named in ((FIRST, [each.index for each in choice.most_telling(seen, (), CHOSEN)]), (IN_TURN, in_turn)):
        chosen = [asked[index] for index in named]
        others = [run for run in runs if run.group not in {each.group for each in chosen}][: DRAWS * SCORED]
        found += [replace(each, how=how) for each in _scored(others, chosen, base, free)]
    return found


def _scored(others: Sequence[Run], given: Sequence[Run], base: CalibrationTable, free: Sequence[Freedom]) -> list[Told]:
    known = base
    if given:
        case = predictor_of(base)
        mine = [replace(run, case=case(run)) for run in given]
        known = calibrate_on_top(
            base, mine, free, groups=["\x1f".join(run.group) for run in mine],
            fold_of=folds([run.row for run in mine], "grouped"), name="mine", version="0", provenance={},
        )
    case, cells = predictor_of(known), {key_of(run).values()["cell"] for run in given}
    found = []
    for run in others:
        result = estimate(case(run), run.layout)
        assert result.interval is not None
        assert run.step_s is not None
        low, high = result.interval.step_s
        found.append(Told(
            own=len(given), error=math.log(run.step_s / result.step_s), half_width=math.log(high / low) / 2.0,
            same=key_of(run).values()["cell"] in cells, cell=key_of(run).values()["cell"],
        ))
    return found


def results(cache: Path) -> dict[str, list[Told]]:
    """Every source with enough measured runs."""
    left_out = LeftOut(cache)
    modules = (own, choice, sharing, likeness, spread, solve, own_shares, sys.modules[__name__])
    code = "".join(Path(each.__file__ or "").read_text(encoding="utf-8") for each in modules)
    stamp = sha256(f"{left_out.stamp}{code}".encode()).hexdigest()[:12]
    names = np.array([run.source for run in left_out.runs])
    seen, found = own_shares.seen(left_out), {}
    for name, own_runs in own_shares.sources(left_out).items():

        def all_of(name: str = name, own_runs: Sequence[Run] = own_runs) -> list[Told]:
            shares = own_shares.learnt(each for other, each in seen.items() if other != name)
            return tried(name, own_runs, left_out.without(names == name, name), own_freedoms(freedoms(), shares))

        found[name] = kept(cache / f"{name}-{stamp}.pickle", all_of)
        print(f"{name}: {', '.join(percent(error(found[name], count)) for count in GIVEN)}", file=sys.stderr, flush=True)
    return found


def after(told: Sequence[Told], count: int, how: str = DRAWN) -> list[Told]:
    """The other rows after so many own runs that were found so."""
    return [each for each in told if each.own == count and each.how == how]


def error(told: Sequence[Told], count: int, how: str = DRAWN, *, same: bool = False) -> float:
    """Median error of the other rows after so many own runs; NaN of none. ``same``: only rows of the cells of own runs.

    Units:   ratio.
    """
    sizes = [abs(each.error) for each in after(told, count, how) if each.same or not same]
    return math.expm1(median(sizes)) if sizes else math.nan


def coverage(told: Sequence[Told], count: int, how: str = DRAWN) -> float:
    """Share of the other rows inside the interval of 0.9."""
    return float(np.mean([each.held for each in after(told, count, how)]))


def width(told: Sequence[Told], count: int, how: str = DRAWN) -> float:
    """Mean log-width of the interval, high over low."""
    return float(np.mean([2.0 * each.half_width for each in after(told, count, how)]))


def main() -> int:
    """Try, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="write docs/few-shot.md and its picture")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "meshwright-few-shot")
    given = parser.parse_args()
    found = results(given.cache)
    from benchmarks.few_shot_page import page, picture

    text = page(found)
    if given.write:
        docs = Path(__file__).parents[1] / "docs"
        (docs / "few-shot.md").write_text(text, encoding="utf-8")
        (docs / "few-shot.svg").write_text(picture(found), encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
