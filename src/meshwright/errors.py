"""What can go wrong, and how it is said: an identifier and a template for every message.

Tree of exceptions::

    MeshwrightError
      + InputError        the user's input is wrong: one line per fault, exit status 2
      + NoAnswerError     the question was understood and the answer is no: exit status 1

Infeasibility inside a search is not an exception but a value (``meshwright.domain.verdict``). A template names its
values in braces, so that it can be translated and tested without running the code that raises it.
"""

from __future__ import annotations

import difflib
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from meshwright.text import place, plain, shortened, shown, visible

LONGEST_MESSAGE = 1000
ALIKE, FIRST = 8, 5
"""Messages of one identifier that are all shown, and how many are where there are more."""
NEAR = 0.6
"""Share of letters that a misspelt name has in common with the one that was meant, at least."""
OFFERED = 3
"""Names that a misspelt one may have meant."""


class _Values(string.Formatter):
    """Fills a template: values of users are escaped and short, nothing is spelt as Python spells it."""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """``{name!r}``: as the user wrote it, in quotes."""
        return shown(value) if conversion == "r" else super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        """A figure with its digits, a share as ``11.3 %``, anything else in words."""
        try:
            said = super().format_field(value, format_spec) if format_spec else plain(value)
            return said.replace("%", " %") if format_spec.endswith("%") else said
        except ValueError:  # a number of thousands of digits
            return plain(value)


_VALUES = _Values()


@dataclass(frozen=True, slots=True)
class Message:
    """One fault or remark: a stable identifier, a template, the values that fill it, and where it was found."""

    id: str
    template: str
    values: Mapping[str, object]
    path: str = ""

    @property
    def words(self) -> str:
        """The message without its path, in bounded length; what nobody sees in a value stands as an escape: it is one line."""
        return shortened(visible(_VALUES.vformat(self.template, (), self.values)), LONGEST_MESSAGE)

    def __str__(self) -> str:
        """The message as a person reads it, with the path in front where there is one."""
        return f"{place(self.path)}: {self.words}" if self.path else self.words


class MeshwrightError(Exception):
    """Base of everything that Meshwright raises on purpose; carries one message or several."""

    def __init__(self, messages: Message | Iterable[Message]) -> None:
        """Keep the messages in the order in which they were found."""
        self.messages: tuple[Message, ...] = (messages,) if isinstance(messages, Message) else tuple(messages)
        super().__init__("; ".join(lines(self.messages)))


class InputError(MeshwrightError):
    """The input is wrong; every fault of it is in ``messages``."""


class NoAnswerError(MeshwrightError):
    """The input is right and the answer is no."""


def fault(id: str, template: str, *, path: str = "", **values: object) -> InputError:
    """An ``InputError`` with one message."""
    return InputError(Message(id, template, values, path))


def lines(messages: Sequence[Message]) -> list[str]:
    """Each message as a line, those that say the same once; of many of one identifier the first few, and how many more."""
    times = Counter(map(str, messages))
    ids = {str(each): each.id for each in messages}
    alike, number = Counter(ids.values()), Counter[str]()
    found: list[str] = []
    for line, id in ids.items():
        number[id] += 1
        if alike[id] <= ALIKE or number[id] <= FIRST:
            found.append(f"{line} ({times[line]:,} times)" if times[line] > 1 else line)
        elif number[id] == FIRST + 1:
            found.append(f"and {alike[id] - FIRST:,} more like this")
    return found


def did_you_mean(name: str, known: Iterable[str], names: Mapping[str, str] | None = None) -> str:
    """A hint for a misspelt name: ``; did you mean X?``, or the empty string where nothing is near.

    ``names``: what spellings mean, where several mean one.
    """
    spellings = {each.lower(): each for each in sorted(known)}
    own = name.strip().lower()
    able = [each for each in spellings if most_alike(own, each) >= NEAR]
    near = [spellings[each] for each in difflib.get_close_matches(own, able, n=9, cutoff=NEAR)]
    found = list(dict.fromkeys((names or {}).get(each, each) for each in near))
    return f"; did you mean {', '.join(found[:OFFERED])}?" if found else ""


def most_alike(one: str, other: str) -> float:
    """What ``difflib.SequenceMatcher.ratio`` of two texts is at most.

        2 c / (length + length)

    Symbols: c letters of the longest text that both hold, other letters left out: what a matcher finds is such a text.
    Holds:   at most so much by lengths alone where that is below ``NEAR``.
    Source:  Crochemore, Iliopoulos, Pinzon, Reid, "A fast and practical bit-vector algorithm for the longest common subsequence
             problem", 2001: a column of the table is one number, of which each bit is a step up.
    """
    total = len(one) + len(other)
    bound = 2.0 * min(len(one), len(other)) / total if total else 1.0
    if bound < NEAR or not total:
        return bound
    places = _places(one)
    every = steps = (1 << len(one)) - 1
    for letter in other:
        met = steps & places.get(letter, 0)
        steps = (steps + met | steps - met) & every
    return 2.0 * (len(one) - steps.bit_count()) / total


@lru_cache(maxsize=1)  # a name is held against hundreds of others
def _places(text: str) -> Mapping[str, int]:
    """Letter -> where it stands in a text: a bit for each place."""
    places: dict[str, int] = {}
    for at, letter in enumerate(text):
        places[letter] = places.get(letter, 0) | 1 << at
    return places


def nearest(name: str, known: Iterable[str], listing: str = "", names: Mapping[str, str] | None = None) -> str:
    """A hint for an unknown name: what is near, and how to see the rest, by a command or, where they are few, at once.

    >>> nearest("lama", ["llama", "opt"], "meshwright catalog models")
    '; did you mean llama? `meshwright catalog models` lists all'
    >>> nearest("x", ["tp", "cp"])
    '; known: tp, cp'
    """
    every = list(known)
    near = did_you_mean(name, every, names)
    rest = f"`{listing}` lists all" if listing else f"known: {plain(every)}"
    return f"{near} {rest}" if near else f"; {rest}"
