"""Published runs, predicted without any calibration: ``python -m benchmarks.sanity [--corpus CSV] [--write]``.

Nothing here is fitted to the rows: constants are the priors of the catalogue (``none@0``). Metrics and sets are those of
``meshwright validate``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.cli.validate import refusals
from meshwright.evidence.fitters import prior_fitter
from meshwright.evidence.rows import ASSUMPTIONS
from meshwright.evidence.summary import summarise
from meshwright.evidence.table import count_reasons, read_table, shipped_path
from meshwright.evidence.validation import validate

if TYPE_CHECKING:
    from meshwright.evidence.summary import Part
    from meshwright.evidence.validation import Validation

ROOT = Path(__file__).resolve().parents[1]
HEAD = (
    "set", "rows", "step n", "MAPE", "median", "bias", "Spearman", "within 1.25", "memory n", "MAPE", "bias", "fits or fails right",
)  # fmt: skip


def cells(part: Part) -> list[str]:
    """A row of the table; blank where there is nothing to compare."""
    found = part.scores
    shares = (found.step_mape_ratio, found.step_median_ape_ratio)
    memory = (found.memory_mape_ratio, found.memory_bias_ratio)
    return [
        part.name, str(found.n), str(found.step_n), *map(percent, shares), percent(found.step_bias_ratio, "+"),
        "" if found.spearman is None else f"{found.spearman:.2f}", percent(found.step_within_factor_1_25_ratio),
        str(found.memory_n), percent(memory[0]), percent(memory[1], "+"), percent(found.fit_accuracy_ratio),
    ]  # fmt: skip


def percent(ratio: float | None, sign: str = "") -> str:
    """A ratio as percent, or nothing."""
    return "" if ratio is None else f"{ratio:{sign}.1%}"


def document(validation: Validation) -> str:
    """The whole of ``docs/sanity.md``."""
    lines = [
        "# Published runs, predicted before any calibration", "",
        "Written by `python -m benchmarks.sanity --write`, with the priors `none@0`; nothing is fitted to these rows.",
        "Errors are of the step time; memory is of the kind that the row reports. Rows with a flag are left out.", "",
        "<!-- summary -->", "| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD),
        *("| " + " | ".join(cells(part)) + " |" for part in summarise(validation).sets), "<!-- /summary -->", "",
        "## What is assumed where a row is silent", "", *(f"- {text}" for text in ASSUMPTIONS), "", "## Rows left out", "",
        *(f"- {count} {kind}" for kind, count in count_reasons(validation.skipped).items()),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sanity", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=shipped_path(), help="a CSV in the schema of the corpus")
    parser.add_argument("--write", action="store_true", help="write docs/sanity.md too")
    options = parser.parse_args(arguments)
    text = document(validate(read_table(options.corpus), scheme=None, fitter=prior_fitter(), legal=refusals))
    sys.stdout.write(text)
    if options.write:
        (ROOT / "docs" / "sanity.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
