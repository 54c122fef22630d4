"""Keeps what pages show of the program's output, and the README's picture and tables, what the program really prints.

python -m benchmarks.readme [--write]

In a page, ``<!-- example: COMMAND -->`` begins what a command prints, up to the statistics of its search or to ``| until WORDS``,
or from ``| from WORDS`` to its end; ``<!-- plans: COMMAND -->`` a table of the ranked plans of the command;
``<!-- limits: COMMAND -->`` the curve of a ``pack`` beside ``estimate`` of each limit; ``<!-- accuracy: SET; SET -->`` rows of
docs/accuracy.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import meshwright as mw
from benchmarks.plan_picture import plan_picture
from meshwright.api.renderers import render
from meshwright.cli import main as run_meshwright
from meshwright.units import GIB
from meshwright.words import percent, seconds

ROOT = Path(__file__).resolve().parents[1]
MEASURED, PICTURE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "plan.svg"
ATLAS = ROOT / "docs" / "atlas.md"
_PAGES = ("README.md", *(f"docs/{name}.md" for name in ("atlas", "check", "diagnose", "episode", "fix", "packing", "plan")))
PAGES = [ROOT / name for name in _PAGES]
"""Pages with parts that are generated here."""
WIDTH = "80"
"""Columns of examples: no terminal and no page cuts them off."""
EXAMPLE = re.compile(
    r"(<!-- example: (?P<command>.*?)(?: \| (?:until (?P<until>.*?)|from (?P<since>.*?)))? -->\n).*?(<!-- /example -->)", re.DOTALL
)
LIMITS = re.compile(r"(<!-- limits: (?P<command>.*?) -->\n).*?(<!-- /limits -->)", re.DOTALL)
PLANS = re.compile(r"(<!-- plans: (?P<command>.*?) -->\n).*?(<!-- /plans -->)", re.DOTALL)
ACCURACY = re.compile(r"(<!-- accuracy: (?P<sets>.*?) -->\n).*?(<!-- /accuracy -->)", re.DOTALL)
LAST_SECTION = {"plan": "note:", "fix": "searched:"}
"""The example of a verb ends where search statistics with their times begin."""
COLUMNS = ("set", "rows", "step MAPE", "memory MAPE", "runs or fails", "90 % interval holds", "targets met", "one constant")
"""What the README shows of the accuracy table."""


@cache
def output(command: str) -> str:
    """What a command prints, run in the root of the repository."""
    os.environ["COLUMNS"] = WIDTH
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.chdir(ROOT):
        status = run_meshwright(shlex.split(command))
    assert status in {0, 1}, f"meshwright {command} ended with {status}"
    return stream.getvalue()


def example_output(command: str, until: str | None = None, since: str | None = None) -> str:
    """What the command prints, up to the statistics of the search or a line that begins with ``until``, or from ``since`` on."""
    if since is not None:
        return since + output(command).partition(f"\n{since}")[2].rstrip("\n")
    last = until or LAST_SECTION.get(command.split(maxsplit=1)[0], "legal layouts:")
    lines: list[str] = []
    for line in output(command).strip("\n").splitlines():
        if "legal layouts:" in line or line.startswith(last):
            break
        lines.append(line.rstrip())
    return "\n".join(lines).rstrip("\n")


@cache
def planned(command: str) -> mw.PlanAnswer:
    """The answer of a ``plan`` command of plain options."""
    _, model, *words = shlex.split(command)
    with contextlib.chdir(ROOT):
        return mw.plan(mw.PlanRequest(model=model, **_options(words)))


def _options(words: list[str]) -> dict[str, Any]:
    """Options with a value each, by their names in Python."""
    names = [name.removeprefix("--").replace("-", "_") for name in words[::2]]
    return dict(zip(names, words[1::2], strict=True))


def limits_table(command: str) -> str:
    """Each limit of a ``pack FILE`` command, as its curve has it and as ``estimate`` does when it is asked for that limit."""
    _, lengths, *words = shlex.split(command)
    options = _options(words)
    with contextlib.chdir(ROOT):
        packed = mw.pack(mw.PackRequest(lengths=lengths, **options)).packed
        lines = ["| limit | packs | step, `pack` | `estimate` | GiB, `pack` | `estimate` |", "|--:|--:|--:|--:|--:|--:|"]
        for point in packed.curve:
            said = mw.estimate(mw.EstimateRequest(
                **{"global_batch": len(packed.lengths.lengths), **options}, lengths=lengths, max_tokens=point.max_tokens,
                packs=point.packs,
            )).estimate
            both = [(f"{each.step_s:.2f} s", f"{each.memory_reserved_bytes / GIB:.1f}") for each in (point.estimate, said)]
            steps, memory = zip(*both, strict=True)
            lines.append(f"| {' | '.join([f'{point.max_tokens:,}', str(point.packs), *steps, *memory])} |")
    return "\n".join(lines)


def plans_table(command: str) -> str:
    """The ranked plans as a table of a page; a star says that layers by stage are uneven."""
    lines = ["| | layout | step | MFU | GiB |", "|-:|:--|--:|--:|--:|"]
    for plan in planned(command).result.plans:
        estimate, (label, _, uneven) = plan.estimate, plan.label.partition(" layers=")
        figures = f"{seconds(estimate.step_s)} | {percent(estimate.mfu_ratio)} | {estimate.memory_reserved_bytes / GIB:.1f}"
        lines.append(f"| {plan.rank} | `{label}`{' *' if uneven else ''} | {figures} |")
    return "\n".join(lines)


def picture(readme: str) -> str:
    """The picture of the README's plan."""
    answer = planned(PLANS.search(readme)["command"])
    case = answer.given.case
    cluster = case.cluster
    return str(plan_picture(case.model.name, f"{cluster.num_devices} x {cluster.device.name}", answer.result, answer.closest))


