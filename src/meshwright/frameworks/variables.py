"""Variables of a launch that cost speed or memory wherever they stand (``variables.yaml``).

What one framework needs is its own rule.
``check``, ``lint`` and the frameworks' own rules say them in the same words, so that nobody reads one thing twice.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from meshwright.readers.shipped import load_shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from meshwright.documents.source import Setting
    from meshwright.frameworks.settings import Severity

Purpose = Literal["speed", "memory", "both"]
WORDS = "{name}={value}: {words}"
"""The template of every finding about a variable; ``words`` is what the row says."""
ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Two names of one variable, of which one is read."""
_SET = re.compile(
    r"^[ \t]*(?:export[ \t]+)?((?:NCCL|HCCL|CUDA|PYTORCH|TORCH|GLOO|UCX|NVTE|OMP|ASCEND|MS)_[A-Z0-9_]+)=(\S+)", re.MULTILINE
)
_BRANCH = re.compile(r"^[ \t]*(?:else|elif|fi|esac)\b|;;|\|\||&&|^[ \t]*(?:function[ \t]+)?\w+[ \t]*\(\)", re.MULTILINE)
"""What parts two values of which only one may be set."""


class Habit(Struct, frozen=True, kw_only=True):
    """A variable with values that should not stay, and what they do."""

    id: str
    variable: str
    pattern: str
    """A regular expression over the whole value, without blanks around it."""
    words: str
    expected: str
    severity: Severity
    purpose: Purpose
    source: str
    triggers: str
    passes: str
    """A value that is found, and one that is not."""
    replacement: str | None = None
    """What may be written instead unasked; None: that is for its owner to say."""
    across_nodes: bool = False
    """Whether it hurts only where there are several nodes."""
    ascend: bool = False
    """Whether it is also a rule of every framework on Ascend."""

    def bad(self, value: str) -> bool:
        """Whether a value should not stay."""
        return re.fullmatch(self.pattern, value.strip()) is not None


@cache
def habits() -> tuple[Habit, ...]:
    """All rows."""
    loaded = load_shipped(Path(__file__).with_name("variables.yaml"))
    assert isinstance(loaded, list)
    return tuple(
        Habit(
            pattern=row["bad"],
            words=row["says"],
            replacement=row.get("set"),
            **{name: value for name, value in row.items() if name not in ("bad", "says", "set")},
        )
        for row in loaded
    )


def habit_of(variable: str) -> Habit:
    """The first row of a variable."""
    return next(each for each in habits() if each.variable == variable)


def left_over(environment: Mapping[str, Setting], nodes: int) -> Iterator[tuple[Habit, Setting]]:
    """Rows that a launch on so many nodes falls under, with what it sets."""
    for habit in habits():
        setting = environment.get(habit.variable)
        if (
            setting is not None and isinstance(setting.value, str) and habit.bad(setting.value)
            and (not habit.across_nodes or nodes > 1)
        ):
            yield habit, setting


def torn_allocator(environment: Mapping[str, Setting]) -> tuple[Setting, Setting] | None:
    """The two names of the allocator's variable where they say different things."""
    old, new = (environment.get(name) for name in ALLOCATORS)
    return None if old is None or new is None or old.value == new.value else (old, new)


def set_twice(text: str, names: Iterable[str] = ()) -> Iterator[tuple[str, str, str, int]]:
    """Variables that a script sets again to something that leaves out what they were: name, first value, last value, line.

    ``names``: only these. The second ``export`` replaces the first, also where a value is a list of options (guide 002:164).
    """
    wanted, seen = frozenset(names), dict[str, tuple[str, int]]()
    for found in _SET.finditer(text):
        name, value = found[1], found[2].strip("\"'")
        if wanted and name not in wanted:
            continue
        before, end = seen.get(name, (value, 0))
        if (
            before != value
            and f"${name}" not in value
            and f"${{{name}" not in value
            and not _BRANCH.search(text, end, found.start())
        ):
            yield name, before, value, text.count("\n", 0, found.start(1)) + 1
        seen[name] = (value, found.end())
