"""``python -m benchmarks.samples [--write]``: what was read of each sample beside what was to be read."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.samples import Expected, ask, directory, everything, right
from meshwright.errors import MeshwrightError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "samples.md"
HEAD = """# Real files, and what is read of them

Logs, traces, dumps and tables of public runs, each with what a correct reader must find. `python -m benchmarks.samples --write`
renews this page where `MESHWRIGHT_SAMPLES` names the directory of the files.

"""


def main() -> int:
    """Print the table, or renew the page; status 1 where a figure is wrong."""
    samples = directory()
    if samples is None:
        sys.exit("MESHWRIGHT_SAMPLES names no directory")
    rows = [(each, _asked(each, samples)) for each in everything()]
    good = sum(right(each, got) for each, got in rows)
    table = ["| file | what | to be read | read | |", "|:--|:--|--:|--:|:--|"]
    for each, got in rows:
        mark = "" if right(each, got) else "**no**"
        table.append(f"| {each.file} | {each.what} | {_said(each.want)} | {_said(got)} | {mark} |")
    text = f"{HEAD}{good} of {len(rows)} figures of {len({each.file for each, _ in rows})} files.\n\n" + "\n".join(table) + "\n"
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0 if good == len(rows) else 1


def _asked(each: Expected, samples: Path) -> float | str | None:
    try:
        return ask(each, samples)
    except MeshwrightError as error:
        return f"refused: {error}"


def _said(value: float | str | None) -> str:
    return "none" if value is None else value if isinstance(value, str) else f"{value:.6g}"


if __name__ == "__main__":
    sys.exit(main())
