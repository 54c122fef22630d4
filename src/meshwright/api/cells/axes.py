"""The axes of an atlas: models by name, file or size, and numbers of nodes or devices, as lists with ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.api.numbers import MOST, count
from meshwright.domain.model import Model
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_CELLS = 2000
"""Cells of an atlas: an hour of searches, and more than anyone sees in a picture."""
_RANGE = re.compile(r"([^.+]+)\.\.([^.+]+)(?:\+([^.+]+))?")


def numbers(word: str) -> tuple[int, ...]:
    """A list of counts: ``1,2,4..64`` doubles from 4 to 64, ``8..32+8`` goes in steps of 8.

    >>> numbers("1,2,4..64")
    (1, 2, 4, 8, 16, 32, 64)
    >>> numbers("8..32+8")
    (8, 16, 24, 32)

    Errors:  ``InputError`` for anything else, and for more numbers than an atlas has cells.
    """
    found: list[int] = []
    for part in word.split(","):
        for each in _range(part.strip()):
            found.append(each)
            if len(found) > MOST_CELLS:
                raise fault("axis.long", "{word!r} is more than {limit:,} numbers", word=word[:40], limit=MOST_CELLS)
    return tuple(found)


def _range(word: str) -> Iterator[int]:
    found = _RANGE.fullmatch(word)
    if found is None:
        yield _one(word)
        return
    number, last, step = _one(found[1]), _one(found[2]), _one(found[3]) if found[3] else 0
    if last < number:
        raise fault("axis.range", "{word!r} ends before it begins", word=word[:40])
    while number <= last:
        yield number
        number = number + step if step else 2 * number


def _one(word: str) -> int:
    number = count(word)
    if number > MOST["devices"]:
        raise fault("number.high", "{word} is more than {limit:,}", word=word, limit=MOST["devices"])
    return number


def together(lists: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """All numbers of some lists, rising, each once."""
    return tuple(sorted({each for numbers in lists for each in numbers}))


def words(lists: Iterable[str | Model]) -> list[str | Model]:
    """The words of lists such as ``a,b``, each once; the name of a file is one word, and values stay what they are."""
    found: list[str | Model] = []
    for each in lists:
        if isinstance(each, Model) or Path(each).is_file():
            found.append(each)
        else:
            found += [word.strip() for word in each.split(",") if word.strip()]
    return list(dict.fromkeys(found))
