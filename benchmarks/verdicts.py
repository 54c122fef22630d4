"""What a framework itself says of drawn plans as written, and of configurations that it refuses: kept, asked again if they change.

python -m benchmarks.verdicts [--only NAME] [--plans 60] [--refused 30]

For a framework that is asked from a checkout: plans of every sort are drawn, written and given to it; then illegal plans and
single words changed, of which those are kept that it refuses, and ``meshwright check`` is to refuse them too. The tables stand in
``benchmarks/verdicts/``, with the commit that was asked and a hash of what it read: a test writes the plans again and compares,
so that a writer that says something else asks for new verdicts.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.label import label, parse_layout
from meshwright.errors import InputError
from meshwright.frameworks import framework
from meshwright.frameworks.base import File
from meshwright.frameworks.settings import Given
from meshwright.testing.plans import draw_layout, is_legal

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "benchmarks" / "verdicts"
MODELS = ("llama3-8b", "llama3-70b", "llama3.1-405b", "llama2-7b", "qwen2.5-7b", "qwen2.5-3b", "qwen3-8b", "qwen3-30b-a3b",
          "mixtral-8x7b", "deepseek-v3", "moonlight-16b-a3b", "gpt-oss-120b", "glm4.5-air", "gpt3-175b", "mistral-7b")
"""Models with and without a recipe, dense and mixtures."""
TASKS = ("pretrain", "pretrain", "sft", "lora")
SIZES = ((16, 64, 2048), (64, 256, 4096), (48, 96, 2048), (128, 512, 8192))
"""Devices, sequences of a step, tokens of a sequence."""
GRADIENTS = ("fp32", "fp32", "fp32", "bf16")
_COMMAND = re.compile(r'^ *exec .*?"\$@"', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan with what the framework said of it."""

    asked: str
    """``plan``: as it is written; ``refused``: an illegal plan, or one with words changed."""
    model: str
    task: str
    gradients: str
    devices: int
    batch: int
    sequence: int
    layout: str
    words: str = ""
    """Words that are added to the command."""
    files: str
    """Hash of what the framework reads."""
    accepted: bool
    why: str = ""
    """The framework's reason."""
    check: str = ""
    """What ``meshwright check`` says of a refused one: its errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Verdicts of one framework."""

    name: str
    said_by: str
    """What was executed: release and commit."""
    rows: tuple[Row, ...] = field(default=())

    @property
    def plans(self) -> tuple[Row, ...]:
        """Plans as written."""
        return tuple(row for row in self.rows if row.asked == "plan")

    @property
    def refused(self) -> tuple[Row, ...]:
        """Configurations that the framework refuses."""
        return tuple(row for row in self.rows if row.asked == "refused")


def case_of(name: str, row: Row) -> Case:
    """The case of a row."""
    return make_case(
        row.model, cluster_for("h100-sxm", num_devices=row.devices), global_batch_sequences=row.batch, sequence_tokens=row.sequence,
        task=row.task, gradient_dtype=row.gradients, framework=name, calibration="none",
    )


def layout_of(name: str, row: Row, case: Case) -> Layout:
    """The layout of a row."""
    there = framework(name)
    return parse_layout(
        row.layout, num_devices=row.devices, global_batch_sequences=row.batch, devices_per_node=case.cluster.devices_per_node,
        model=case.model, shards_over_context=there.features.shards_over_context,
    )


def files_of(name: str, row: Row) -> tuple[File, ...]:
    """What is written for a row, with its words behind those of the launch."""
    there, case = framework(name), case_of(name, row)
    writer = there if row.asked == "plan" else replace(there, limits=())
    return tuple(_worded(file, row.words) for file in writer.write(case, layout_of(name, row, case)))


def _worded(file: File, words: str) -> File:
    """A launch script with words more."""
    return replace(file, text=file.text.replace(' "$@"\n}', f' {words} "$@"\n}}')) if words and file.executable else file


def fingerprint(files: Sequence[File]) -> str:
    """Hash of what a framework reads: configurations whole, of a script the command; READMEs and comments are for people."""
    read = []
    for file in files:
        if file.executable:
            read += [f"{file.path}: {found}" for found in _COMMAND.findall(file.text)]
        elif not file.path.endswith(".md"):
            read.append(f"{file.path}: {file.text}")
    return hashlib.sha256("\n".join(read).encode()).hexdigest()[:16]


def checked(name: str, row: Row) -> tuple[str, ...]:
    """Errors of ``meshwright check`` for the files of a row."""
    import meshwright as mw

    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for file in files_of(name, row):
            if not file.path.endswith(".md"):
                paths.append(str(Path(folder, file.path)))
                Path(paths[-1]).write_text(file.text, encoding="utf-8")
        answer = mw.check(mw.CheckRequest(files=paths, from_=name, model=row.model, task=row.task, device="h100-sxm"))
    errors = [finding["id"] for finding in answer.to_json()["findings"] if finding["severity"] == "error"]
    return tuple(each for each in dict.fromkeys(errors) if each != "check.memory")  # no framework knows how much fits


def rules_broken(name: str, row: Row) -> set[str]:
    """What the framework's adapter has against the files of a row: the part of ``checked`` that needs no search and no estimate."""
    there, case = framework(name), case_of(name, row)
    files = [file for file in files_of(name, row) if not file.path.endswith(".md")]
    reading = there.read(files, version=there.version, given=Given(num_devices=row.devices, model=case.model))
    found = {message.id for message in reading.messages}
    found |= {each.message.id for check in there.checks for each in check.findings(reading, case) if each.severity == "error"}
    return found | {limit.id for limit in there.limits if reading.layout is not None and limit.check(case, reading.layout)}


