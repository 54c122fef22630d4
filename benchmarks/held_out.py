"""Fits to the shipped corpus without each of its folds: ``python -m benchmarks.held_out [--write]``, minutes on two cores.

They ship beside the calibration, because it is judged by what they say of the rows that they have not seen: ``meshwright validate``
predicts with them, and ``validate --scheme grouped`` fits anew. ``--write`` makes them; without it they are compared, and a
difference is status 1. Write them whenever the shipped calibration, the corpus or the fit has changed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from meshwright.catalog.calibrations import HELD_OUT, freedoms, held_out_provenance, table_text
from meshwright.catalog.sheets import data_path
from meshwright.evidence.fit.fitters import Pooled
from meshwright.evidence.rows.groups import folds
from meshwright.evidence.rows.reading import read_runs
from meshwright.evidence.rows.table import shipped_table


def texts() -> dict[Path, str]:
    """Every file with what belongs into it."""
    table = shipped_table()
    runs = read_runs(table).runs
    fold_of = folds([run.row for run in runs], "grouped")
    found = Pooled(freedoms=freedoms()).tables(runs, fold_of, held_out_provenance(table.digest))
    folder = Path(str(data_path("calibrations"))) / HELD_OUT
    return {folder / f"{number}.json": table_text(each) for number, each in enumerate(found)}


def main() -> int:
    """Write the files, or say which of them are old."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="write what differs")
    write, old = parser.parse_args().write, 0
    for path, text in texts().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        old += 1
        print(f"{'written' if write else 'old'}: {path.name}")
        if write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 0 if write or not old else 1


if __name__ == "__main__":
    sys.exit(main())
