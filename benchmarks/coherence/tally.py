"""What was asked and what was broken, by law, and the page that shows it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.coherence.draw import shell
from meshwright.documents.quoting import markdown

if TYPE_CHECKING:
    from benchmarks.coherence.trial import Asked

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coherence.md"
HEAD = """\
# One case, one answer

Drawn cases (models, clusters, frameworks, tasks, precisions, batches, sequences; clusters too small and odd ones among them), and
laws that hold between what the verbs say about each. `python -m benchmarks.coherence --cases N --seed S` draws and asks, `--only K`
one case of the seed, `--write` renews this page; a sample is drawn in every run of the tests.
"""


@dataclass(slots=True)
class Tally:
    """Counts by law."""

    commit: str
    seed: str
    cases: Counter[str] = field(default_factory=Counter)
    """By what became of them: planned, nothing fits, refused."""
    asked: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    """Cases in which a law is broken, not how often in one."""
    examples: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    """Law -> number of the case, command line and how, one for each case."""

    def add(self, number: int, outcome: str, options: dict[str, Any], every: list[Asked]) -> None:
        """One case more."""
        self.cases[outcome] += 1
        self.asked.update(each.law for each in every)
        for each in every:
            seen = self.examples.setdefault(each.law, [])
            if each.broken and (not seen or seen[-1][0] != number):
                self.broken[each.law] += 1
                seen.append((number, shell(each.verb, {**options, **each.more}), each.broken))


def page(tally: Tally) -> str:
    """The page."""
    total = sum(tally.cases.values())
    wrong = {number for found in tally.examples.values() for number, _, _ in found}
    sorts = ", ".join(f"{count} {name}" for name, count in sorted(tally.cases.items()))
    lines = [
        HEAD, f"Commit {tally.commit}, seed {tally.seed}: {total} cases ({sorts}), "
        f"{sum(tally.asked.values()):,} questions; {len(wrong)} cases with a broken law.", "",
        "| Law | asked | cases that break it |", "| --- | ---: | ---: |",
    ]
    lines += [f"| {law} | {count:,} | {tally.broken[law] or ''} |" for law, count in sorted(tally.asked.items())]
    broken = sorted(tally.broken, key=lambda law: (-tally.broken[law], law))
    if broken:
        lines += ["", "## First example of each", ""]
        for law in broken:
            number, line, how = tally.examples[law][0]
            lines += [f"- {law} ({tally.broken[law]} cases; case {number}): {markdown(how[:400])}", "", f"      {line}", ""]
    return "\n".join(lines).rstrip() + "\n"


def kept(tally: Tally) -> str:
    """Everything as JSON."""
    return json.dumps({
        "commit": tally.commit, "seed": tally.seed, "cases": tally.cases, "asked": tally.asked, "broken": tally.broken,
        "examples": {law: found for law, found in tally.examples.items() if found},
    }, indent=1) + "\n"