def atlas_picture(page: str) -> str:
    """The picture of the atlas that the page shows."""
    return str(render("atlas.svg", json.loads(output(f"{EXAMPLE.search(page)['command']} --json"))))


def accuracy_table(sets: str) -> str:
    """Some rows of the summary of docs/accuracy.md, in their order there, and some of its columns."""
    text = MEASURED.read_text(encoding="utf-8")
    lines = re.search(r"<!-- summary -->\n(.*?)<!-- /summary -->", text, re.DOTALL)[1].strip("\n").splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("| set |"))
    names = _cells(lines[head])
    kept = [names.index(name) for name in COLUMNS]
    wanted = [each.strip() for each in sets.split(";")]
    rows = [cells for cells in map(_cells, lines[head + 2 :]) if cells[0] in wanted]
    assert len(rows) == len(wanted), f"docs/accuracy.md has {sorted(cells[0] for cells in rows)} of {wanted}"
    table = [names, ["---", *["---:"] * (len(names) - 1)], *rows]
    return "\n".join([*lines[:head], *(f"| {' | '.join(cells[place] for place in kept)} |" for cells in table)])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def typed(command: str) -> str:
    """A command line as one types it, broken before an option where it is too long."""
    lines = ["meshwright"]
    for words in re.split(r" (?=--)", command):
        if len(lines[-1]) + len(words) > int(WIDTH) - len("$  \\"):
            lines.append("   ")
        lines[-1] += f" {words}"
    return " \\\n".join(lines)


def refreshed(text: str) -> str:
    """A page with its generated parts renewed."""

    def example(match: re.Match[str]) -> str:
        command = match["command"]
        return f"{match[1]}```\n$ {typed(command)}\n\n{example_output(command, match['until'], match['since'])}\n```\n{match[5]}"

    text = EXAMPLE.sub(example, text)
    text = PLANS.sub(lambda match: f"{match[1]}{plans_table(match['command'])}\n{match[3]}", text)
    text = LIMITS.sub(lambda match: f"{match[1]}{limits_table(match['command'])}\n{match[3]}", text)
    return ACCURACY.sub(lambda match: f"{match[1]}{accuracy_table(match['sets'])}\n{match[3]}", text)


def main() -> int:
    """Compare, or write with ``--write``."""
    readme = PAGES[0].read_text(encoding="utf-8")
    new = {page: refreshed(page.read_text(encoding="utf-8")) for page in PAGES} | {PICTURE: picture(readme)}
    new[ATLAS.with_suffix(".svg")] = atlas_picture(ATLAS.read_text(encoding="utf-8"))
    old = [path for path, text in new.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in old:
        if "--write" in sys.argv:
            path.write_text(new[path], encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {'is written' if '--write' in sys.argv else 'is not current; run scripts/refresh-readme'}")
    return int(bool(old) and "--write" not in sys.argv)


if __name__ == "__main__":
    raise SystemExit(main())
