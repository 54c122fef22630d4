"""The page of the linter's rules, and how fast the linter is.

python -m benchmarks.lint_rules --write          docs/lint-rules.md from the table
python -m benchmarks.lint_rules --speed PATH...  CPU seconds for the Python files of folders, per million lines
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from itertools import groupby
from pathlib import Path

from meshwright.lint import Wanted
from meshwright.lint.rule import Rule, rules
from meshwright.lint.run import findings_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "lint-rules.md"


def page() -> str:
    """The page: each group of rules as a table."""
    looks = Counter(rule.looks_at for rule in rules().values())
    parts = [
        "# The rules of `lint`\n",
        f"{len(rules())} rules: {', '.join(f'{count} on {look}' for look, count in looks.most_common())}. Written by\n"
        "`python -m benchmarks.lint_rules --write` from `src/meshwright/lint/rules/*.yaml` and\n"
        "`src/meshwright/frameworks/variables.yaml`, which have for each rule an example that triggers it and one that does not:\n"
        "`meshwright lint --explain ID` prints them. Beside these, files of a framework are judged by the framework's own rules,\n"
        "those that [check](check.md) asks.\n",
    ]
    for look, every in groupby(
        sorted(rules().values(), key=lambda rule: list(looks).index(rule.looks_at)), key=lambda rule: rule.looks_at
    ):
        parts.append(
            f"\n## {look[0].upper()}{look[1:]}\n\n| rule | | about | what and why | `--fix` | source |\n|---|---|---|---|---|---|\n"
        )
        parts += [_row(rule) for rule in every]
    return "".join(parts)


def _row(rule: Rule) -> str:
    """One rule."""
    about = "speed, memory" if rule.purpose == "both" else rule.purpose
    words = f"{rule.says.replace('{code}', '...')}. {rule.why}"
    cells = (f"`{rule.id}`", rule.severity, about, words, rule.fix and f"`{rule.fix}`", rule.source)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def speed(paths: list[str]) -> str:
    """CPU seconds and lines of all Python files below some folders; the reading of the disk is not counted."""
    texts = [
        (str(path), path.read_text(encoding="utf-8", errors="replace"))
        for each in paths
        for path in sorted(Path(each).rglob("*.py"))
    ]
    lines = sum(text.count("\n") for _, text in texts)
    begun = time.process_time()
    found = sum(len(findings_of(text, path, Wanted())) for path, text in texts)
    seconds = time.process_time() - begun
    rate = 1e6 * seconds / max(lines, 1)
    return f"{len(texts):,} files, {lines:,} lines, {found:,} findings: {seconds:.1f} s of CPU, {rate:.1f} s a million lines"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--speed", nargs="+", metavar="PATH")
    options = parser.parse_args()
    if options.speed:
        print(speed(options.speed))
    elif options.write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