# --- Drawing ---------------------------------------------------------------------------------------------------------------


def drawn(name: str, rng: random.Random, *, legal: bool) -> Iterator[Row]:
    """Plans of every sort, without end: those that limits allow, or those that they do not."""
    there = framework(name)
    while True:
        devices, batch, sequence = rng.choice(SIZES)
        row = Row(
            asked="plan" if legal else "refused", model=rng.choice(MODELS), task=rng.choice(TASKS), devices=devices, batch=batch,
            gradients=rng.choice(GRADIENTS), sequence=sequence, layout="", files="", accepted=False,
        )
        try:
            case = case_of(name, row)
            layout = draw_layout(case, there.features, rng.choice)
            row = replace(row, layout=label(layout))
            if is_legal(there, case, layout) != legal or layout_of(name, row, case) != layout:
                continue
            files = files_of(name, row)
        except (InputError, AssertionError, LookupError, ValueError, TypeError, ArithmeticError):
            continue  # what no key says
        yield replace(row, files=fingerprint(files))


def worded(name: str, rng: random.Random, words_for: Callable[[Row, str], Sequence[str]]) -> Iterator[Row]:
    """Legal plans with one change, each change in turn."""
    seen: dict[str, int] = {}
    for row in drawn(name, rng, legal=True):
        script = "\n".join(file.text for file in files_of(name, row) if file.executable)
        choices = sorted(words_for(row, script), key=lambda words: (seen.get(_kind(words), 0), words))
        if choices:
            seen[_kind(choices[0])] = seen.get(_kind(choices[0]), 0) + 1
            found = replace(row, asked="refused", words=choices[0])
            yield replace(found, files=fingerprint(files_of(name, found)))


def _kind(words: str) -> str:
    """The key of a change."""
    return words.replace("model.transformer.", "model.").partition("=")[0]


# --- Keeping ---------------------------------------------------------------------------------------------------------------


def read_table(path: Path) -> Table:
    """A table as it was kept."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    numbers = {"devices", "batch", "sequence"}
    rows = [
        Row(**{key: int(value) if key in numbers else value == "True" if key == "accepted" else value
               for key, value in each.items()})
        for each in csv.DictReader(lines)
    ]
    return Table(name=path.stem, said_by=head.removeprefix("# "), rows=tuple(rows))


def tables() -> tuple[Table, ...]:
    """Every table that is kept."""
    return tuple(read_table(path) for path in sorted(TABLES.glob("*.csv")))


def keep(table: Table) -> None:
    """Put a table in the place of an old one."""
    TABLES.mkdir(exist_ok=True)
    with (TABLES / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {table.said_by}\n")
        writer = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({each.name: getattr(row, each.name) for each in fields(Row)} for row in table.rows)


def summary() -> str:
    """The tables, as Markdown."""
    lines = ["| framework | asked | plans as written | accepted | refused configurations | refused by check too |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {table.name} | {table.said_by} | {len(table.plans)} | {sum(row.accepted for row in table.plans)} "
        f"| {len(table.refused)} | {sum(bool(row.check) for row in table.refused)} |"
        for table in tables()
    ]
    return "\n".join(lines) + "\n"


def ask(name: str, said_by: str, judge, words_for, plans: int, refused: int) -> Table:  # type: ignore[no-untyped-def]
    """Verdicts of a framework on drawn plans, and on as many configurations as it refuses."""
    rng = random.Random(16)
    source = drawn(name, rng, legal=True)
    kept = _judged(name, [next(source) for _ in range(plans)], judge)
    wrong: list[Row] = []
    illegal, changed = drawn(name, rng, legal=False), worded(name, rng, words_for)
    while len(wrong) < refused:
        batch = [next(each) for _ in range(max(4, (refused - len(wrong)) // 2)) for each in (illegal, changed)]
        found = [row for row in _judged(name, batch, judge) if not row.accepted and not row.why.startswith("trains something else")]
        wrong += [replace(row, check=" ".join(checked(name, row))) for row in found]
    return Table(name=name, said_by=said_by, rows=(*kept, *wrong[:refused]))


def _judged(name: str, rows: Sequence[Row], judge) -> list[Row]:  # type: ignore[no-untyped-def]
    """Rows with what the framework says of them."""
    cases = [case_of(name, row) for row in rows]
    written = [(files_of(name, row), case, layout_of(name, row, case)) for row, case in zip(rows, cases, strict=True)]
    verdicts = judge.verdicts(written)
    return [replace(row, accepted=said["accepted"], why=said["why"][:200]) for row, said in zip(rows, verdicts, strict=True)]


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--only", help="one framework, as bridge@0.3")
    parser.add_argument("--plans", type=int, default=60)
    parser.add_argument("--refused", type=int, default=30)
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "tests" / "frameworks"))
    from bridge_cases import words_for
    from judged import judges
    from oracles_run import end_all

    for judge in judges():
        if not judge.commit or options.only not in {None, judge.framework}:
            continue
        if why := judge.absent():
            sys.stdout.write(f"{judge.framework}: not asked, {why}\n")
            continue
        keep(ask(judge.framework, f"{judge.parser}, {judge.commit()}", judge, words_for, options.plans, options.refused))
    end_all()
    sys.stdout.write(summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
