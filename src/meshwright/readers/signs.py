"""What a log complains of in words that are known: ``signs.yaml`` has them, each with what it means for the run's end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from meshwright.domain.observed import Place, Sign
from meshwright.readers.clock import at_s
from meshwright.readers.lines import Line
from meshwright.readers.pairs import number
from meshwright.readers.shipped import load_shipped
from meshwright.value import Value

LONGEST = 400
"""Characters of a line that are kept."""
MOST_LINES = 50_000
"""Lines with words of complaints, after which only some are looked at."""
MOST_RANKS = 4096
"""Ranks whose sign of one kind is kept each by itself."""
_RANK = re.compile(r"\[(?:rank|Rank)[ :_]?(\d{1,7})\]|\[Rank (\d{1,7})[\]\s]|\brank[ :=]{1,2}(\d{1,7})\b|\bRANK[ =](\d{1,7})\b")


class Rule(Value, frozen=True, kw_only=True):
    """One known complaint."""

    id: str
    anchor: bytes
    pattern: re.Pattern[str]
    """``value`` and ``rank`` may be groups of it."""
    ends: str = ""
    """The status with which a run ends that says so; empty: it goes on."""
    weight: int = 0
    """Of what ends runs: 3 a cause, 2 what may be one, 1 what follows when others end, 0 what only says that it ended."""
    generic: bool = False
    """Whether it counts only on lines of which no other rule says how runs end."""
    example: str = ""


@cache
def rules() -> tuple[Rule, ...]:
    """Those of ``signs.yaml``, in its order: of one line the first that holds counts, by identifier."""
    document: Any = load_shipped(Path(__file__).with_name("signs.yaml"))
    return tuple(
        Rule(id=row["id"], anchor=anchor.encode(), pattern=re.compile(row["pattern"], re.IGNORECASE), ends=row.get("ends", ""),
             weight=row.get("weight", 0), generic=row.get("generic", False), example=row.get("example", ""))
        for row in document for anchor in ([row["anchor"]] if isinstance(row["anchor"], str) else row["anchor"])
    )


@cache
def by_id() -> dict[str, Rule]:
    """The rules by their identifiers."""
    return {rule.id: rule for rule in rules()}


@cache
def anchors() -> tuple[bytes, ...]:
    """The literal text of each rule, in the rules' order."""
    return tuple(rule.anchor for rule in rules())


class Signs:
    """Collected line by line: one of a kind and a rank, with how often it was seen and the last figure."""

    def __init__(self, file: str) -> None:
        """Of the file by this name."""
        self._file = file
        self._found: dict[tuple[str, int | None], Sign] = {}
        self._ranks: dict[str, int] = {}
        self._lines = 0

    @property
    def many(self) -> bool:
        """Whether so many lines complain that nobody needs the others each."""
        return self._lines > MOST_LINES

    def take(self, line: Line, indices: Sequence[int]) -> None:
        """A line, and the rules whose anchors it holds."""
        self._lines += 1
        seen: dict[str, Rule] = {}
        for rule in sorted((rules()[index] for index in indices), key=lambda rule: rule.generic):
            if rule.id in seen or (rule.generic and any(each.ends for each in seen.values())):
                continue
            match = rule.pattern.search(line.text)
            if match is None:
                continue
            seen[rule.id] = rule
            groups = match.groupdict()
            self._add(rule, line, number(groups.get("value")), groups.get("rank"))

    def _add(self, rule: Rule, line: Line, value: float | None, named: str | None) -> None:
        rank = int(named) if named else _rank(line)
        key = (rule.id, rank)
        if key not in self._found and self._ranks.setdefault(rule.id, 0) >= MOST_RANKS:
            key = (rule.id, None)
        kept = self._found.get(key)
        if kept is not None:
            self._found[key] = replace(
                kept, times=kept.times + 1, value=kept.value if value is None else value, last_line=line.number)
            return
        self._ranks[rule.id] = self._ranks.get(rule.id, 0) + 1
        self._found[key] = Sign(
            id=rule.id, place=Place(file=self._file, line=line.number), text=line.text.strip()[:LONGEST], rank=rank, value=value,
            at_s=at_s(line.text), last_line=line.number,
        )

    @property
    def found(self) -> tuple[Sign, ...]:
        """In the order of their first lines."""
        return tuple(sorted(self._found.values(), key=lambda sign: (sign.place.line or 0, sign.id)))


def _rank(line: Line) -> int | None:
    if line.rank is not None:
        return line.rank
    found = _RANK.search(line.text[:LONGEST])
    return None if found is None else int(next(each for each in found.groups() if each))
