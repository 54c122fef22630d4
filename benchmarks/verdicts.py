"""What a framework itself says of drawn plans as written, and of configurations that it refuses: kept, asked again if they change.

python -m benchmarks.verdicts [--only NAME] [--plans 60] [--refused 30]

For every framework that is asked from a checkout (the variables that name one: ``tests/frameworks/oracles_run.py``): plans of every
sort are drawn, written and given to it; then illegal plans (and, of Bridge, single words changed), of which those are kept that it
refuses, and ``meshwright check`` is to refuse them too. The tables stand in ``benchmarks/verdicts/``, one for each release, with
the commit that was asked and a hash of what it read: a test writes the plans again and compares, so that a writer that says
something else asks for new verdicts.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path

from benchmarks.asked import Row, checked, written_of
from benchmarks.drawn import drawn, worded
from meshwright.documents.quoting import markdown_code

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "benchmarks" / "verdicts"
ROUNDS = 25
"""Times that as many configurations are drawn as refused ones are wanted: some frameworks refuse next to nothing."""


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


def row_of(table: Table) -> str:
    """A table as a row of Markdown."""
    accepted = f"{sum(row.accepted for row in table.plans)} of {len(table.plans)}"
    both = f"{sum(bool(row.check) for row in table.refused)} of {len(table.refused)}" if table.refused else "it refused none"
    return f"| {table.name} | {table.said_by} | {accepted} | {both} |"


def reasons_of(table: Table, most: int = 3) -> list[str]:
    """What the framework said of what it refuses, with the rule of check that says it too, the commonest first."""
    told: dict[str, list[str]] = {}
    for row in table.refused:
        told.setdefault(row.check.partition(" ")[0], []).append(" ".join(row.why.split()))
    often = sorted(told.items(), key=lambda item: -len(item[1]))[:most]
    return [f"| {table.name} | {len(whys)} | {markdown_code(whys[0][:110])} | `{rule}` |" for rule, whys in often]


def ask(judge, plans: int, refused: int) -> Table:  # type: ignore[no-untyped-def]
    """Verdicts of a framework on drawn plans, and on as many configurations that it refuses, as far as they are found."""
    name, rng = judge.framework, random.Random(16)
    kept = _judged(judge, list(islice(drawn(name, rng, legal=True), plans)))
    wrong: list[Row] = []
    sources = [drawn(name, rng, legal=False), *([worded(name, rng, judge.words)] if judge.words else [])]
    for _ in range(ROUNDS):
        if len(wrong) < refused:
            batch = [next(source) for _ in range(refused // len(sources)) for source in sources]
            wrong += [row for row in _judged(judge, batch) if not row.accepted and not row.why.startswith("trains something else")]
    wrong = [replace(row, check=" ".join(checked(name, row))) for row in wrong[:refused]]
    return Table(name=name, said_by=f"{judge.parser}, {judge.commit()}", rows=(*kept, *wrong))


def _judged(judge, rows: Sequence[Row]) -> list[Row]:  # type: ignore[no-untyped-def]
    """Rows with what the framework says of them."""
    verdicts = judge.verdicts([written_of(judge.framework, row) for row in rows])
    return [replace(row, accepted=said["accepted"], why=said["why"][:200]) for row, said in zip(rows, verdicts, strict=True)]


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--only", help="one framework, as bridge@0.3")
    parser.add_argument("--plans", type=int, default=60)
    parser.add_argument("--refused", type=int, default=30)
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "tests" / "frameworks"))
    from judged import judges
    from oracles_run import end_all

    for judge in judges():
        if judge.commit is None or options.only not in {None, judge.framework, judge.framework.partition("@")[0]}:
            continue
        if why := judge.absent():
            sys.stdout.write(f"{judge.framework}: not asked, {why}\n")
            continue
        table = ask(judge, options.plans, options.refused)
        keep(table)
        sys.stdout.write(
            f"{table.name}: {sum(row.accepted for row in table.plans)} of {len(table.plans)} accepted as written; check refuses "
            f"{sum(bool(row.check) for row in table.refused)} of {len(table.refused)} that it refuses\n"
        )
    end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
