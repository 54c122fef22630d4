"""Counts of faults by class and by verb, kept as data, and the page that shows them before and after."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.hostile.judge import FAULTS

if TYPE_CHECKING:
    from benchmarks.hostile.judge import Judgement

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hostile.md"
HERE = Path(__file__).resolve().parent
HEAD = """\
# Hostile cases

Drawn command lines over every verb: names that want to be code, numbers that no machine has, files that are none, outputs that a
user needs, streams that are closed, signals at any moment, and several of these at once. `python -m benchmarks.hostile` draws and
runs them (`--only N` one of them, `--list` prints each as a line of a shell), `--write` renews this page.

After each case: nothing that a name said has run, also not when the written scripts are run in a sandbox; what lay there before is
as it was unless `--force` or `--apply` was given; what was written parses; standard error has no traceback, no control character
and at most 60 lines of 4 KiB; the status is 0, 1, 2 or that of a signal; no process of it takes more than 1 GB, nothing more than
20 s of the processor but verbs that measure and `validate` of more than 5,000 rows; an interrupt ends it and its children.
"""


@dataclass(slots=True)
class Tally:
    """Faults counted, and the slowest and largest."""

    commit: str
    seed: str
    cases: Counter[str] = field(default_factory=Counter)
    """By class, and by verb."""
    faults: Counter[str] = field(default_factory=Counter)
    """By ``class|fault`` and ``verb|fault``; one fault of a kind a case."""
    longest_cpu_s: float = 0.0
    largest_rss_bytes: int = 0
    clean: int = 0

    def add(self, judged: Judgement) -> None:
        """One case more."""
        case = judged.case
        for group in (f"class {case.kind}", f"verb {case.verb}", "all"):
            self.cases[group] += 1
            self.faults.update(f"{group}|{each}" for each in judged.faults)
        self.clean += not judged.faults
        if not case.slow:
            self.longest_cpu_s = max(self.longest_cpu_s, judged.outcome.cpu_s)
        self.largest_rss_bytes = max(self.largest_rss_bytes, judged.outcome.rss_bytes)

    def keep(self, path: Path) -> None:
        """As JSON, in a fixed order."""
        document = {
            "commit": self.commit, "seed": self.seed, "clean": self.clean, "longest_cpu_s": round(self.longest_cpu_s, 1),
            "largest_rss_bytes": self.largest_rss_bytes, "cases": dict(sorted(self.cases.items())),
            "faults": dict(sorted(self.faults.items())),
        }
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def page() -> str:
    """The page from the two kept tallies."""
    kept = {
        name: json.loads((HERE / f"{name}.json").read_text()) for name in ("before", "after") if (HERE / f"{name}.json").exists()
    }
    lines = [HEAD]
    for name, one in kept.items():
        lines.append(
            f"- {name}: commit {one['commit']}, {one['cases']['all']:,} cases of seed {one['seed']}, "
            f"{one['clean']:,} without a fault; "
            f"most memory {one['largest_rss_bytes'] / 1e9:.2f} GB, longest {one['longest_cpu_s']:.0f} s of the processor"
        )
    lines += ["", "Each figure: cases with such a fault" + (", before and after." if len(kept) == 2 else "."), ""]
    lines += [*_table(kept, "class", "Class of faults"), "", *_table(kept, "verb", "Verb")]
    return "\n".join(lines) + "\n"


def _table(kept: dict[str, Any], prefix: str, title: str) -> list[str]:
    """Rows of one grouping; a cell is before -> after, empty where both are 0."""
    groups = [*sorted({group for one in kept.values() for group in one["cases"] if group.startswith(f"{prefix} ")}), "all"]
    lines = [f"| {title} | cases | " + " | ".join(FAULTS.values()) + " |", "| --- |" + " ---: |" * (len(FAULTS) + 1)]
    for group in groups:
        counts = [_cell([one["faults"].get(f"{group}|{each}", 0) for one in kept.values()]) for each in FAULTS]
        cases = " -> ".join(str(one["cases"].get(group, 0)) for one in kept.values())
        lines.append(f"| {group.removeprefix(f'{prefix} ')} | {cases} | " + " | ".join(counts) + " |")
    return lines


def _cell(counts: list[int]) -> str:
    return " -> ".join(map(str, counts)) if any(counts) else ""
