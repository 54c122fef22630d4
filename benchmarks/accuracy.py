"""Writes docs/accuracy.md with its pictures: ``python -m benchmarks.accuracy [--write] [--scheme S ...] [--keep DIR]``.

The fit to all rows is done once; a scheme adds its held-out refits. ``--keep`` keeps predictions for calls of the same program.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.accuracy_plots import coverage_picture, memory_picture, regimes_picture, steps_picture
from benchmarks.accuracy_text import MAIN, SCHEMES, document
from benchmarks.disclosure import subtitle
from meshwright.api.verbs.validate import refusals
from meshwright.catalog.calibrations import freedoms
from meshwright.evidence.fit.fitters import Pooled, prior_fitter
from meshwright.evidence.rows.table import shipped_table
from meshwright.evidence.score.validation import validate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.evidence.fit.fitters import Fitter
    from meshwright.evidence.score.validation import Validation

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT, PICTURES = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "accuracy"
SHIPPED = ROOT / "src" / "meshwright" / "catalog" / "data" / "calibrations"
MAX_BYTES = 300_000
DRAWN = {"steps": steps_picture, "memory": memory_picture, "regimes": regimes_picture, "coverage": coverage_picture}


@cache
def _pooled() -> Pooled:
    return Pooled(freedoms=freedoms())


@cache
def _program() -> str:
    """What tells one state of the product's code and data from another; the shipped calibration is neither: each scheme refits."""
    digest = sha256()
    for path in sorted((ROOT / "src" / "meshwright").rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and path.parent != SHIPPED:
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def validation(scheme: str, kept: Path | None, *, priors: bool = False) -> Validation:
    """The corpus under a scheme, from predictions that the same program and data made before where they were kept."""
    title = "priors" if priors else scheme
    name = f"{title}-{_program()}.pickle"
    if kept is not None and (kept / name).is_file():
        found: Validation = pickle.loads((kept / name).read_bytes())
        return found
    start = perf_counter()
    fitter: Fitter = prior_fitter() if priors else _pooled()
    found = validate(shipped_table(), scheme=scheme, fitter=fitter, legal=refusals)  # type: ignore[arg-type]
    sys.stderr.write(f"{title}: {found.folds} fits, {perf_counter() - start:.0f} s\n")
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / name).write_bytes(pickle.dumps(found))
    return found


def pictures(found: Validation) -> dict[str, str]:
    """File name -> SVG text."""
    drawn = {f"{name}.svg": str(draw(found.rows, subtitle(found))) for name, draw in DRAWN.items()}
    for name, text in drawn.items():
        assert len(text) < MAX_BYTES, f"{name} has {len(text)} bytes"
    return drawn


def write(found: Mapping[str, Validation]) -> None:
    """The document and its pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, text in pictures(found[MAIN]).items():
        (PICTURES / name).write_text(text, encoding="utf-8")
    DOCUMENT.write_text(document(found), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md and docs/accuracy/*.svg, not only print")
    parser.add_argument("--scheme", action="append", choices=list(SCHEMES), help="only this scheme beside grouped; repeatable")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep predictions there, and take them from there")
    parser.add_argument("--priors", action="store_true", help="fit nothing: the priors of the catalogue")
    options = parser.parse_args(arguments)
    wanted = [scheme for scheme in SCHEMES if scheme == MAIN or scheme in (options.scheme or SCHEMES)]
    wanted = [MAIN] if options.priors else wanted
    found = {scheme: validation(scheme, options.keep, priors=options.priors) for scheme in wanted}
    if options.write:
        write(found)
    else:
        sys.stdout.write(document(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
