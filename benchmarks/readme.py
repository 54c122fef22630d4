"""Keeps the README's example and accuracy table what the program really prints.

python -m benchmarks.readme [--write]
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

from meshwright.cli import main as run_meshwright

ROOT = Path(__file__).resolve().parents[1]
README, MEASURED = ROOT / "README.md", ROOT / "docs" / "accuracy.md"
WIDTH = "110"
EXAMPLE = re.compile(r"(<!-- example: (?P<command>.*?) -->\n).*?(<!-- /example -->)", re.DOTALL)
ACCURACY = re.compile(r"(<!-- accuracy -->\n).*?(<!-- /accuracy -->)", re.DOTALL)
LAST_SECTION = {"plan": "note:", "fix": "searched:"}
"""The example of a verb ends where search statistics with their times begin."""


def example_output(command: str) -> str:
    """What the command prints, up to the statistics of the search."""
    os.environ["COLUMNS"] = WIDTH
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.chdir(ROOT):
        status = run_meshwright(shlex.split(command))
    assert status in {0, 1}, f"meshwright {command} ended with {status}"
    lines: list[str] = []
    for line in stream.getvalue().strip("\n").splitlines():
        if "legal layouts:" in line or line.startswith(LAST_SECTION.get(command.split(maxsplit=1)[0], "legal layouts:")):
            break
        lines.append(line.rstrip())
    return "\n".join(lines).rstrip("\n")


def accuracy_table() -> str:
    """The summary table of docs/accuracy.md, between its markers."""
    text = MEASURED.read_text(encoding="utf-8") if MEASURED.exists() else ""
    found = re.search(r"<!-- summary -->\n(.*?)<!-- /summary -->", text, re.DOTALL)
    return found.group(1).strip("\n") if found else ""


def refreshed(text: str) -> str:
    """The README with both generated parts renewed."""

    def example(match: re.Match[str]) -> str:
        command = match["command"]
        return f"{match[1]}```\n$ meshwright {command}\n\n{example_output(command)}\n```\n{match[3]}"

    text = EXAMPLE.sub(example, text)
    return ACCURACY.sub(lambda match: f"{match[1]}{accuracy_table()}\n{match[2]}", text)


def main() -> int:
    """Compare, or write with ``--write``."""
    old = README.read_text(encoding="utf-8")
    new = refreshed(old)
    if "--write" in sys.argv:
        README.write_text(new, encoding="utf-8")
        return 0
    print("README.md is current" if new == old else "README.md is not current; run scripts/refresh-readme")
    return int(new != old)


if __name__ == "__main__":
    raise SystemExit(main())
