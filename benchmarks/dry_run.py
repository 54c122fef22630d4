"""Table of dry runs beside the cost model: ``python -m benchmarks.dry_run``. A minute or two."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.engine.dry_run_layouts import TRIALS, Trial, case_of

from meshwright.domain.label import label
from meshwright.engine.dry_run import in_process
from meshwright.report.dryrun import figures

if TYPE_CHECKING:
    from meshwright.engine.dry_run import Found


def main() -> int:
    """One line a layout: activations found and said, and what else differs."""
    print("| model | layout | rank | activations, dry run | cost model | difference | parameters, states, FLOPs, messages |")
    print("|---|---|---|---|---|---|---|")
    for trial, found in zip(TRIALS, in_process([trial.job for trial in TRIALS]), strict=True):
        print(line(trial, found))
    return 0


def line(trial: Trial, found: Found) -> str:
    """One row of the table."""
    rows = {each.name: each for each in figures(case_of(trial.model, trial.layout), trial.layout, found)}
    kept = rows.pop("activations in flight")
    rows.pop("peak")
    others = [f"{each.name} {each.found:,} / {each.said:,}" for each in rows.values() if each.difference_ratio != 0.0]
    words = f"{trial.model.name} | {label(trial.layout)} | {trial.rank} | {kept.found:,} | {kept.said:,}"
    return f"| {words} | {100 * (kept.difference_ratio or 0.0):+.2f} % | {'; '.join(others) or 'exact'} |"


if __name__ == "__main__":
    sys.exit(main())
